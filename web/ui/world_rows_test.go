package ui

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (w *world) Get(ctx context.Context, _, id string) (store.Callback, error) {
	return one(w.has.Callbacks, w.call(ctx, "Get"), func(c store.Callback) bool { return c.ID == id })
}

func (w *world) List(ctx context.Context, _ string, f store.Filter) (p store.Page, _ error) {
	if f.Ref == "" && f.LockKey == "" {
		p.Next = w.has.Left
	}
	w.mu.Lock()
	all := w.has.Callbacks
	w.mu.Unlock()
	p.Callbacks = below(all, f.Limit+1, func(c store.Callback) bool {
		return (f.After == nil || c.ID < f.After.ID) && (f.Ref == "" || c.Ref == f.Ref) &&
			(f.LockKey == "" || c.LockKey == f.LockKey) && (f.Kind == "" || c.Kind == f.Kind) &&
			(len(f.States) == 0 || slices.Contains(f.States, c.StateAt(f.Now))) &&
			!slices.ContainsFunc(slices.Collect(maps.Keys(f.Labels)),
				func(name string) bool { return c.Labels[name] != f.Labels[name] })
	})
	if len(p.Callbacks) > f.Limit {
		p.Callbacks = p.Callbacks[:f.Limit]
		p.Next = &store.Cursor{ID: p.Callbacks[f.Limit-1].ID}
	}
	return p, w.call(ctx, "List", f)
}

func (w *world) Attempts(ctx context.Context, _, _ string, before, limit int) ([]store.Attempt, error) {
	all := slices.Clone(w.has.Attempts)
	slices.Reverse(all)
	page := below(all, limit, func(a store.Attempt) bool { return before == 0 || a.Number < before })
	return page, w.call(ctx, "Attempts")
}

func (w *world) Attempt(ctx context.Context, _, _ string, number int) (store.Attempt, error) {
	is := func(a store.Attempt) bool { return a.Number == number }
	return one(w.has.Attempts, w.call(ctx, "Attempt"), is)
}

func (w *world) Payload(ctx context.Context, _, _ string) (store.Payload, error) {
	return w.has.Payload, w.call(ctx, "Payload")
}

// Counts counts the largest lanes, as the store does.
func (w *world) Counts(ctx context.Context, _ string) (store.Counts, error) {
	counts := w.has.Counts
	for _, v := range w.has.Lanes {
		counts.Lanes = append(counts.Lanes, store.LaneCount{Lane: v.Key, Open: v.Open})
	}
	slices.SortStableFunc(counts.Lanes, func(a, b store.LaneCount) int { return cmp.Compare(b.Open, a.Open) })
	counts.Lanes = counts.Lanes[:min(len(counts.Lanes), 100)]
	return counts, w.call(ctx, "Counts")
}

func (w *world) DeadGroups(ctx context.Context, _ string) ([]store.DeadGroup, error) {
	return w.has.Dead, w.call(ctx, "DeadGroups")
}

func (w *world) Explain(ctx context.Context, _, _ string) (control.Explanation, error) {
	return w.has.Why, w.call(ctx, "Explain")
}

func (w *world) Evidence(ctx context.Context, _, _ string) (string, error) {
	return "evidence of " + hostile, w.call(ctx, "Evidence")
}

func (w *world) Poll(ctx context.Context, _, _ string) (control.PollView, error) {
	return w.has.Poll, w.call(ctx, "Poll")
}

func (w *world) Retry(
	ctx context.Context, _, id string, q control.RetryRequest, by store.Actor,
) (store.Callback, error) {
	return store.Callback{}, w.did(ctx, "Retry", by, id, q)
}

func (w *world) Cancel(ctx context.Context, _, id string, by store.Actor) (store.CanceledCallback, error) {
	return store.CanceledCallback{Result: store.CancelDone}, w.did(ctx, "Cancel", by, id)
}

func (w *world) Reschedule(
	ctx context.Context, _, id string, due *int64, delay *time.Duration, by store.Actor,
) (store.Callback, error) {
	return store.Callback{DueAt: testNow + 1000}, w.did(ctx, "Reschedule", by, id, due, delay)
}

func (w *world) Mend(
	ctx context.Context, _, id string, q control.MendRequest, by store.Actor,
) (store.Callback, error) {
	return store.Callback{}, w.did(ctx, "Mend", by, id, q)
}

func (w *world) ResolvePoll(
	ctx context.Context, _, id string, q control.ResolveRequest, by store.Actor,
) (store.ResolvedPoll, error) {
	return store.ResolvedPoll{}, w.did(ctx, "ResolvePoll", by, id, q)
}

func (w *world) Endpoint(ctx context.Context, _, id string) (store.Endpoint, error) {
	return one(w.has.Endpoints, w.call(ctx, "Endpoint"),
		func(ep store.Endpoint) bool { return ep.ID == id && ep.DeletedAt == 0 })
}

func (w *world) AnyEndpoint(ctx context.Context, _, id string) (store.Endpoint, error) {
	is := func(ep store.Endpoint) bool { return ep.ID == id }
	return one(w.has.Endpoints, w.call(ctx, "AnyEndpoint"), is)
}

func (w *world) EndpointByExternalID(ctx context.Context, _, name string) (store.Endpoint, error) {
	is := func(ep store.Endpoint) bool { return ep.ExternalID == name }
	return one(w.has.Endpoints, w.call(ctx, "EndpointByExternalID"), is)
}

func (w *world) Endpoints(ctx context.Context, _ string, f store.EndpointFilter) ([]store.Endpoint, error) {
	is := func(ep store.Endpoint) bool { return f.After == "" || ep.ID < f.After }
	return below(w.has.Endpoints, f.Limit, is), w.call(ctx, "Endpoints", f)
}

func (w *world) FindEndpoints(ctx context.Context, _ string, names []string) (map[string]store.Endpoint, error) {
	found := make(map[string]store.Endpoint)
	for _, ep := range w.has.Endpoints {
		if name := store.EndpointPrefix + ep.ID; slices.Contains(names, name) {
			found[name] = ep
		}
	}
	return found, w.call(ctx, "FindEndpoints")
}

func (w *world) LaneActivity(ctx context.Context, _ string, _ []int64, _ int64) ([]store.Activity, error) {
	return w.has.LaneHours, w.call(ctx, "LaneActivity")
}

func (w *world) CreateEndpoint(
	ctx context.Context, _ string, ch control.EndpointChange, by store.Actor,
) (control.EndpointReceipt, error) {
	made := control.EndpointReceipt{Endpoint: store.Endpoint{ID: testID(9)}, Created: true, Secret: w.has.Secret}
	return made, refused(ch.Invalid, w.did(ctx, "CreateEndpoint", by, ch))
}

func (w *world) PatchEndpoint(
	ctx context.Context, _, id string, ch control.EndpointChange, by store.Actor,
) (store.Endpoint, error) {
	return store.Endpoint{}, refused(ch.Invalid, w.did(ctx, "PatchEndpoint", by, id, ch))
}

// refused is what an engine says of a change in which something was wrong before it came there.
func refused(invalid []store.FieldError, err error) error {
	if err == nil && len(invalid) > 0 {
		return &store.InvalidError{Fields: invalid}
	}
	return err
}

func (w *world) DeleteEndpoint(ctx context.Context, _, id string, by store.Actor) error {
	return w.did(ctx, "DeleteEndpoint", by, id)
}

func (w *world) PauseEndpoint(
	ctx context.Context, _, id string, until int64, by store.Actor,
) (store.Endpoint, error) {
	return store.Endpoint{}, w.did(ctx, "PauseEndpoint", by, id, until)
}

func (w *world) TestEndpoint(ctx context.Context, _, id string, by store.Actor) (store.Callback, error) {
	return store.Callback{ID: testID(8)}, w.did(ctx, "TestEndpoint", by, id)
}

func (w *world) RotateSecret(
	ctx context.Context, _ string, q control.SecretQuery, r control.Rotation, by store.Actor,
) (secret.ShownSecret, int64, error) {
	return w.has.Secret, testNow + 3_600_000, w.did(ctx, "RotateSecret", by, q, r)
}

func (w *world) RevealSecret(
	ctx context.Context, _ string, q control.SecretQuery, by store.Actor,
) (secret.ShownSecret, error) {
	return w.has.Secret, w.did(ctx, "RevealSecret", by, q)
}

func (w *world) Lanes(ctx context.Context, _ string, f store.LaneFilter) ([]control.LaneView, error) {
	return below(w.has.Lanes, f.Limit, func(v control.LaneView) bool {
		return (len(f.Keys) == 0 || slices.Contains(f.Keys, v.Key)) && v.Key > f.After &&
			strings.Contains(v.Key, f.Search) && (!f.Held || v.PausedUntil > testNow)
	}), w.call(ctx, "Lanes", f)
}

func (w *world) SetLane(
	ctx context.Context, _, key string, limit *int, rate *store.Rate, by store.Actor,
) (store.Lane, error) {
	return store.Lane{}, w.did(ctx, "SetLane", by, key, limit, rate)
}

func (w *world) PauseLane(ctx context.Context, _, key string, until int64, by store.Actor) (store.Lane, error) {
	return store.Lane{}, w.did(ctx, "PauseLane", by, key, until)
}

func (w *world) PauseProject(
	ctx context.Context, project string, until int64, by store.Actor,
) (store.Project, error) {
	return store.Project{}, w.did(ctx, "PauseProject", by, project, until)
}

func (w *world) Activity(
	ctx context.Context, _ string, _ int64, span store.Span, from, to int64,
) ([]store.Activity, error) {
	return below(w.has.Activity, len(w.has.Activity), func(a store.Activity) bool {
		return a.Span == span && a.At >= from && a.At < to
	}), w.call(ctx, "Activity")
}

func (w *world) DueNow(ctx context.Context, _ string, _ int64) (store.DueNow, error) {
	return w.has.Due, w.call(ctx, "DueNow")
}

func (w *world) DueHours(ctx context.Context, _ string, _, _ int64) ([]store.DueHour, error) {
	return w.has.Hours, w.call(ctx, "DueHours")
}

func (w *world) Schedule(ctx context.Context, _, id string) (store.Schedule, error) {
	is := func(s store.Schedule) bool { return s.ID == id }
	return one(w.has.Schedules, w.call(ctx, "Schedule"), is)
}

func (w *world) Schedules(ctx context.Context, _ string, f store.ScheduleFilter) ([]store.Schedule, error) {
	return below(w.has.Schedules, f.Limit, func(s store.Schedule) bool {
		return (f.After == "" || s.ID < f.After) && strings.Contains(s.Name, f.Search) &&
			(f.Enabled == nil || s.Enabled == *f.Enabled)
	}), w.call(ctx, "Schedules", f)
}

func (w *world) ScheduleRuns(ctx context.Context, _, _ string) ([]store.ScheduleRun, error) {
	return w.has.Runs, w.call(ctx, "ScheduleRuns")
}

func (w *world) CreateSchedule(
	ctx context.Context, _ string, ch control.ScheduleChange, by store.Actor,
) (store.Schedule, error) {
	return store.Schedule{ID: testID(3)}, w.did(ctx, "CreateSchedule", by, ch)
}

func (w *world) PatchSchedule(
	ctx context.Context, _, id string, ch control.ScheduleChange, by store.Actor,
) (store.Schedule, error) {
	return store.Schedule{}, w.did(ctx, "PatchSchedule", by, id, ch)
}

func (w *world) DeleteSchedule(ctx context.Context, _, id string, by store.Actor) error {
	return w.did(ctx, "DeleteSchedule", by, id)
}

func (w *world) RunSchedule(ctx context.Context, _, id string, by store.Actor) (store.Callback, error) {
	return store.Callback{ID: testID(4)}, w.did(ctx, "RunSchedule", by, id)
}

func (w *world) Redrives(ctx context.Context, _, after string, limit int) ([]store.Redrive, error) {
	is := func(r store.Redrive) bool { return after == "" || r.ID < after }
	return below(w.has.Redrives, limit, is), w.call(ctx, "Redrives")
}

func (w *world) CountRedrive(ctx context.Context, _ string, q control.RedriveRequest) (int64, bool, error) {
	err := w.call(ctx, "CountRedrive")
	if q.Action == "set_url" && q.URL == "" { // as the engine does
		err = invalid("url", "is not an address")
	}
	return w.has.Picked.N, w.has.Picked.More, err
}

func (w *world) SetRedrive(
	ctx context.Context, _, id string, to store.RedriveState, by store.Actor,
) (store.Redrive, error) {
	return store.Redrive{}, w.did(ctx, "SetRedrive", by, id, to)
}

// The engine and the store have a method of the same name, with different parameters.
type (
	engineFace struct{ *world }
	storeFace  struct{ *world }
)

func (e engineFace) Redrive(
	ctx context.Context, _ string, q control.RedriveRequest, by store.Actor,
) (store.Redrive, error) {
	return store.Redrive{ID: testID(3)}, e.did(ctx, "StartRedrive", by, q)
}

func (s storeFace) Redrive(ctx context.Context, _, id string) (store.Redrive, error) {
	return one(s.has.Redrives, s.call(ctx, "Redrive"), func(r store.Redrive) bool { return r.ID == id })
}

func (w *world) Books(ctx context.Context, _ string, q store.BooksQuery) ([]store.Books, error) {
	err := w.call(ctx, "Books", q)
	return slices.Clone(w.has.Books), err
}

func (w *world) Compare(
	ctx context.Context, _ string, _, _ int64, refs []string, _ int,
) (store.Comparison, error) {
	err := w.call(ctx, "Compare", refs)
	return w.has.Comparison, err
}

func (w *world) Audit(ctx context.Context, _ string, f store.AuditFilter) (store.AuditPage, error) {
	entries := below(w.has.Entries, f.Limit, func(e store.AuditEntry) bool {
		return f.Object == "" || e.Object == f.Object
	})
	return store.AuditPage{Entries: entries, Next: w.has.Older}, w.call(ctx, "Audit", f)
}

func (w *world) Migrations(ctx context.Context) ([]Migration, error) {
	return w.has.Migrations, w.call(ctx, "Migrations")
}

func (w *world) Keys(ctx context.Context, _ string) ([]store.Key, error) {
	return w.has.Keys, w.call(ctx, "Keys")
}

func (w *world) CreateKey(
	ctx context.Context, _ string, q control.KeyRequest, by store.Actor,
) (store.Key, string, error) {
	made := store.Key{ID: testID(1), Name: q.Name, Scopes: []store.Scope{store.ScopeRead}, Hint: "wxyz"}
	if len(q.Invalid) > 0 {
		return made, "", refused(q.Invalid, nil)
	}
	return made, "dk_the-secret-wxyz", w.did(ctx, "CreateKey", by, q)
}

func (w *world) RevokeKey(ctx context.Context, _, id string, by store.Actor) error {
	return w.did(ctx, "RevokeKey", by, id)
}

func (w *world) Stats(ctx context.Context) (schedule.Stats, error) {
	return w.has.Stats, w.call(ctx, "Stats")
}

func (w *world) IndexStatus(ctx context.Context) (index.Status, error) {
	return w.has.Index, w.call(ctx, "IndexStatus")
}

func (w *world) Dispatchers(ctx context.Context) ([]store.Dispatcher, error) {
	return w.has.Processes, w.call(ctx, "Dispatchers")
}

func (w *world) Verify(ctx context.Context) (index.Drift, error) {
	return w.has.Drift, w.call(ctx, "Verify")
}

func (w *world) Rebuild(ctx context.Context, dry bool, by store.Actor) (index.RebuildReport, error) {
	return w.has.Rebuilt, w.did(ctx, "Rebuild", by, dry)
}
