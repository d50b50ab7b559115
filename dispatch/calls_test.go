package dispatch_test

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A caller makes the calls of an engine to SQL and to the index, or has something else befall them. It may
// make a call later, twice or never.
type caller interface {
	call(ctx context.Context, op string, do work) (any, error)
}

// work is a call, which the caller makes.
type work = func(context.Context) (any, error)

func call0[T any](ctx context.Context, c caller, op string, do func(context.Context) (T, error)) (T, error) {
	got, err := c.call(ctx, op, func(ctx context.Context) (any, error) { return do(ctx) })
	value, _ := got.(T)
	return value, err
}

func call1[A, T any](ctx context.Context, c caller, op string,
	do func(context.Context, A) (T, error), a A) (T, error) {
	return call0(ctx, c, op, func(ctx context.Context) (T, error) { return do(ctx, a) })
}

func call2[A, B, T any](ctx context.Context, c caller, op string,
	do func(context.Context, A, B) (T, error), a A, b B) (T, error) {
	return call0(ctx, c, op, func(ctx context.Context) (T, error) { return do(ctx, a, b) })
}

func call3[A, B, C, T any](ctx context.Context, c caller, op string,
	do func(context.Context, A, B, C) (T, error), a1 A, a2 B, a3 C) (T, error) {
	return call0(ctx, c, op, func(ctx context.Context) (T, error) { return do(ctx, a1, a2, a3) })
}

func call4[A, B, C, D, T any](ctx context.Context, c caller, op string,
	do func(context.Context, A, B, C, D) (T, error), a1 A, a2 B, a3 C, a4 D) (T, error) {
	return call0(ctx, c, op, func(ctx context.Context) (T, error) { return do(ctx, a1, a2, a3, a4) })
}

// tell1 and tell2 make calls that return nothing but an error.
func tell1[A any](ctx context.Context, c caller, op string, do func(context.Context, A) error, a A) error {
	_, err := c.call(ctx, op, func(ctx context.Context) (any, error) { return nil, do(ctx, a) })
	return err
}

func tell2[A, B any](
	ctx context.Context, c caller, op string, do func(context.Context, A, B) error, a A, b B,
) error {
	_, err := c.call(ctx, op, func(ctx context.Context) (any, error) { return nil, do(ctx, a, b) })
	return err
}

// A calledStore is SQL as an engine calls it. What no engine that runs calls, and no test makes fail, is not
// wrapped. Lists are copied: a call that is made later must not see what its caller does with them meanwhile.
type calledStore struct {
	dispatch.Store
	caller
}

func (s *calledStore) Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	return call1(ctx, s, "Accept", s.Store.Accept, slices.Clone(drafts))
}

func (s *calledStore) Stamp(ctx context.Context,
	st store.Stamp) ([]*store.Stamped, []store.Refusal, error) {
	st.Claims = slices.Clone(st.Claims)
	type stamped struct {
		list    []*store.Stamped
		refused []store.Refusal
	}
	got, err := call0(ctx, s, "Stamp", func(ctx context.Context) (got stamped, err error) {
		got.list, got.refused, err = s.Store.Stamp(ctx, st)
		return got, err
	})
	return got.list, got.refused, err
}

func (s *calledStore) Commit(ctx context.Context, list []store.Result,
	now int64) ([]store.Committed, error) {
	return call2(ctx, s, "Commit", s.Store.Commit, slices.Clone(list), now)
}

func (s *calledStore) Cancel(ctx context.Context, project, id string, now int64,
	by store.Actor) (store.CanceledCallback, error) {
	return call4(ctx, s, "Cancel", s.Store.Cancel, project, id, now, by)
}

func (s *calledStore) CancelRef(ctx context.Context, project, ref, topic string, limit int, now int64,
	by store.Actor) ([]store.CanceledCallback, error) {
	return call0(ctx, s, "Cancel", func(ctx context.Context) ([]store.CanceledCallback, error) {
		return s.Store.CancelRef(ctx, project, ref, topic, limit, now, by)
	})
}

func (s *calledStore) Retry(ctx context.Context, project, id string, r store.Retry,
	by store.Actor) (store.Callback, error) {
	return call4(ctx, s, "Retry", s.Store.Retry, project, id, r, by)
}

func (s *calledStore) Reschedule(ctx context.Context, project, id string, due, now int64,
	by store.Actor) (store.Callback, error) {
	return call0(ctx, s, "Reschedule", func(ctx context.Context) (store.Callback, error) {
		return s.Store.Reschedule(ctx, project, id, due, now, by)
	})
}

func (s *calledStore) PlanEvent(ctx context.Context, p store.EventPlan) (store.EventPlan, bool, error) {
	known := false
	plan, err := call0(ctx, s, "PlanEvent", func(ctx context.Context) (plan store.EventPlan, err error) {
		plan, known, err = s.Store.PlanEvent(ctx, p)
		return plan, err
	})
	return plan, known, err
}

func (s *calledStore) RemoveEndpointEvents(ctx context.Context, ids []string) error {
	return tell1(ctx, s, "RemoveEndpointEvents", s.Store.RemoveEndpointEvents, slices.Clone(ids))
}

func (s *calledStore) Overdue(ctx context.Context, after store.Cursor, dueBefore, claimedBefore int64,
	limit int) ([]store.OpenRow, error) {
	return call4(ctx, s, "Overdue", s.Store.Overdue, after, dueBefore, claimedBefore, limit)
}

func (s *calledStore) Open(ctx context.Context, after store.Cursor, limit int) ([]store.OpenRow, error) {
	return call2(ctx, s, "Open", s.Store.Open, after, limit)
}

func (s *calledStore) OpenUntil(ctx context.Context, after store.Cursor, until int64,
	limit int) ([]store.OpenRow, error) {
	return call3(ctx, s, "OpenUntil", s.Store.OpenUntil, after, until, limit)
}

func (s *calledStore) Claimed(ctx context.Context, after store.Cursor, now int64,
	limit int) ([]store.OpenRow, error) {
	return call3(ctx, s, "Claimed", s.Store.Claimed, after, now, limit)
}

func (s *calledStore) ByID(ctx context.Context, ids []string) ([]store.OpenRow, error) {
	return call1(ctx, s, "ByID", s.Store.ByID, ids)
}

func (s *calledStore) Expire(ctx context.Context, now int64, limit int) ([]store.OpenRow, error) {
	return call2(ctx, s, "Expire", s.Store.Expire, now, limit)
}

func (s *calledStore) DropClaims(ctx context.Context, now int64) (int, error) {
	return call1(ctx, s, "DropClaims", s.Store.DropClaims, now)
}

func (s *calledStore) IndexMeta(ctx context.Context, want store.IndexMeta) (store.IndexMeta, error) {
	return call1(ctx, s, "IndexMeta", s.Store.IndexMeta, want)
}

func (s *calledStore) NextGeneration(ctx context.Context, from, now int64, by *store.Actor) (int64, error) {
	return call3(ctx, s, "NextGeneration", s.Store.NextGeneration, from, now, by)
}

func (s *calledStore) MarkBuilt(ctx context.Context, generation, now int64) error {
	return tell2(ctx, s, "MarkBuilt", s.Store.MarkBuilt, generation, now)
}

func (s *calledStore) TryLease(ctx context.Context, name, holder string, now int64,
	ttl time.Duration) (bool, error) {
	return call4(ctx, s, "TryLease", s.Store.TryLease, name, holder, now, ttl)
}

func (s *calledStore) SweepCursor(ctx context.Context) (store.Cursor, error) {
	return call0(ctx, s, "SweepCursor", s.Store.SweepCursor)
}

func (s *calledStore) SetSweepCursor(ctx context.Context, c store.Cursor) error {
	return tell1(ctx, s, "SetSweepCursor", s.Store.SetSweepCursor, c)
}

func (s *calledStore) Fold(ctx context.Context, now int64) error {
	return tell1(ctx, s, "Fold", s.Store.Fold, now)
}

func (s *calledStore) Purge(ctx context.Context, r store.Retention, limit int) (store.Purged, error) {
	return call2(ctx, s, "Purge", s.Store.Purge, r, limit)
}

func (s *calledStore) AdvanceMarks(ctx context.Context, now int64, full bool) error {
	return tell2(ctx, s, "AdvanceMarks", s.Store.AdvanceMarks, now, full)
}

func (s *calledStore) Overstays(ctx context.Context, r store.Retention) (map[string]int64, error) {
	return call1(ctx, s, "Overstays", s.Store.Overstays, r)
}

func (s *calledStore) PurgeActivity(ctx context.Context, now int64, limit int) (int, error) {
	return call2(ctx, s, "PurgeActivity", s.Store.PurgeActivity, now, limit)
}

func (s *calledStore) PurgeSessions(ctx context.Context, now int64, limit int) (int, error) {
	return call2(ctx, s, "PurgeSessions", s.Store.PurgeSessions, now, limit)
}

func (s *calledStore) PurgeDispatchers(ctx context.Context, now int64, limit int) (int, error) {
	return call2(ctx, s, "PurgeDispatchers", s.Store.PurgeDispatchers, now, limit)
}

func (s *calledStore) AddActivity(ctx context.Context, rows []store.Activity) error {
	return tell1(ctx, s, "AddActivity", s.Store.AddActivity, slices.Clone(rows))
}

func (s *calledStore) ReportDispatcher(ctx context.Context, d store.Dispatcher) error {
	return tell1(ctx, s, "ReportDispatcher", s.Store.ReportDispatcher, d)
}

func (s *calledStore) WithdrawDispatcher(ctx context.Context, name string, now int64) error {
	return tell2(ctx, s, "WithdrawDispatcher", s.Store.WithdrawDispatcher, name, now)
}

func (s *calledStore) Ping(ctx context.Context) error {
	_, err := s.call(ctx, "Ping", func(ctx context.Context) (any, error) { return nil, s.Store.Ping(ctx) })
	return err
}

func (s *calledStore) OwnedSecrets(ctx context.Context, project, owner string,
	now int64) ([]store.Secret, error) {
	return call3(ctx, s, "OwnedSecrets", s.Store.OwnedSecrets, project, owner, now)
}

func (s *calledStore) AddSecret(ctx context.Context, secret store.Secret, retireAt int64, onlyIfNone bool,
	by store.Actor) error {
	_, err := s.call(ctx, "AddSecret", func(ctx context.Context) (any, error) {
		return nil, s.Store.AddSecret(ctx, secret, retireAt, onlyIfNone, by)
	})
	return err
}

func (s *calledStore) KeyByHash(ctx context.Context, hash []byte) (store.Key, error) {
	return call1(ctx, s, "KeyByHash", s.Store.KeyByHash, hash)
}

func (s *calledStore) Project(ctx context.Context, id string) (store.Project, error) {
	return call1(ctx, s, "Project", s.Store.Project, id)
}

func (s *calledStore) AllPresets(ctx context.Context, project string) ([]store.Preset, error) {
	return call1(ctx, s, "AllPresets", s.Store.AllPresets, project)
}

func (s *calledStore) CancelDeleted(ctx context.Context, now int64, limit int) ([]store.OpenRow, error) {
	return call2(ctx, s, "CancelDeleted", s.Store.CancelDeleted, now, limit)
}

func (s *calledStore) EndpointsChanged(ctx context.Context, since int64,
	limit int) ([]store.Endpoint, error) {
	return call2(ctx, s, "EndpointsChanged", s.Store.EndpointsChanged, since, limit)
}

func (s *calledStore) ProjectsChanged(ctx context.Context, since int64,
	limit int) ([]store.Project, error) {
	return call2(ctx, s, "ProjectsChanged", s.Store.ProjectsChanged, since, limit)
}

func (s *calledStore) Lanes(ctx context.Context, since int64, limit int) ([]store.Lane, error) {
	return call2(ctx, s, "Lanes", s.Store.Lanes, since, limit)
}

// A calledIndex is the index as an engine calls it.
type calledIndex struct {
	dispatch.Schedule
	caller
}

func (s *calledIndex) Generation(ctx context.Context, shard int) (int64, error) {
	return call1(ctx, s, "Generation", s.Schedule.Generation, shard)
}

func (s *calledIndex) Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error) {
	return call1(ctx, s, "Ensure", s.Schedule.Ensure, slices.Clone(items))
}

func (s *calledIndex) Claim(ctx context.Context, shard int,
	r schedule.ClaimRequest) (schedule.Claimed, error) {
	return call2(ctx, s, "Claim", s.Schedule.Claim, shard, r)
}

func (s *calledIndex) Settle(ctx context.Context, list []schedule.Settlement) ([]schedule.Settled, error) {
	return call1(ctx, s, "Settle", s.Schedule.Settle, slices.Clone(list))
}

func (s *calledIndex) Extend(ctx context.Context, list []schedule.Extension) ([]bool, error) {
	return call1(ctx, s, "Extend", s.Schedule.Extend, slices.Clone(list))
}

func (s *calledIndex) Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return call1(ctx, s, "CancelItems", s.Schedule.Cancel, slices.Clone(refs))
}

func (s *calledIndex) Move(ctx context.Context, list []schedule.Movement) ([]schedule.Moved, error) {
	return call1(ctx, s, "Move", s.Schedule.Move, slices.Clone(list))
}

func (s *calledIndex) Acquire(ctx context.Context,
	list []schedule.LockRequest) ([]schedule.LockReply, error) {
	return call1(ctx, s, "Acquire", s.Schedule.Acquire, slices.Clone(list))
}

func (s *calledIndex) Release(ctx context.Context, list []schedule.Unlock) ([]schedule.Waiter, error) {
	return call1(ctx, s, "Release", s.Schedule.Release, slices.Clone(list))
}

func (s *calledIndex) Reset(ctx context.Context, shard int, generation int64) error {
	return tell2(ctx, s, "Reset", s.Schedule.Reset, shard, generation)
}

func (s *calledIndex) Adopt(ctx context.Context, list []schedule.Adoption) error {
	return tell1(ctx, s, "Adopt", s.Schedule.Adopt, slices.Clone(list))
}

func (s *calledIndex) Open(ctx context.Context, shard int) error {
	return tell1(ctx, s, "OpenShard", s.Schedule.Open, shard)
}

func (s *calledIndex) SetLanes(ctx context.Context, list []schedule.LaneSetting) error {
	return tell1(ctx, s, "SetLanes", s.Schedule.SetLanes, slices.Clone(list))
}

func (s *calledIndex) Audit(ctx context.Context, shard int, cursor string) (schedule.AuditPage, error) {
	return call2(ctx, s, "Audit", s.Schedule.Audit, shard, cursor)
}

func (s *calledIndex) Scan(ctx context.Context, shard int, cursor string,
	limit int) (schedule.ScanPage, error) {
	return call3(ctx, s, "Scan", s.Schedule.Scan, shard, cursor, limit)
}

func (s *calledIndex) Stats(ctx context.Context, shard int) (schedule.Stats, error) {
	return call1(ctx, s, "Stats", s.Schedule.Stats, shard)
}

func (s *calledIndex) Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return call1(ctx, s, "Lookup", s.Schedule.Lookup, refs)
}

func (s *calledIndex) LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error) {
	return call1(ctx, s, "LaneStates", s.Schedule.LaneStates, lanes)
}

func (s *calledIndex) Watermark(ctx context.Context, shard int) (schedule.Watermark, error) {
	return call1(ctx, s, "Watermark", s.Schedule.Watermark, shard)
}

func (s *calledIndex) MoveWatermark(ctx context.Context, shard int,
	a schedule.Advance) (schedule.Watermark, error) {
	return call2(ctx, s, "MoveWatermark", s.Schedule.MoveWatermark, shard, a)
}

func (s *calledIndex) Loaded(ctx context.Context, shard int, token string,
	until int64) (schedule.Watermark, error) {
	return call3(ctx, s, "Loaded", s.Schedule.Loaded, shard, token, until)
}
