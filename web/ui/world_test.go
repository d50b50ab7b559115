package ui

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A world is the store and the engine of the tests. It returns its data, records each change as a line, and
// fails as the test demands.
type world struct {
	Options
	calledEngine
	calledStore
	has data

	mu       sync.Mutex
	sessions map[string]store.Session
	// keys are the valid keys by their text.
	keys map[string]store.Key
	// fails are the errors of methods by name. With errLate the method waits for the end of its context. With
	// errPanics it panics.
	fails map[string]error
	// lastCall has the arguments of each method's last call, calls the number of calls, changes the lines of
	// all changes.
	lastCall map[string]string
	calls    map[string]int
	changes  []string
}

// data are the rows of a test. Lists are in the order of the store.
type data struct {
	Callbacks   []store.Callback
	Attempts    []store.Attempt
	Payload     store.Payload
	Counts      store.Counts
	Explanation control.Explanation
	// Explanations are those of an order's callbacks; Explanation is for the others.
	Explanations    []control.Explanation
	Reports         []store.PollReport
	Poll            control.PollView
	Dead            []store.DeadGroup
	Died            store.Died
	Endpoints       []store.Endpoint
	LaneHours       []store.Activity
	Lanes           []control.LaneView
	Activity        []store.Activity
	Due             store.DueNow
	Hours           []store.DueHour
	Schedules       []store.Schedule
	Runs            []store.ScheduleRun
	Alerts          []alert.View
	Firings         []store.AlertFiring
	Redrives        []store.Redrive
	Sources         []store.RelaySource
	Refusals        []store.RelayRefusal
	Reconciliations []store.Reconciliation
	Comparison      store.Comparison
	ItemComparison  store.ItemComparison
	DayReports      []store.ReconcileReport
	DayItems        []store.ReconcileItem
	Daily           store.Reconciling
	DailyDue        int64
	DailyError      string
	Entries         []store.AuditEntry
	Migrations      []Migration
	Keys            []store.Key
	Processes       []store.Dispatcher
	Index           index.Status
	Stats           schedule.Stats
	Drift           index.Drift
	Rebuilt         index.RebuildReport
	Health          dispatch.Health
	Stop            store.Stop
	// Projects are the projects besides the default one. Paused is the pause of all projects.
	Projects []string
	Paused   struct {
		Until int64
		Why   string
	}
	// ScanEnd is where the scan of an empty list has ended. NextAudit is the same for the audit log.
	ScanEnd   *store.Cursor
	NextAudit string
	// Matched is the number of callbacks that a redrive's filter matches.
	Matched struct {
		N    int64
		More bool
	}
	Secret secret.RevealedSecret
	// Defaults are those of all projects.
	Defaults store.Defaults
	Presets  control.Presets
}

// newWorld returns a healthy world with the data of script lines.
func newWorld(lines ...string) *world {
	w := &world{
		Options:  Options{AdminKey: testKey, Version: "test"},
		has:      data{Health: dispatch.Health{Ready: true}, Presets: somePresets()},
		sessions: make(map[string]store.Session), keys: testKeys(), fails: make(map[string]error),
		lastCall: make(map[string]string), calls: make(map[string]int),
	}
	w.calledEngine.recorder, w.calledStore.recorder = w, w
	for _, line := range lines {
		if err := w.set(line); err != nil {
			panic(err)
		}
	}
	return w
}

var (
	// errBroken is an unexpected error with a credential in its text. checkPage looks for the credential.
	errBroken = errors.New("connect to postgres://bob:hunter2@db: it is on fire")
	errLate   = errors.New("late")
	errPanics = errors.New("out of cheese")
)

// somePresets returns the built-in presets, and a policy of the project.
func somePresets() control.Presets {
	return control.Presets{Policies: accept.PolicyPresets(), Rules: rule.Presets(),
		Profiles:    accept.ProfilePresets(),
		OwnPolicies: []store.Policy{{Name: "ours", Tiers: []time.Duration{time.Minute, time.Hour}}}}
}

// call records a call and returns the error of w.fails.
func (w *world) call(ctx context.Context, method string, args ...any) error {
	w.mu.Lock()
	var text strings.Builder
	for _, arg := range args {
		text.WriteString(" " + brief(reflect.ValueOf(arg)))
	}
	w.lastCall[method] = text.String()
	w.calls[method]++
	err := w.fails[method]
	w.mu.Unlock()
	switch {
	case errors.Is(err, errLate):
		<-ctx.Done()
		return fmt.Errorf("call ended: %w", ctx.Err())
	case errors.Is(err, errPanics):
		panic(err)
	}
	return err
}

// update applies a script line while streams render lists of callbacks.
func (w *world) update(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.set(line); err != nil {
		panic(err)
	}
}

// count returns the number of calls of a method.
func (w *world) count(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[method]
}

// recordChange is call for a change. It records the change with its actor.
func (w *world) recordChange(ctx context.Context, method string, by store.Actor, args ...any) error {
	err := w.call(ctx, method, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	line := method + w.lastCall[method]
	if by.Name != "admin key" {
		line += " by " + by.Name
	}
	if by.Address != "192.0.2.1" { // the default address of httptest
		line += " from " + by.Address
	}
	if by.Reason != "" {
		line += " because " + by.Reason
	}
	w.changes = append(w.changes, line)
	return err
}

// brief formats a value without its zero fields.
func brief(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if s, ok := v.Interface().(fmt.Stringer); ok && !v.IsNil() {
			return s.String()
		}
		if v.IsNil() {
			return "–"
		}
		return brief(v.Elem())
	case reflect.Struct:
		if s, ok := v.Interface().(fmt.Stringer); ok {
			return s.String()
		}
		var parts []string
		for _, f := range reflect.VisibleFields(v.Type()) {
			if value := v.FieldByIndex(f.Index); !f.Anonymous && !value.IsZero() {
				parts = append(parts, f.Name+":"+brief(value))
			}
		}
		return "{" + strings.Join(parts, " ") + "}"
	case reflect.Slice:
		if b, ok := v.Interface().([]byte); ok {
			return string(b)
		}
		var parts []string
		for i := range v.Len() {
			parts = append(parts, brief(v.Index(i)))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.String:
		if v.Len() == 0 {
			return `""`
		}
	}
	return fmt.Sprint(v.Interface())
}

// rowWhere returns the first matching row, or store.ErrNotFound. It returns err if that is not nil.
func rowWhere[T any](all []T, err error, is func(T) bool) (row T, _ error) {
	if i := slices.IndexFunc(all, is); i >= 0 && err == nil {
		return all[i], nil
	}
	if err == nil {
		err = store.ErrNotFound
	}
	return row, err
}

// rowsWhere returns the first matching rows, at most limit.
func rowsWhere[T any](all []T, limit int, is func(T) bool) []T {
	all = slices.DeleteFunc(slices.Clone(all), func(row T) bool { return !is(row) })
	return all[:min(len(all), limit)]
}

func (w *world) Now() int64                             { return testNow }
func (w *world) Health(context.Context) dispatch.Health { return w.has.Health }

func (w *world) Session(ctx context.Context, token string, now int64) (store.Session, error) {
	err := w.call(ctx, "Session")
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.sessions[token]
	if err == nil && (!ok || s.ExpiresAt <= now) {
		err = store.ErrNotFound
	}
	return s, err
}

func (w *world) CreateSession(_ context.Context, s store.Session) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, exists := w.sessions[s.Token]; exists {
		return store.ErrExists
	}
	w.sessions[s.Token] = s
	return nil
}

func (w *world) UpdateSession(_ context.Context, s store.Session) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls["UpdateSession"]++
	if _, exists := w.sessions[s.Token]; !exists {
		return store.ErrNotFound
	}
	w.sessions[s.Token] = s
	return nil
}

func (w *world) DeleteSession(_ context.Context, token string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sessions, token)
	return nil
}

func (w *world) AuthenticateHash(_ context.Context, hash [sha256.Size]byte) (store.Key, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for text, key := range w.keys {
		if sha256.Sum256([]byte(text)) == hash {
			return key, nil
		}
	}
	return store.Key{}, store.ErrNotFound
}

func (w *world) revoke(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.keys, text)
}

func (w *world) Project(ctx context.Context, id string) (store.Project, error) {
	all, err := w.Projects(ctx, "", 0)
	if failed := w.call(ctx, "Project"); failed != nil {
		err = failed
	}
	return rowWhere(all, err, func(p store.Project) bool { return p.ID == id })
}

func (w *world) ReconcileReport(ctx context.Context, _, day string) (store.ReconcileReport, error) {
	return rowWhere(w.has.DayReports, w.call(ctx, "ReconcileReport"),
		func(r store.ReconcileReport) bool { return r.Day == day })
}

func (w *world) Projects(ctx context.Context, _ string, _ int) (all []store.Project, _ error) {
	for _, id := range append([]string{store.DefaultProject}, w.has.Projects...) {
		all = append(all, store.Project{ID: id, PausedUntil: w.has.Paused.Until,
			PauseReason: w.has.Paused.Why, Defaults: w.has.Defaults, Reconcile: w.has.Daily,
			ReconcileNext: w.has.DailyDue, ReconcileError: w.has.DailyError})
	}
	return all, w.call(ctx, "Projects")
}
