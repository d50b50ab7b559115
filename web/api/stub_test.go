package api_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// A recorder records the calls of the engine and the store. Like the real ones, it rejects calls whose
// arguments have invalid fields.
type recorder struct {
	// err is the error of all calls that have no error of their own.
	err, statsErr, keyErr, authErr error
	// cursorKey replaces the cursor key. Nil: the default. takes is the duration of a comparison, unless its
	// request ends earlier.
	cursorKey []byte
	takes     time.Duration

	has world

	mu    sync.Mutex
	calls []string
	// projects are the projects of the calls. actors are the actors of calls that change something.
	projects []string
	actors   []store.Actor
	// keys are the keys that were looked up.
	keys []string
}

// An engine replaces the engine and the store. The methods of calledEngine return the field of the world that
// has their type. The methods below return other values.
type engine struct{ calledEngine }

type calledEngine struct {
	api.Engine
	*recorder
}

func newEngine(has world) *engine { return &engine{calledEngine{recorder: &recorder{has: has}}} }

// only has the one valid id of each of these calls.
var only = map[string]string{
	"Get": bareID, "Poll": bareID, "Schedule": bareSchedule, "ScheduleRuns": bareSchedule,
	"Redrive": bareRedrive, "Endpoint": bareEndpoint, "EndpointByExternalID": "merchant-7",
	"Policy": "exp(1s,2,1h,3)", "Alert": bareAlert, "AlertFirings": bareAlert,
	"RelaySource": "pay", "ActOnRelay": "pay", "CancelRelayAct": "pay",
	"ForgetRelay": "pay",
}

// completions change the results of calls: they use the world and the arguments.
var completions = map[string]any{
	"AcceptPoll": func(r *store.Accepted, w world, _ []any) {
		r.Callback, r.Replayed = w.Callback, w.Replayed
	},
	"Cancel": func(x *store.CanceledCallback, w world, _ []any) {
		x.Result, x.Callback = store.CancelDone, w.ended(store.Canceled, store.Requested)
	},
	"CancelRef": func(all *[]store.CanceledCallback, w world, _ []any) {
		*all = []store.CanceledCallback{
			{Result: store.CancelTooLate, Callback: w.Callback},
			{Result: store.CancelDone, Callback: w.Callback},
		}
	},
	"ResolvePoll": func(x *store.ResolvedPoll, w world, _ []any) {
		x.Result, x.Callback = store.ResolveDone, w.ended(store.Succeeded, store.ResolvedOutside)
		x.Callback.Kind = store.Poll
	},
	"CreateEndpoint": func(r *control.EndpointReceipt, w world, _ []any) {
		r.Endpoint, r.Created, r.Secret.Secret = w.Endpoint, true, "whsec_once"
	},
	"Endpoints": func(all *[]store.Endpoint, w world, asked []any) {
		other, f := w.Endpoint, asked[1].(store.EndpointFilter)
		other.ID = bareID
		id := func(ep store.Endpoint) string { return ep.ID }
		*all = pageAfter([]store.Endpoint{w.Endpoint, other}, f.After, f.Limit, id)
	},
	"PauseEndpoint": func(ep *store.Endpoint, _ world, asked []any) {
		ep.PausedUntil, ep.PauseReason = asked[2].(int64), asked[3].(store.Actor).Reason
	},
	"Lanes": func(all *[]control.LaneView, _ world, asked []any) {
		f := asked[1].(store.LaneFilter)
		*all = pageAfter(*all, f.After, f.Limit, func(v control.LaneView) string { return v.Key })
	},
	"SetLane": func(l *store.Lane, _ world, asked []any) { l.Key = asked[1].(string) },
	"PauseLane": func(l *store.Lane, _ world, asked []any) {
		l.Key, l.PausedUntil, l.PauseReason = asked[1].(string), asked[2].(int64),
			asked[3].(store.Actor).Reason
		l.OwnPause = l.PausedUntil
	},
	"Policy": func(p *store.Policy, _ world, asked []any) {
		*p = accept.DefaultPolicy()
		p.Name, p.Tiers = asked[1].(string), []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}
	},
	"Keys": func(keys *[]store.Key, _ world, asked []any) {
		*keys = slices.Clone(*keys)
		for i := range *keys {
			(*keys)[i].Project = asked[0].(string)
		}
	},
	"CreateProject": func(p *store.Project, _ world, asked []any) {
		p.ID = asked[0].(control.ProjectChange).ID
	},
	"PatchProject": func(p *store.Project, _ world, asked []any) { p.ID = asked[0].(string) },
	"PauseProject": func(p *store.Project, _ world, asked []any) {
		p.ID, p.PausedUntil, p.PauseReason = asked[0].(string), asked[1].(int64),
			asked[2].(store.Actor).Reason
	},
	"StopSending": func(s *store.Stop, _ world, asked []any) {
		s.Until, s.Reason = asked[0].(int64), asked[1].(store.Actor).Reason
		if s.Until == 0 {
			*s = store.Stop{}
		}
	},
	"Projects": func(all *[]store.Project, _ world, asked []any) {
		two := []store.Project{newProject("b"), newProject(store.DefaultProject)}
		*all = pageAfter(two, asked[0].(string), asked[1].(int), func(p store.Project) string { return p.ID })
	},
	"Redrives": func(all *[]store.Redrive, w world, asked []any) {
		redrives := three(w.Redrive, func(one *store.Redrive) *string { return &one.ID })
		id := func(one store.Redrive) string { return one.ID }
		*all = pageAfter(redrives, asked[1].(string), asked[2].(int), id)
	},
	"SetRedrive": func(r *store.Redrive, _ world, asked []any) {
		r.State = asked[2].(store.RedriveState)
		if r.State == store.RedriveApproved {
			r.State, r.Approver, r.ApprovedAt = store.RedriveRunning, "admin key", r.UpdatedAt
		}
	},
	"DeleteEndpoint": func(r *store.Redrive, _ world, asked []any) {
		if asked[2].(store.Actor).Reason == "" { // the engine deletes it at once
			*r = store.Redrive{}
		}
	},
	"Schedules": func(all *[]store.Schedule, w world, asked []any) {
		schedules := three(w.Schedule, func(one *store.Schedule) *string { return &one.ID })
		f := asked[1].(store.ScheduleFilter)
		*all = pageAfter(schedules, f.After, f.Limit, func(one store.Schedule) string { return one.ID })
	},
	"Alerts": func(all *[]alert.View, w world, asked []any) {
		alerts := three(w.Alert, func(one *alert.View) *string { return &one.ID })
		f := asked[1].(store.AlertFilter)
		*all = pageAfter(alerts, f.After, f.Limit, func(one alert.View) string { return one.ID })
	},
	"Audit": func(page *store.AuditPage, w world, asked []any) {
		f := asked[1].(store.AuditFilter)
		page.Entries = pageAfter(w.Audit, f.After, f.Limit, func(a store.AuditEntry) string { return a.ID })
	},
	// Reconcile returns two groups, or one without grouping.
	"Reconcile": func(all *[]store.Reconciliation, w world, asked []any) {
		*all = []store.Reconciliation{w.Books}
		if asked[1].(store.ReconcileQuery).GroupBy != "" {
			*all = append(*all, w.Books)
			(*all)[1].Group, (*all)[1].Open = bareEndpoint, 3 // not balanced
		}
	},
	"ReconcileReports": func(all *[]store.ReconcileReport, _ world, asked []any) {
		before := asked[1].(string)
		*all = slices.DeleteFunc(slices.Clone(*all), func(r store.ReconcileReport) bool {
			return before != "" && r.Day >= before
		})
		*all = (*all)[:min(len(*all), asked[2].(int))]
	},
	"ReconcileItems": func(all *[]store.ReconcileItem, _ world, asked []any) {
		after := asked[3].(int64)
		*all = slices.DeleteFunc(slices.Clone(*all), func(i store.ReconcileItem) bool {
			return i.Number <= after
		})
		*all = (*all)[:min(len(*all), asked[4].(int))]
	},
	"RelaySources": func(all *[]store.RelaySource, w world, _ []any) {
		idle := w.Relay
		idle.Name, idle.Holder, idle.Act = "ship", "", store.RelayAct{}
		*all = []store.RelaySource{w.Relay, idle}
	},
	"ActOnRelay": func(s *store.RelaySource, _ world, asked []any) {
		s.Act = asked[2].(store.RelayAct)
		s.Act.ID, s.Act.State = "01JD6QZ000000000000000000X", store.RelayActWaiting
		s.Act.RequestedAt, s.Act.RequestedBy = nowMS, asked[3].(store.Actor).Name
	},
	"CancelRelayAct": func(s *store.RelaySource, _ world, _ []any) { s.Act.State = store.RelayActCanceled },
	"Rebuild":        func(r *index.RebuildReport, _ world, asked []any) { r.DryRun = asked[0].(bool) },
}

// ask0 records a call that returns only an error.
func ask0(_ context.Context, r *recorder, call string, args ...any) error {
	if len(args) > 0 && !slices.Contains([]string{"Reencrypt", "Project", "Projects"}, call) {
		if project, ok := args[0].(string); ok {
			return r.note(call, project, args[1:]...)
		}
	}
	return r.note(call, "-", args...)
}

// ask1 records a call, and returns the field of the world that has type T.
func ask1[T any](ctx context.Context, r *recorder, call string, args ...any) (answer T, err error) {
	if err := ask0(ctx, r, call, args...); err != nil {
		return answer, err
	}
	if id, one := only[call]; one && args[1] != id {
		return answer, store.ErrNotFound
	}
	has, known := reflect.ValueOf(r.has), false
	for i := 0; i < has.NumField() && !known; i++ {
		answer, known = has.Field(i).Interface().(T)
	}
	if echo, ok := completions[call].(func(*T, world, []any)); ok {
		echo(&answer, r.has, args)
	} else if !known {
		panic("no field of the world has the result type of " + call)
	}
	return answer, nil
}

// note records a call and returns its error. A project of "-" means that the call has none.
func (r *recorder) note(call, project string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, arg := range args {
		if actor, ok := arg.(store.Actor); ok {
			r.actors = append(r.actors, actor)
		}
		if wrong := invalidOf(arg); len(wrong) > 0 {
			return &store.InvalidError{Fields: wrong}
		}
	}
	if project != "-" {
		r.projects, args = append(r.projects, project), append([]any{project}, args...)
	}
	r.calls = append(r.calls, callText(call, args...))
	return r.err
}

// invalidOf returns the invalid fields of an argument, including those of a poll's result callback.
func invalidOf(arg any) []store.FieldError {
	v := reflect.ValueOf(arg)
	if v.Kind() != reflect.Struct {
		return nil
	}
	var wrong []store.FieldError
	if f := v.FieldByName("Invalid"); f.IsValid() {
		wrong = f.Interface().([]store.FieldError)
	}
	if p, ok := arg.(accept.PollSubmission); ok && p.OnResult != nil {
		for _, w := range p.OnResult.Invalid {
			wrong = append(wrong, store.FieldError{Field: "on_result." + w.Field, Message: w.Message})
		}
	}
	return wrong
}

// pageAfter returns the page after the element with that name.
func pageAfter[T any](all []T, after string, limit int, name func(T) string) []T {
	all = all[1+slices.IndexFunc(all, func(one T) bool { return name(one) == after }):]
	return all[:min(limit, len(all))]
}

// three returns three copies of a row, with ids that end in 3, 2 and 1.
func three[T any](one T, id func(*T) *string) []T {
	rows := []T{one, one, one}
	for i := range rows {
		*id(&rows[i]) = fmt.Sprint(bareID[:25], 3-i)
	}
	return rows
}

func (e *engine) Now() int64 { return nowMS }

func (e *engine) CursorKey(context.Context) ([]byte, error) {
	if e.cursorKey != nil {
		return e.cursorKey, e.keyErr
	}
	return bytes.Repeat([]byte("k"), 32), e.keyErr
}

// Authenticate accepts the keys dk_PROJECT_SCOPE, and dk_PROJECT_own-SCOPE of the endpoint.
func (e *engine) Authenticate(_ context.Context, text string) (store.Key, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keys = append(e.keys, text)
	if e.authErr != nil {
		return store.Key{}, e.authErr
	}
	parts := strings.Split(text, "_")
	if len(parts) != 3 {
		return store.Key{}, store.ErrNotFound
	}
	scope, own := strings.CutPrefix(parts[2], "own-")
	k := store.Key{ID: bareKey, Name: "till", Project: parts[1], Scopes: []store.Scope{store.Scope(scope)}}
	known := store.Scopes[:]
	if own {
		k.EndpointID, known = bareEndpoint, store.EndpointScopes[:]
	}
	if !slices.Contains(known, k.Scopes[0]) {
		return store.Key{}, store.ErrNotFound
	}
	return k, nil
}

func (e *engine) Accept(
	_ context.Context, project string, subs []accept.Submission,
) ([]store.Accepted, error) {
	accepted := make([]store.Accepted, len(subs))
	for i, s := range subs {
		accepted[i].Err = e.note("Accept", project, s)
		if accepted[i].Err != nil && accepted[i].Err == e.err {
			return nil, e.err
		}
		accepted[i].Callback, accepted[i].Replayed = e.has.Callback, e.has.Replayed
		cb := &accepted[i].Callback
		cb.Project, cb.URL, cb.Ref = project, s.URL, s.Ref
	}
	return accepted, nil
}

// Outcomes returns the outcomes after the cursor.
func (e *engine) Outcomes(
	_ context.Context, project string, after store.OutcomeCursor, limit int, wait time.Duration,
) ([]store.TerminalEvent, store.OutcomeCursor, error) {
	var events []store.TerminalEvent
	next := after
	for _, one := range e.has.Outcomes {
		if one.Cursor.Tx > after.Tx && len(events) < limit {
			events, next = append(events, one), one.Cursor
		}
	}
	return events, next, e.note("Outcomes", project, after, limit, wait)
}

func (e *engine) PutEndpoints(
	_ context.Context, project string, changes []control.EndpointChange, by store.Actor,
) ([]control.EndpointReceipt, error) {
	receipts := make([]control.EndpointReceipt, len(changes))
	for i, ch := range changes {
		receipts[i] = control.EndpointReceipt{Endpoint: e.has.Endpoint, Created: e.has.Created}
		receipts[i].Err = e.note("PutEndpoints", project, ch, by)
		if receipts[i].Err != nil && receipts[i].Err == e.err {
			return nil, e.err
		}
	}
	return receipts, nil
}

func (e *engine) CreateKey(
	_ context.Context, project string, r control.KeyRequest, by store.Actor,
) (store.Key, string, error) {
	k := store.Key{
		ID: bareKey, Project: project, Name: r.Name, Hint: "wxyz",
		CreatedAt: nowMS, ExpiresAt: nowMS + dayMS,
	}
	for _, s := range r.Scopes {
		k.Scopes = append(k.Scopes, store.Scope(s))
	}
	return k, "dk_shown-once-wxyz", e.note("CreateKey", project, r, by)
}

// RotateSecret does not return the project's root secret.
func (e *engine) RotateSecret(
	_ context.Context, project string, q control.SecretQuery, r control.Rotation, by store.Actor,
) (secret.RevealedSecret, int64, error) {
	s := secret.RevealedSecret{ID: bareID}
	if q != (control.SecretQuery{}) {
		s = secret.RevealedSecret{ID: bareID, Label: r.Label, Use: q.Use, Secret: "whsec_new"}
	}
	return s, nowMS + dayMS, e.note("RotateSecret", project, q, r, by)
}

// Redrive returns the settings of the request.
func (e *engine) Redrive(
	_ context.Context, project string, q control.RedriveRequest, by store.Actor,
) (store.Redrive, error) {
	r := e.has.Redrive
	r.Action, r.FilterText = store.RedriveAction(cmp.Or(q.Action, "retry")),
		cmp.Or(q.FilterText, r.FilterText)
	r.Ladder, r.URL = store.Ladder(q.Ladder), q.URL
	if q.Delay != nil {
		r.Delay = q.Delay.Milliseconds()
	}
	return r, e.note("Redrive", project, q, by)
}

func (e *engine) Stats(context.Context) (schedule.Stats, error) {
	return schedule.Stats{Delayed: 5, Ready: 2, Leased: 1}, e.statsErr
}

// TestStubIsMade checks that stub_made_test.go has every method of the engine and the store that returns at
// most one value and an error.
func TestStubIsMade(t *testing.T) {
	transcript.Stubs(t, "stub_made_test.go", "api_test", reflect.TypeFor[api.Engine](),
		reflect.TypeFor[query.Store]())
}
