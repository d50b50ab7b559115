package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// Run serves until ctx ends or a part fails, and then drains: readiness and claiming end at once, the API
// closes after shutdown_delay, and attempts in flight end within drain_timeout. Run returns when all parts
// have ended.
func (srv *App) Run(ctx context.Context) error {
	// The parts do not end with ctx, but in the order of the drain. failed ends when the first part fails.
	life := context.WithoutCancel(ctx)
	failed, fail := context.WithCancelCause(life)
	defer fail(nil)
	start := func(name string, run func(context.Context) error) (end func()) {
		part, stop := context.WithCancel(life)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := run(part); err != nil {
				fail(fmt.Errorf("%s: %w", name, err))
			}
		}()
		return func() { stop(); <-ended }
	}
	endLock := start("index lock", srv.lock.run)
	endWeb := start("web server", srv.Web.Run)
	endEngine := start("engine", srv.Engine.Run)
	endRelay := start("relay", srv.relay.Run)
	endCollector := start("collector", tuneCollector)
	endWatchdog := func() {}
	if srv.watchdog.HasSinks() {
		endWatchdog = start("watchdog", srv.watchdog.Run)
	}
	// New listens and has found SQL and the keys in order, so that the first request can be accepted.
	srv.manager.notify("READY=1", "STATUS=serving")

	select {
	case <-ctx.Done():
		srv.manager.notify(drainNotice(srv.Settings)...)
		srv.Log.Info("shutting down", "shutdown_delay", srv.Settings.ShutdownDelay, "drain_timeout",
			srv.Settings.DrainTimeout)
		// Keep the API open for a while, so that load balancers notice that readiness ended.
		srv.drain()
		var relay sync.WaitGroup
		relay.Go(endRelay) // another process takes the sources over at once
		console.Pause(failed, srv.Settings.ShutdownDelay)
		relay.Wait()
	case <-failed.Done():
		srv.manager.notify(drainNotice(srv.Settings)...)
		srv.drain()
		endRelay()
	}
	if err := srv.Web.ClosePublic(); err != nil {
		srv.Log.Warn("could not close the API", "error", err)
	}
	endWatchdog()
	endEngine()
	srv.flushTraces()
	endWeb()
	endCollector()
	endLock()
	if err := context.Cause(failed); err != nil {
		return err
	}
	srv.Log.Info("dispatcher has ended")
	return nil
}

// drain ends readiness and claiming.
func (srv *App) drain() {
	srv.drainEnd = time.Now().Add(srv.Settings.ShutdownDelay + srv.Settings.DrainTimeout)
	srv.Web.BeginDrain()
	srv.Engine.BeginDrain()
}
