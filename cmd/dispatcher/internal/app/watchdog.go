package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/watchdog"
	"github.com/seed-ff5a32d8/dispatcher/web/ui"
)

// newWatchdog returns the watchdog of this process. It sends with the client of the
// engine, and so through the guard.
func (srv *App) newWatchdog(sender *outbound.Client) (*watchdog.Watchdog, error) {
	sinks, wrong := srv.Settings.Sinks()
	if len(wrong) > 0 {
		return nil, fmt.Errorf("alert_sink: %s %s", wrong[0].Field, wrong[0].Message)
	}
	host, err := os.Hostname()
	if err != nil {
		srv.Log.Warn("the host has no name for alerts", "error", err)
	}
	var link string
	if base := strings.TrimSuffix(srv.Settings.PublicURL, "/"); base != "" {
		link = base + ui.Root + "/system"
	}
	return watchdog.New(watchdog.Options{
		Sinks: sinks, Sender: sender, Link: link,
		Process: fmt.Sprintf("%s, pid %d", cmp.Or(host, "unknown host"), os.Getpid()),
		Checks:  watchdogChecks(srv.Engine),
		Share: func(ctx context.Context) (s watchdog.Share, err error) {
			s.Place, s.Of, err = srv.Engine.ProcessPlace(ctx)
			return s, err
		},
		Logger: srv.Log, Metrics: process.Metrics{Registerer: srv.Metrics},
	})
}

// watched is the part of the engine that a watchdog checks.
type watched interface {
	PingSQL(ctx context.Context) error
	Degraded() bool
	KeysFail() bool
}

func watchdogChecks(e watched) []watchdog.Check {
	return []watchdog.Check{
		{Subject: watchdog.SQL, Fails: func(ctx context.Context) (fails, known bool) {
			return e.PingSQL(ctx) != nil, true
		}},
		{Subject: watchdog.Index, Fails: func(ctx context.Context) (fails, known bool) {
			// Without SQL the index cannot be rebuilt. That is no second alert, and not the end of the first.
			fails = e.Degraded()
			return fails, !fails || e.PingSQL(ctx) == nil
		}},
		{Subject: watchdog.Keys, Fails: func(context.Context) (fails, known bool) {
			return e.KeysFail(), true
		}},
	}
}
