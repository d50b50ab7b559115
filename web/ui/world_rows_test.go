package ui

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// calledEngine and calledStore have the generated methods of world_made_test.go, which call the world. The
// world's own methods shadow them. The embedded interfaces let the test compile before a new method has a
// stub.
type (
	AnyEngine    = Engine
	AnyStore     = Store
	calledEngine struct {
		AnyEngine
		recorder *world
	}
	calledStore struct {
		AnyStore
		recorder *world
	}
)

// TestStubsAreMade checks that world_made_test.go has all methods of Engine and Store. -update generates it.
func TestStubsAreMade(t *testing.T) {
	transcript.Stubs(t, "world_made_test.go", "ui", reflect.TypeFor[Engine](), reflect.TypeFor[Store]())
}

// ask0 records a call of a generated stub without a result. It omits the project from the arguments, except
// for PauseProject. A call with an actor is a change.
func ask0(ctx context.Context, w *world, method string, args ...any) error {
	if len(args) > 0 && method != "PauseProject" {
		if _, ofProject := args[0].(string); ofProject {
			args = args[1:]
		}
	}
	if by, ok := actorOf(args); ok {
		return w.recordChange(ctx, method, by, args[:len(args)-1]...)
	}
	return w.call(ctx, method, args...)
}

func actorOf(args []any) (by store.Actor, ok bool) {
	if len(args) > 0 {
		by, ok = args[len(args)-1].(store.Actor)
	}
	return by, ok
}

// answers are the results of methods that do not simply return data of the world: a value, or a function of
// the world and the arguments.
var answers = map[string]any{
	"Cancel":     store.CanceledCallback{Result: store.CancelDone},
	"Reschedule": store.Callback{DueAt: testNow + 1000}, "TestEndpoint": store.Callback{ID: testID(8)},
	"CreateSchedule": store.Schedule{ID: testID(3)}, "RunSchedule": store.Callback{ID: testID(4)},
	"TestAlert": store.Callback{ID: testID(8)}, "ExpectItems": store.ExpectedDay{},
	"RemoveExpected": store.ExpectedDay{}, "ClearExpected": store.ExpectedDay{},
	"CreateViewLink": control.NewViewLink{
		Token: "t0ken", ViewLink: control.ViewLink{ExpiresAt: testNow + 3_600_000},
	},
	"DeleteEndpoint": func(w *world, _ []any) (by store.Redrive) {
		if len(w.has.Redrives) > 0 {
			by = w.has.Redrives[0]
		}
		return by
	},
	"Report": func(w *world, args []any) *control.Report {
		r := &control.Report{At: testNow, FirstDue: testNow, Attempts: w.has.Attempts}
		for _, c := range w.has.Callbacks {
			if c.ID == args[1] {
				r.Callback = c
			}
		}
		return r
	},
	"Attempts": func(w *world, args []any) []store.Attempt {
		all, before := slices.Clone(w.has.Attempts), args[2].(int)
		slices.Reverse(all)
		return rowsWhere(all, args[3].(int), func(a store.Attempt) bool {
			return before == 0 || a.Number < before
		})
	},
	// Like the store, Counts counts the largest lanes.
	"Counts": func(w *world, _ []any) store.Counts {
		counts := w.has.Counts
		for _, v := range w.has.Lanes {
			counts.Lanes = append(counts.Lanes, store.LaneCount{Lane: v.Key, Open: v.Open})
		}
		slices.SortStableFunc(counts.Lanes, func(a, b store.LaneCount) int {
			return cmp.Compare(b.Open, a.Open)
		})
		counts.Lanes = counts.Lanes[:min(len(counts.Lanes), 100)]
		return counts
	},
	"Endpoints": func(w *world, args []any) []store.Endpoint {
		f := args[1].(store.EndpointFilter)
		is := func(ep store.Endpoint) bool {
			return (f.After == "" || ep.ID < f.After) && (!f.Failing || ep.FailingSince > 0) &&
				!(f.NoSinks && ep.IsSink())
		}
		return rowsWhere(w.has.Endpoints, f.Limit, is)
	},
	"FindEndpoints": func(w *world, args []any) map[string]store.Endpoint {
		found := make(map[string]store.Endpoint)
		for _, ep := range w.has.Endpoints {
			if name := store.EndpointPrefix + ep.ID; slices.Contains(args[1].([]string), name) {
				found[name] = ep
			}
		}
		return found
	},
	"Lanes": func(w *world, args []any) []control.LaneView {
		f := args[1].(store.LaneFilter)
		return rowsWhere(w.has.Lanes, f.Limit, func(v control.LaneView) bool {
			return (len(f.Keys) == 0 || slices.Contains(f.Keys, v.Key)) && v.Key > f.After &&
				strings.Contains(v.Key, f.Search) && (!f.Paused || v.PausedUntil > testNow)
		})
	},
	"Activity": func(w *world, args []any) []store.Activity {
		span, from, to := args[2].(store.Span), args[3].(int64), args[4].(int64)
		return rowsWhere(w.has.Activity, len(w.has.Activity), func(a store.Activity) bool {
			return a.Span == span && a.At >= from && a.At < to
		})
	},
	"Schedules": func(w *world, args []any) []store.Schedule {
		f := args[1].(store.ScheduleFilter)
		return rowsWhere(w.has.Schedules, f.Limit, func(s store.Schedule) bool {
			return (f.After == "" || s.ID < f.After) && strings.Contains(s.Name, f.Search) &&
				(f.Enabled == nil || s.Enabled == *f.Enabled) &&
				(f.LateBefore == 0 || s.NextAt < f.LateBefore || s.LastError != "")
		})
	},
	"Alerts": func(w *world, args []any) []alert.View {
		f := args[1].(store.AlertFilter)
		return rowsWhere(w.has.Alerts, f.Limit, func(v alert.View) bool {
			return strings.Contains(v.Name, f.Search)
		})
	},
	"Redrives": func(w *world, args []any) []store.Redrive {
		after := args[1].(string)
		is := func(r store.Redrive) bool { return after == "" || r.ID < after }
		return rowsWhere(w.has.Redrives, args[2].(int), is)
	},
	"Reconcile": func(w *world, _ []any) []store.Reconciliation {
		return slices.Clone(w.has.Reconciliations)
	},
	"ReconcileReports": func(w *world, args []any) []store.ReconcileReport {
		before := args[1].(string)
		return rowsWhere(w.has.DayReports, args[2].(int), func(r store.ReconcileReport) bool {
			return before == "" || r.Day < before
		})
	},
	"ReconcileItems": func(w *world, args []any) []store.ReconcileItem {
		kind, after := args[2].(store.ItemKind), args[3].(int64)
		return rowsWhere(w.has.DayItems, args[4].(int), func(i store.ReconcileItem) bool {
			return i.Number > after && (kind == "" || i.Kind == kind)
		})
	},
	"ExplainAll": func(w *world, args []any) (all []control.Explanation) {
		for _, c := range args[1].([]store.Callback) {
			i := slices.IndexFunc(w.has.Callbacks, func(own store.Callback) bool { return own.ID == c.ID })
			x := w.has.Explanation
			if i < len(w.has.Explanations) {
				x = w.has.Explanations[i]
			}
			all = append(all, x)
		}
		return all
	},
	"OfRef": func(w *world, args []any) store.RefPage {
		page := store.RefPage{Counts: make(map[store.State]int64), Polls: make(map[store.Reason]int64)}
		for _, c := range w.has.Callbacks {
			if c.Ref != args[1] {
				continue
			}
			page.Callbacks = append(page.Callbacks, c)
			if c.Kind == store.Poll && c.State == store.Succeeded {
				page.Polls[c.Reason]++
			} else {
				page.Counts[c.StateAt(args[2].(int64))]++
			}
		}
		slices.SortStableFunc(page.Callbacks, func(a, b store.Callback) int {
			rank := func(c *store.Callback) int {
				o := orderRow{callbackRow: &callbackRow{Callback: *c}}
				return o.rank()
			}
			return rank(&a) - rank(&b)
		})
		page.Callbacks = page.Callbacks[:min(len(page.Callbacks), args[3].(int))]
		return page
	},
	"HeldLanes": func(w *world, _ []any) (keys []string) {
		for _, v := range w.has.Lanes {
			if v.Open > 0 && v.Why(testNow) != "" {
				keys = append(keys, v.Key)
			}
		}
		return keys
	},
	"AuditOf": func(w *world, args []any) []store.AuditEntry {
		objects := args[1].([]string)
		return rowsWhere(w.has.Entries, args[3].(int), func(e store.AuditEntry) bool {
			return slices.Contains(objects, e.Object)
		})
	},
	"Audit": func(w *world, args []any) store.AuditPage {
		f := args[1].(store.AuditFilter)
		is := func(e store.AuditEntry) bool { return f.Object == "" || e.Object == f.Object }
		return store.AuditPage{Entries: rowsWhere(w.has.Entries, f.Limit, is), Next: w.has.NextAudit}
	},
}

// ask1 records a call of a generated stub and returns its result: from answers, or the data of the result's
// type, or the row with the id in a list of that type.
func ask1[T any](ctx context.Context, w *world, method string, args ...any) (answer T, _ error) {
	if err := ask0(ctx, w, method, args...); err != nil {
		return answer, err
	}
	switch given := answers[method].(type) {
	case T:
		return given, nil
	case func(*world, []any) T:
		return given(w, args), nil
	}
	if answer, ok := of[T](w); ok {
		return answer, nil
	}
	if _, changes := actorOf(args); changes {
		return answer, nil
	}
	if rows, ok := of[[]T](w); ok {
		return rowWhere(rows, nil, func(row T) bool {
			return reflect.ValueOf(row).FieldByName("ID").String() == args[1]
		})
	}
	panic("the world has no result for " + method)
}

// of returns the first field of the data with the type.
func of[T any](w *world) (field T, ok bool) {
	has := reflect.ValueOf(&w.has).Elem()
	for i := range has.NumField() {
		if has.Field(i).Type() == reflect.TypeFor[T]() {
			return has.Field(i).Interface().(T), true
		}
	}
	return field, false
}

func (w *world) List(ctx context.Context, _ string, f store.Filter) (p store.Page, _ error) {
	if f.Ref == "" && f.LockKey == "" {
		p.Next = w.has.ScanEnd
	}
	w.mu.Lock()
	all := w.has.Callbacks
	w.mu.Unlock()
	p.Callbacks = rowsWhere(all, f.Limit+1, func(c store.Callback) bool {
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

func (w *world) Attempt(ctx context.Context, _, _ string, number int) (store.Attempt, error) {
	is := func(a store.Attempt) bool { return a.Number == number }
	return rowWhere(w.has.Attempts, w.call(ctx, "Attempt"), is)
}

func (w *world) Endpoint(ctx context.Context, _, id string) (store.Endpoint, error) {
	return rowWhere(w.has.Endpoints, w.call(ctx, "Endpoint"),
		func(ep store.Endpoint) bool { return ep.ID == id && ep.DeletedAt == 0 })
}

func (w *world) EndpointByExternalID(ctx context.Context, _, name string) (store.Endpoint, error) {
	is := func(ep store.Endpoint) bool { return ep.ExternalID == name }
	return rowWhere(w.has.Endpoints, w.call(ctx, "EndpointByExternalID"), is)
}

// RelaySource returns a source with the refused rows of the world.
func (w *world) RelaySource(ctx context.Context, _, name string) (store.RelaySource, error) {
	s, err := rowWhere(w.has.Sources, w.call(ctx, "RelaySource"),
		func(s store.RelaySource) bool { return s.Name == name })
	s.Report.Refusals = w.has.Refusals
	return s, err
}

func (w *world) CreateEndpoint(
	ctx context.Context, _ string, ch control.EndpointChange, by store.Actor,
) (control.EndpointReceipt, error) {
	made := control.EndpointReceipt{Endpoint: store.Endpoint{ID: testID(9)}, Created: true,
		Secret: w.has.Secret}
	return made, refused(ch.Invalid, w.recordChange(ctx, "CreateEndpoint", by, ch))
}

func (w *world) PatchEndpoint(
	ctx context.Context, _, id string, ch control.EndpointChange, by store.Actor,
) (store.Endpoint, error) {
	return store.Endpoint{}, refused(ch.Invalid, w.recordChange(ctx, "PatchEndpoint", by, id, ch))
}

func (w *world) CreateAlert(
	ctx context.Context, _ string, ch alert.Change, by store.Actor,
) (alert.View, error) {
	made := alert.View{Alert: store.Alert{ID: testID(3)}}
	return made, refused(ch.Invalid, w.recordChange(ctx, "CreateAlert", by, ch))
}

func (w *world) PatchAlert(
	ctx context.Context, _, id string, ch alert.Change, by store.Actor,
) (alert.View, error) {
	return alert.View{}, refused(ch.Invalid, w.recordChange(ctx, "PatchAlert", by, id, ch))
}

// refused returns the engine's error for a change that the page has marked as invalid.
func refused(invalid []store.FieldError, err error) error {
	if err == nil && len(invalid) > 0 {
		return &store.InvalidError{Fields: invalid}
	}
	return err
}

func (w *world) RotateSecret(
	ctx context.Context, _ string, q control.SecretQuery, r control.Rotation, by store.Actor,
) (secret.RevealedSecret, int64, error) {
	return w.has.Secret, testNow + 3_600_000, w.recordChange(ctx, "RotateSecret", by, q, r)
}

func (w *world) CountRedrive(ctx context.Context, _ string, q control.RedriveRequest) (int64, bool, error) {
	err := w.call(ctx, "CountRedrive")
	if q.Action == "set_url" && q.URL == "" { // like the engine
		err = invalid("url", "url has no host")
	}
	return w.has.Matched.N, w.has.Matched.More, err
}

// engineFace and storeFace separate the method Redrive, which the engine and the store have with different
// parameters.
type (
	engineFace struct{ *world }
	storeFace  struct{ *world }
)

func (e engineFace) Redrive(
	ctx context.Context, _ string, q control.RedriveRequest, by store.Actor,
) (store.Redrive, error) {
	return store.Redrive{ID: testID(3)}, e.recordChange(ctx, "StartRedrive", by, q)
}

func (s storeFace) Redrive(ctx context.Context, _, id string) (store.Redrive, error) {
	return rowWhere(s.has.Redrives, s.call(ctx, "Redrive"), func(r store.Redrive) bool { return r.ID == id })
}

func (w *world) CreateKey(
	ctx context.Context, _ string, q control.KeyRequest, by store.Actor,
) (store.Key, string, error) {
	made := store.Key{ID: testID(1), Name: q.Name, Scopes: []store.Scope{store.ScopeRead}, Hint: "wxyz",
		EndpointID: q.EndpointID}
	if len(q.Invalid) > 0 {
		return made, "", refused(q.Invalid, nil)
	}
	return made, "dk_the-secret-wxyz", w.recordChange(ctx, "CreateKey", by, q)
}
