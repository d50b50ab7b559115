package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// The maintenance functions: in one process at a time, each under its own lease.
const (
	foldSpec  = "@every 1s"
	purgeSpec = "@every 5s"
	// overstaySpec is often enough for a metric of hours and days.
	overstaySpec = "@every 1m"
	auditSpec    = "@every 1m"
	touchSpec    = "@every 1m"
)

// runUpkeep runs the maintenance functions until ctx ends.
func (e *Engine) runUpkeep(ctx context.Context) {
	// Leases are counted by the one clock that all processes know, not by their own.
	o := schedule.CronOptions{Holder: e.o.Name, Logger: e.log, Now: e.clock.now}
	if !e.o.Alone {
		o.Lease = e.o.Store
	}
	cron := schedule.NewCron(o)
	for _, f := range []struct {
		name, spec string
		ttl        time.Duration
		run        func(context.Context) error
	}{
		{"sweep", "@every " + e.times.sweep.String(), 2 * e.times.sweep, e.sweep},
		{"fold", foldSpec, 10 * time.Second, e.fold},
		{"chain", chainSpec, 10 * time.Second, e.chainAudit},
		{"purge", purgeSpec, purgeLease, e.purge},
		{"audit", auditSpec, time.Minute, e.audit},
		{"alerts", alertsSpec, 10 * time.Second, e.alerts},
		{"failing", failingSpec, time.Minute, e.tellFailing},
	} {
		if err := cron.Add(f.name, f.spec, f.ttl, f.run); err != nil {
			e.log.Error("maintenance function cannot be scheduled", "function", f.name, "error", err)
		}
	}
	// What each process alone knows it writes itself, without a lease.
	own := schedule.NewCron(schedule.CronOptions{Holder: e.o.Name, Logger: e.log, Now: e.clock.now})
	for _, err := range []error{
		own.Add("keys", touchSpec, time.Minute, e.touchKeys),
		own.Add("activity", activitySpec, 30*time.Second, e.writeActivity),
		own.Add("overstays", overstaySpec, 10*time.Second, e.noteOverstays),
	} {
		if err != nil {
			e.log.Error("maintenance function cannot be scheduled", "error", err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := own.Run(ctx); err != nil && ctx.Err() == nil {
			e.log.Error("maintenance of this process ended", "error", err)
		}
	})
	defer wg.Wait()
	if err := cron.Run(ctx); err != nil && ctx.Err() == nil {
		e.log.Error("maintenance ended", "error", err)
	}
}

// fold adds up the counters' deltas. Whoever is alone knows when there are none, and then leaves the disk in peace.
func (e *Engine) fold(ctx context.Context) error {
	if !e.wrote.Swap(false) && e.o.Alone {
		return nil
	}
	if err := e.o.Store.Fold(ctx, e.clock.now()); err != nil {
		e.wrote.Store(true)
		return err
	}
	e.folded.Store(true)
	return nil
}

// auditTime bounds one audit; the next one goes on where it ended. An index of a million takes a few.
const auditTime = 20 * time.Second

// An auditPlace is where the audit goes on: a page of a shard.
type auditPlace struct {
	shard  int
	cursor string
}

// audit checks each shard's records against each other, and mends what differs, until it has seen them all or its time is over.
func (e *Engine) audit(ctx context.Context) error {
	for started := time.Now(); time.Since(started) < auditTime; {
		at := &e.audited
		page, err := e.o.Schedule.Audit(ctx, at.shard, at.cursor)
		if err != nil {
			at.cursor = ""
			e.trouble.indexFailed("audit", err)
			return fmt.Errorf("audit shard %d: %w", at.shard, err)
		}
		if page.Repaired > 0 {
			e.metrics.repaired.Add(float64(page.Repaired))
			e.log.Warn("audit mended the index", "shard", at.shard, "repaired", page.Repaired)
		}
		if at.cursor = page.Next; at.cursor == "" {
			if at.shard = (at.shard + 1) % e.o.Schedule.Shards(); at.shard == 0 {
				return nil
			}
		}
		// Off-peak by construction: the index has its pauses between pages.
		timer := time.NewTimer(5 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return nil
}
