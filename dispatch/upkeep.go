package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// The maintenance functions: in one process at a time, each under its own lease.
const (
	foldSpec  = "@every 1s"
	purgeSpec = "@every 1m"
	auditSpec = "@every 1m"
	touchSpec = "@every 1m"
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
		{"purge", purgeSpec, time.Minute, e.purge},
		{"audit", auditSpec, time.Minute, e.audit},
		{"alerts", alertsSpec, 10 * time.Second, e.alerts},
		{"failing", failingSpec, time.Minute, e.tellFailing},
		{"purge-feed", purgeSpec, time.Minute, e.purgeFeed},
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

// SessionRows keeps the sessions of browsers.
type SessionRows interface {
	// PurgeSessions removes up to limit sessions that have ended, and returns how many.
	PurgeSessions(ctx context.Context, now int64, limit int) (int, error)
}

// purge removes what is no longer kept. What cannot be removed of one kind keeps nobody from removing the others.
func (e *Engine) purge(ctx context.Context) error {
	return errors.Join(
		e.purgeSome(ctx, "session", e.o.Store.PurgeSessions),
		e.purgeSome(ctx, "dispatcher", e.o.Store.PurgeDispatchers),
		e.purgeSome(ctx, "activity", e.o.Store.PurgeActivity),
		e.purgeCallbacks(ctx),
	)
}

// purgeBatch is how many rows are removed at once, and purgeBatches how many times of each kind in one run.
const (
	purgeBatch   = 200
	purgeBatches = 100
)

// purgeSome removes what is no longer kept of one kind, a bounded batch at a time and a bounded number of batches a run.
func (e *Engine) purgeSome(ctx context.Context, what string, purge func(ctx context.Context, now int64, limit int) (int, error)) error {
	for range purgeBatches {
		n, err := purge(ctx, e.clock.now(), purgeBatch)
		if err != nil {
			return fmt.Errorf("purge %s: %w", what, err)
		}
		e.metrics.purged.WithLabelValues(what).Add(float64(n))
		if n < purgeBatch {
			return nil
		}
	}
	return nil
}

// purgeCallbacks removes what retention no longer keeps of callbacks, a bounded batch at a time and a bounded number of batches a run.
func (e *Engine) purgeCallbacks(ctx context.Context) error {
	now := e.clock.now()
	for range purgeBatches {
		payloads, callbacks, err := e.o.Store.Purge(ctx,
			now-e.o.RetentionPayload.Milliseconds(), now-e.o.RetentionMetadata.Milliseconds(), purgeBatch)
		if err != nil {
			return fmt.Errorf("purge: %w", err)
		}
		e.metrics.purged.WithLabelValues("payload").Add(float64(payloads))
		e.metrics.purged.WithLabelValues("callback").Add(float64(callbacks))
		if payloads < purgeBatch && callbacks < purgeBatch {
			return nil
		}
	}
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
