package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

const (
	bareID       = "01JD6QZ0000000000000000001"
	olderID      = "01JD6QZ0000000000000000000"
	bareEndpoint = "01JD6QZ0000000000000000007"
	bareKey      = "01JD6QZ0000000000000000009"
	bareEntry    = "01JD6QZ000000000000000000A"
	bareRedrive  = "01JD6QZ000000000000000000R"
	bareSchedule = "01JD6QZ000000000000000000S"
	bareAlert    = "01JD6QZ000000000000000000H"
	oneID        = "cb_" + bareID
	oneEndpoint  = "ep_" + bareEndpoint
)

// A world is the data of a stub.
type world struct {
	Callback    store.Callback
	Attempts    []store.Attempt
	Payload     store.Payload
	Page        store.Page
	Replayed    bool
	Event       accept.EventReceipt
	Explanation control.Explanation
	Delivery    *control.Report
	Poll        control.PollView
	Outcomes    []store.TerminalEvent
	Endpoint    store.Endpoint
	Created     bool
	Lanes       []control.LaneView
	Presets     control.Presets
	Schedule    store.Schedule
	Runs        []store.ScheduleRun
	Alert       alert.View
	Firings     []store.AlertFiring
	Redrive     store.Redrive
	Keys        []store.Key
	Revealed    secret.RevealedSecret
	Reencrypted control.Reencryption
	Rebuilt     index.RebuildReport
	Lane        store.Lane
	Link        control.NewViewLink
	Project     store.Project
	Counts      store.Counts
	Books       store.Reconciliation
	Audit       []store.AuditEntry
	AuditCheck  control.AuditCheck
	Drift       index.Drift
	Stop        store.Stop
	Reports     []store.ReconcileReport
	Report      store.ReconcileReport
	Items       []store.ReconcileItem
	Compared    store.ItemComparison
	Expected    store.ExpectedDay
	Relay       store.RelaySource
}

// ended returns the callback with another state and reason.
func (w *world) ended(as store.State, why store.Reason) store.Callback {
	cb := w.Callback
	cb.State, cb.Reason, cb.FinishedAt = as, why, nowMS
	return cb
}

// change applies a part of testdata/worlds.json. A member replaces the field with its name. With a trailing +
// it changes the field.
func (w *world) change(t testing.TB, text []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	for name, value := range members {
		name, part := strings.CutSuffix(name, "+")
		field := reflect.ValueOf(w).Elem().FieldByName(name)
		if !part {
			field.SetZero()
		}
		d := json.NewDecoder(bytes.NewReader(value))
		d.DisallowUnknownFields()
		if err := d.Decode(field.Addr().Interface()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// worldText is testdata/worlds.json with its times ("now-5s"), durations ("15s") and names in parentheses
// replaced by numbers.
var worldText = sync.OnceValue(func() map[string]json.RawMessage {
	text, err := os.ReadFile("testdata/worlds.json")
	if err != nil {
		panic(err)
	}
	span := func(text string) time.Duration {
		d, err := time.ParseDuration(text)
		if err != nil {
			panic(err)
		}
		return d
	}
	written := regexp.MustCompile(`"now([-+]\w+)"`).ReplaceAllStringFunc(string(text), func(s string) string {
		return fmt.Sprint(nowMS + span(s[4:len(s)-1]).Milliseconds())
	})
	written = regexp.MustCompile(`"\d+(s|ms|m|h)"`).ReplaceAllStringFunc(written, func(s string) string {
		return fmt.Sprint(int64(span(s[1 : len(s)-1])))
	})
	number := func(v any) string { return fmt.Sprintf("%d", v) }
	written = strings.NewReplacer(
		`"now"`, number(nowMS), `"forever"`, number(store.Forever), `"(open)"`, number(schedule.BreakerOpen),
		`"(answering)"`, number(schedule.Answering), `"(timing out)"`, number(schedule.TimingOut),
	).Replace(written)
	var worlds map[string]json.RawMessage
	if err := json.Unmarshal([]byte(written), &worlds); err != nil {
		panic(err)
	}
	return worlds
})

// newWorld returns a stub with one object of each kind, in the state with that name.
func newWorld(t testing.TB, name string) *engine {
	t.Helper()
	if name == "full" {
		return fullEngine()
	}
	e := newEngine(newFullWorld(t))
	text, written := worldText()[name]
	other := worlds[name]
	switch {
	case written:
		e.has.change(t, text)
	case other != nil:
		other(e)
	default:
		t.Fatalf("unknown world %q", name)
	}
	return e
}

func newFullWorld(t testing.TB) world {
	t.Helper()
	w := world{Presets: somePresets(), Payload: store.Payload{Body: []byte(`{ "a":1 }<script>`)},
		Link: control.NewViewLink{Token: "t0ken", ViewLink: control.ViewLink{ExpiresAt: nowMS}}}
	w.change(t, worldText()["full"])
	return w
}

// fullWorld is read once: most tests use it, and none changes it.
var fullWorld = sync.OnceValue(func() world { return newFullWorld(panics{}) })

// fullEngine returns a stub with one object of each kind.
func fullEngine() *engine { return newEngine(fullWorld()) }

// worlds are the worlds that return errors, and those with data of damaged rows or data that must keep its
// bytes.
var worlds = map[string]func(e *engine){
	"on fire":       func(e *engine) { e.err = errors.New("disk on fire") },
	"given up":      func(e *engine) { e.err = context.DeadlineExceeded },
	"exists":        func(e *engine) { e.err = store.ErrExists },
	"terminal":      func(e *engine) { e.err = fmt.Errorf("redrive: %w", store.ErrTerminal) },
	"not awaited":   func(e *engine) { e.err = store.ErrNotAwaiting },
	"own":           func(e *engine) { e.err = store.ErrSecondPerson },
	"awaiting":      func(e *engine) { e.err = store.ErrAwaitingApproval },
	"other request": func(e *engine) { e.err = store.ErrIdempotencyMismatch },
	"without index": func(e *engine) { e.statsErr = store.ErrUnavailable },
	"refuses": func(e *engine) {
		e.err = &store.InvalidError{Fields: []store.FieldError{
			{Field: "policy.tiers", Message: "m"}, {Field: "name", Message: "m"}, {Field: "", Message: "m"},
		}}
	},
	"pages": func(e *engine) {
		formula, done := e.has.Callback, e.has.Callback
		formula.Ref, formula.Topic, formula.LockKey, formula.Lane = `=cmd()`, "+1", "-1", "@x\n\""
		done.State, done.DueAt, done.Policy.RepeatLast = store.Succeeded, nowMS, true
		e.has.Page = store.Page{
			Callbacks: []store.Callback{formula, done}, Next: &store.Cursor{DueAt: 7, ID: bareID},
		}
	},
	"damaged poll 1": damaged(""), "damaged poll 2": damaged("{"), "damaged poll 3": damaged(`["until"]`),
	"damaged poll 4": damaged(`null`), "damaged poll 5": damaged(`{"until":{}`),
	"template 2": template(` { "payload" : { "a" : [ 1.0 , "\u0041" ] } } `),
	"template 7": template(``), "template 8": template(`{"headers":{"Authorization":"Basic x"}`),
}

// damaged makes a poll whose stored rule is that text.
func damaged(rule store.JSONText) func(e *engine) {
	return func(e *engine) {
		e.has.Poll.Rule, e.has.Poll.Detail.Context, e.has.Poll.Detail.Data = rule, `{"a`, "\xff"
	}
}

// template makes a schedule with that template.
func template(text store.JSONText) func(e *engine) {
	return func(e *engine) { e.has.Schedule.Template = text }
}

// somePresets returns the built-in presets, and some presets of the project of each kind.
func somePresets() control.Presets {
	own := accept.DefaultPolicy()
	own.Name, own.Tiers = "own", []time.Duration{time.Second, time.Minute}
	own.RepeatLast, own.Deadline = true, 4*time.Minute
	return control.Presets{
		Policies: accept.PolicyPresets(), Rules: rule.Presets(), Profiles: accept.ProfilePresets(),
		OwnPolicies: []store.Policy{own},
		OwnRules:    []store.Success{{Name: "own", Rule: `{"status":[200]}`}},
		OwnProfiles: []accept.Profile{
			{Name: "bare", About: "chooses nothing"},
			{
				Name: "own", Policy: store.PolicyChoice{
					Given: &store.Policy{Tiers: own.Tiers, Timeout: time.Second}},
				Success: store.Success{Name: "own"}, Signer: `{"type":"sorted-kv","alg":"md5"}`,
				Timeout: 5 * time.Second,
			},
		},
	}
}

// rows replaces the store. It is not the stub of the engine, because both have a method Redrive: the store's
// reads a redrive, the engine's creates one.
type rows struct{ calledStore }

type calledStore struct {
	query.Store
	*recorder
}

// Project knows the projects default and b.
func (r rows) Project(_ context.Context, id string) (store.Project, error) {
	err := r.note("Project", "-", id)
	if err == nil && id != store.DefaultProject && id != "b" {
		err = store.ErrNotFound
	}
	return newProject(id), err
}

func newProject(id string) store.Project {
	return store.Project{ID: id, CreatedAt: nowMS, UpdatedAt: nowMS}
}

// Compare takes r.takes, or until its request ends.
func (r rows) Compare(
	ctx context.Context, project string, from, to int64, refs []string, most int,
) (store.Comparison, error) {
	select {
	case <-ctx.Done():
		return store.Comparison{}, ctx.Err()
	case <-time.After(r.takes):
	}
	return store.Comparison{Matched: 2, Missing: []string{"o-3"}, Extra: []string{"o-8", "o-9"}, More: true},
		r.note("Compare", project, from, to, refs, most)
}
