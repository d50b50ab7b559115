package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file is a process's view of SQL, and what is remembered of what took effect there.

// sqlOps are the operations that this file wraps.
var sqlOps = map[string]bool{
	"Accept": true, "Stamp": true, "Commit": true, "Cancel": true, "Retry": true, "Reschedule": true, "Overdue": true, "Open": true, "OpenUntil": true,
	"Claimed": true, "ByID": true, "Expire": true, "DropClaims": true, "IndexMeta": true, "NextGeneration": true, "MarkBuilt": true,
	"TryLease": true, "SweepCursor": true, "SetSweepCursor": true, "Fold": true, "Purge": true, "Ping": true, "OwnedSecrets": true, "AddSecret": true,
	"Lanes": true, "Project": true, "AllPresets": true, "EndpointsChanged": true, "ProjectsChanged": true, "CancelDeleted": true,
	"AddActivity": true, "PurgeActivity": true, "PurgeSessions": true, "PurgeDispatchers": true, "ReportDispatcher": true, "WithdrawDispatcher": true,
}

// A simStore is SQL as one process reaches it. What it does not wrap is not called by an engine that runs.
type simStore struct {
	dispatch.Store
	p *process
}

// A stampSeen is a claim that took effect in SQL.
type stampSeen struct {
	p      *process
	at     time.Time
	until  time.Time // of the claim, as the bubble's clock has it
	fence  int64
	number int
}

type stampKey struct {
	id    string
	fence int64
}

func (s *simStore) cut(op string) error {
	return fmt.Errorf("%s: %w: %w", op, store.ErrUnavailable, errCut)
}

func sqlCall[T any](ctx context.Context, s *simStore, op string, do func(context.Context) (T, error)) (T, error) {
	return around(ctx, s.p, op, s.cut(op), do)
}

// pair carries two values through a call.
type pair[A, B any] struct {
	a A
	b B
}

func (s *simStore) Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	drafts = slices.Clone(drafts)
	return sqlCall(ctx, s, "Accept", func(ctx context.Context) ([]store.Accepted, error) { return s.Store.Accept(ctx, drafts) })
}

func (s *simStore) Stamp(ctx context.Context, st store.Stamp) ([]*store.Stamped, []store.Refusal, error) {
	st.Claims = slices.Clone(st.Claims)
	got, err := sqlCall(ctx, s, "Stamp", func(ctx context.Context) (pair[[]*store.Stamped, []store.Refusal], error) {
		stamped, refused, err := s.Store.Stamp(ctx, st)
		s.p.sim.stamped(s.p, stamped)
		return pair[[]*store.Stamped, []store.Refusal]{stamped, refused}, err
	})
	return got.a, got.b, err
}

func (s *simStore) Commit(ctx context.Context, results []store.Result, now int64) ([]store.Committed, error) {
	results = slices.Clone(results)
	return sqlCall(ctx, s, "Commit", func(ctx context.Context) ([]store.Committed, error) {
		got, err := s.Store.Commit(ctx, results, now)
		s.p.sim.committed(results, got)
		return got, err
	})
}

func (s *simStore) Cancel(ctx context.Context, project, id string, now int64, by store.Actor) (store.CanceledCallback, error) {
	return sqlCall(ctx, s, "Cancel", func(ctx context.Context) (store.CanceledCallback, error) {
		return s.Store.Cancel(ctx, project, id, now, by)
	})
}

func (s *simStore) CancelRef(ctx context.Context, project, ref, topic string, limit int, now int64, by store.Actor) ([]store.CanceledCallback, error) {
	return sqlCall(ctx, s, "Cancel", func(ctx context.Context) ([]store.CanceledCallback, error) {
		return s.Store.CancelRef(ctx, project, ref, topic, limit, now, by)
	})
}

// NextSchedules: a simulation has none, and need not look for them every second.
func (s *simStore) NextSchedules(context.Context, int64, int) ([]store.Schedule, error) {
	return nil, nil
}

func (s *simStore) Retry(ctx context.Context, project, id string, r store.Retry, by store.Actor) (store.Callback, error) {
	return sqlCall(ctx, s, "Retry", func(ctx context.Context) (store.Callback, error) { return s.Store.Retry(ctx, project, id, r, by) })
}

func (s *simStore) Reschedule(ctx context.Context, project, id string, due, now int64, by store.Actor) (store.Callback, error) {
	return sqlCall(ctx, s, "Reschedule", func(ctx context.Context) (store.Callback, error) {
		return s.Store.Reschedule(ctx, project, id, due, now, by)
	})
}

func (s *simStore) Overdue(ctx context.Context, after store.Cursor, dueBefore, claimedBefore int64, limit int) ([]store.OpenRow, error) {
	return sqlCall(ctx, s, "Overdue", func(ctx context.Context) ([]store.OpenRow, error) {
		return s.Store.Overdue(ctx, after, dueBefore, claimedBefore, limit)
	})
}

func (s *simStore) Open(ctx context.Context, after store.Cursor, limit int) ([]store.OpenRow, error) {
	return sqlCall(ctx, s, "Open", func(ctx context.Context) ([]store.OpenRow, error) { return s.Store.Open(ctx, after, limit) })
}

func (s *simStore) Claimed(ctx context.Context, after store.Cursor, now int64, limit int) ([]store.OpenRow, error) {
	return sqlCall(ctx, s, "Claimed", func(ctx context.Context) ([]store.OpenRow, error) { return s.Store.Claimed(ctx, after, now, limit) })
}

func (s *simStore) ByID(ctx context.Context, ids []string) ([]store.OpenRow, error) {
	return sqlCall(ctx, s, "ByID", func(ctx context.Context) ([]store.OpenRow, error) { return s.Store.ByID(ctx, ids) })
}

func (s *simStore) Expire(ctx context.Context, now int64, limit int) ([]store.OpenRow, error) {
	return sqlCall(ctx, s, "Expire", func(ctx context.Context) ([]store.OpenRow, error) { return s.Store.Expire(ctx, now, limit) })
}

func (s *simStore) DropClaims(ctx context.Context, now int64) (int, error) {
	return sqlCall(ctx, s, "DropClaims", func(ctx context.Context) (int, error) { return s.Store.DropClaims(ctx, now) })
}

func (s *simStore) IndexMeta(ctx context.Context, want store.IndexMeta) (store.IndexMeta, error) {
	return sqlCall(ctx, s, "IndexMeta", func(ctx context.Context) (store.IndexMeta, error) { return s.Store.IndexMeta(ctx, want) })
}

func (s *simStore) NextGeneration(ctx context.Context, from int64) (int64, error) {
	return sqlCall(ctx, s, "NextGeneration", func(ctx context.Context) (int64, error) { return s.Store.NextGeneration(ctx, from) })
}

func (s *simStore) MarkBuilt(ctx context.Context, generation, now int64) error {
	_, err := sqlCall(ctx, s, "MarkBuilt", func(ctx context.Context) (int, error) { return 0, s.Store.MarkBuilt(ctx, generation, now) })
	return err
}

// TryLease refuses the leases of functions that this simulation leaves to processes that it does not have.
func (s *simStore) TryLease(ctx context.Context, name, holder string, now int64, ttl time.Duration) (bool, error) {
	if !s.p.sim.plan.folds && (name == "fold" || name == "purge") {
		return false, nil
	}
	return sqlCall(ctx, s, "TryLease", func(ctx context.Context) (bool, error) { return s.Store.TryLease(ctx, name, holder, now, ttl) })
}

func (s *simStore) SweepCursor(ctx context.Context) (store.Cursor, error) {
	return sqlCall(ctx, s, "SweepCursor", s.Store.SweepCursor)
}

func (s *simStore) SetSweepCursor(ctx context.Context, c store.Cursor) error {
	_, err := sqlCall(ctx, s, "SetSweepCursor", func(ctx context.Context) (int, error) { return 0, s.Store.SetSweepCursor(ctx, c) })
	return err
}

func (s *simStore) Fold(ctx context.Context, now int64) error {
	if !s.p.sim.plan.folds {
		return nil
	}
	_, err := sqlCall(ctx, s, "Fold", func(ctx context.Context) (int, error) { return 0, s.Store.Fold(ctx, now) })
	return err
}

func (s *simStore) Purge(ctx context.Context, payloadBefore, metadataBefore int64, limit int) (payloads, callbacks int, err error) {
	got, err := sqlCall(ctx, s, "Purge", func(ctx context.Context) (pair[int, int], error) {
		payloads, callbacks, err := s.Store.Purge(ctx, payloadBefore, metadataBefore, limit)
		return pair[int, int]{payloads, callbacks}, err
	})
	return got.a, got.b, err
}

func (s *simStore) PurgeActivity(ctx context.Context, now int64, limit int) (int, error) {
	return sqlCall(ctx, s, "PurgeActivity", func(ctx context.Context) (int, error) { return s.Store.PurgeActivity(ctx, now, limit) })
}

func (s *simStore) PurgeSessions(ctx context.Context, now int64, limit int) (int, error) {
	return sqlCall(ctx, s, "PurgeSessions", func(ctx context.Context) (int, error) { return s.Store.PurgeSessions(ctx, now, limit) })
}

func (s *simStore) PurgeDispatchers(ctx context.Context, now int64, limit int) (int, error) {
	return sqlCall(ctx, s, "PurgeDispatchers", func(ctx context.Context) (int, error) { return s.Store.PurgeDispatchers(ctx, now, limit) })
}

func (s *simStore) AddActivity(ctx context.Context, rows []store.Activity) error {
	rows = slices.Clone(rows)
	_, err := sqlCall(ctx, s, "AddActivity", func(ctx context.Context) (int, error) { return 0, s.Store.AddActivity(ctx, rows) })
	return err
}

func (s *simStore) ReportDispatcher(ctx context.Context, d store.Dispatcher) error {
	_, err := sqlCall(ctx, s, "ReportDispatcher", func(ctx context.Context) (int, error) { return 0, s.Store.ReportDispatcher(ctx, d) })
	return err
}

func (s *simStore) WithdrawDispatcher(ctx context.Context, name string) error {
	_, err := sqlCall(ctx, s, "WithdrawDispatcher", func(ctx context.Context) (int, error) { return 0, s.Store.WithdrawDispatcher(ctx, name) })
	return err
}

func (s *simStore) Ping(ctx context.Context) error {
	_, err := sqlCall(ctx, s, "Ping", func(ctx context.Context) (int, error) { return 0, s.Store.Ping(ctx) })
	return err
}

func (s *simStore) OwnedSecrets(ctx context.Context, project, owner string, now int64) ([]store.Secret, error) {
	return sqlCall(ctx, s, "OwnedSecrets", func(ctx context.Context) ([]store.Secret, error) {
		return s.Store.OwnedSecrets(ctx, project, owner, now)
	})
}

func (s *simStore) Project(ctx context.Context, id string) (store.Project, error) {
	return sqlCall(ctx, s, "Project", func(ctx context.Context) (store.Project, error) { return s.Store.Project(ctx, id) })
}

func (s *simStore) AllPresets(ctx context.Context, project string) ([]store.Preset, error) {
	return sqlCall(ctx, s, "AllPresets", func(ctx context.Context) ([]store.Preset, error) { return s.Store.AllPresets(ctx, project) })
}

func (s *simStore) CancelDeleted(ctx context.Context, now int64, limit int) ([]store.OpenRow, error) {
	return sqlCall(ctx, s, "CancelDeleted", func(ctx context.Context) ([]store.OpenRow, error) {
		return s.Store.CancelDeleted(ctx, now, limit)
	})
}

// EndpointsChanged, ProjectsChanged and Lanes: nothing of that changes in a simulation. A call of theirs can fail, but does
// not read SQL: every process makes each once a second, and they were more than half of the cost.
func (s *simStore) EndpointsChanged(ctx context.Context, _ int64, _ int) ([]store.Endpoint, error) {
	return sqlCall(ctx, s, "EndpointsChanged", func(context.Context) ([]store.Endpoint, error) { return nil, nil })
}

func (s *simStore) ProjectsChanged(ctx context.Context, _ int64, _ int) ([]store.Project, error) {
	return sqlCall(ctx, s, "ProjectsChanged", func(context.Context) ([]store.Project, error) { return nil, nil })
}

func (s *simStore) Lanes(ctx context.Context, _ int64, _ int) ([]store.Lane, error) {
	return sqlCall(ctx, s, "Lanes", func(context.Context) ([]store.Lane, error) { return nil, nil })
}

func (s *simStore) AddSecret(ctx context.Context, secret store.Secret, retireAt int64, onlyIfNone bool, by store.Actor) error {
	_, err := sqlCall(ctx, s, "AddSecret", func(ctx context.Context) (int, error) {
		return 0, s.Store.AddSecret(ctx, secret, retireAt, onlyIfNone, by)
	})
	return err
}

// stamped remembers claims that took effect.
func (s *simulation) stamped(p *process, list []*store.Stamped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		w := list[i]
		key := stampKey{w.ID, w.Fence}
		if _, again := s.stamps[key]; again {
			continue // the same token once more
		}
		until := time.Now().Add(time.UnixMilli(w.ClaimUntil).Sub(s.now()))
		s.stamps[key] = stampSeen{p, time.Now(), until, w.Fence, w.AttemptSeq + 1}
	}
}

// committed remembers when the result of a claim first took effect.
func (s *simulation) committed(results []store.Result, got []store.Committed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range got {
		key := stampKey{results[i].ID, results[i].Fence}
		if _, known := s.results[key]; !known && got[i].Err == nil && got[i].Won {
			s.results[key] = time.Now()
		}
	}
}
