package app

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/watchdog"
)

// A stubEngine is an engine in a state.
type stubEngine struct {
	sql             error
	degraded, noKey bool
}

func (e stubEngine) PingSQL(context.Context) error { return e.sql }
func (e stubEngine) Degraded() bool                { return e.degraded }
func (e stubEngine) KeysFail() bool                { return e.noKey }

// TestWatchdogChecks checks which subjects fail in each state. When SQL is down, the index cannot be rebuilt
// either, and only SQL is reported.
func TestWatchdogChecks(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for _, c := range []struct {
		engine  stubEngine
		want    []watchdog.Subject
		unknown []watchdog.Subject
	}{
		{stubEngine{}, nil, nil},
		{stubEngine{sql: down}, []watchdog.Subject{watchdog.SQL}, nil},
		{stubEngine{degraded: true}, []watchdog.Subject{watchdog.Index}, nil},
		{stubEngine{sql: down, degraded: true}, []watchdog.Subject{watchdog.SQL},
			[]watchdog.Subject{watchdog.Index}},
		{stubEngine{noKey: true}, []watchdog.Subject{watchdog.Keys}, nil},
		{stubEngine{sql: down, degraded: true, noKey: true},
			[]watchdog.Subject{watchdog.SQL, watchdog.Keys}, []watchdog.Subject{watchdog.Index}},
	} {
		var failing, unknown []watchdog.Subject
		for _, check := range watchdogChecks(c.engine) {
			switch fails, known := check.Fails(t.Context()); {
			case !known:
				unknown = append(unknown, check.Subject)
			case fails:
				failing = append(failing, check.Subject)
			}
		}
		if !slices.Equal(failing, c.want) || !slices.Equal(unknown, c.unknown) {
			t.Errorf("%+v: %s fail, want %s; %s unknown, want %s",
				c.engine, failing, c.want, unknown, c.unknown)
		}
	}
}
