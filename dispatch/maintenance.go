package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// The cron specs of maintenance functions.
const (
	foldSpec  = "@every 1s"
	purgeSpec = "@every 5s"
	// overdueSpec suffices for a metric of hours and days. missingSpec finds a key that another process uses
	// and this one lacks, so that an alert fires within a minute.
	overdueSpec = "@every 1m"
	missingSpec = "@every 20s"
	auditSpec   = "@every 1m"
	sinksSpec   = "@every 10s"
	touchSpec   = "@every 1m"
	// pingSpec finds an outage of SQL while no callback does.
	pingSpec = "@every 5s"
)

// runMaintenance runs the maintenance functions until ctx ends. A function with a lease runs in one process
// at a time, and its context ends before the lease does.
func (e *Engine) runMaintenance(ctx context.Context) {
	// Leases use the index's clock, which all processes share.
	o := schedule.CronOptions{
		Holder: e.o.Name, Logger: e.o.Logger, Now: e.clock.Now, Ended: e.tasks.Ended,
	}
	if !e.o.Embedded {
		o.Lease = e.o.Store
	}
	cron := schedule.NewCron(o)
	for _, f := range []struct {
		name, spec string
		ttl        time.Duration
		run        func(context.Context) error
	}{
		{"sweep", "@every " + e.times.Sweep.String(), 2 * e.times.Sweep, e.indexer.Sweep},
		{"fold", foldSpec, 10 * time.Second, func(ctx context.Context) error {
			return e.o.Store.Fold(ctx, e.clock.Now())
		}},
		{"chain", control.ChainSpec, 10 * time.Second, e.controller.ChainAudit},
		{"purge", purgeSpec, control.PurgeLease, e.controller.Purge},
		{"audit", auditSpec, time.Minute, e.indexer.Audit},
		{"alerts", report.AlertsSpec, 10 * time.Second, e.reporter.PublishEvents},
		{"rules", alert.EvaluateSpec, 20 * time.Second, e.alerts.EvaluateAlerts},
		{"reconcile", control.ReconcileSpec, control.ReconcileLease, e.controller.RunReconciles},
		{"failing", report.FailingSpec, time.Minute, e.reporter.AlertFailing},
	} {
		if err := cron.Add(f.name, f.spec, f.ttl, f.run); err != nil {
			e.o.Logger.Error("maintenance function cannot be scheduled", "function", f.name, "error", err)
		}
	}
	// These functions write what only this process knows or measure its settings, so they run in every
	// process without a lease.
	own := schedule.NewCron(schedule.CronOptions{Holder: e.o.Name, Logger: e.o.Logger, Now: e.clock.Now})
	for _, err := range []error{
		own.Add("keys", touchSpec, time.Minute, e.controller.TouchKeys),
		own.Add("activity", report.ActivitySpec, 30*time.Second, e.reporter.WriteActivity),
		own.Add("overdue", overdueSpec, 10*time.Second, e.controller.MeasureOverdue),
		own.Add("ping", pingSpec, 10*time.Second, e.indexer.PingSQL),
		own.Add("sinks", sinksSpec, 10*time.Second, e.reporter.ReadSinks),
		own.Add("missing", missingSpec, 10*time.Second, e.secrets.MeasureKeys),
	} {
		if err != nil {
			e.o.Logger.Error("maintenance function cannot be scheduled", "error", err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := own.Run(ctx); err != nil && ctx.Err() == nil {
			e.o.Logger.Error("maintenance of this process ended", "error", err)
		}
	})
	defer wg.Wait()
	if err := cron.Run(ctx); err != nil && ctx.Err() == nil {
		e.o.Logger.Error("maintenance ended", "error", err)
	}
}
