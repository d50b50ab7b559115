package index

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// slowStartPause is the pause with which SlowStart restarts lanes. It must not be over, by the index's clock,
// when the index gets it.
const slowStartPause = 250 * time.Millisecond

// stopEvery is how often a process reads the stop of all sending, which another process may have set.
const stopEvery = time.Second

// Stopped returns whether all sending is stopped now, by what this process last read in SQL. It holds while
// SQL or the index does not answer.
func (ix *Index) Stopped() bool {
	until := ix.stoppedUntil.Load()
	return until != 0 && until > ix.clock.Now()
}

// runStop reads the stop of all sending until ctx ends. It waits neither for the index nor for other
// settings, so a shard that hangs does not delay the stop. With an embedded index no other process sets it:
// then runStop only repeats failed reads.
func (ix *Index) runStop(ctx context.Context) {
	l := process.Loop{
		Every: stopEvery, Wake: ix.stopRetry, Log: ix.log,
		Failing:   "reading the stop of all sending failed, using the last known one",
		Recovered: "the stop of all sending is read again",
	}
	if ix.o.Embedded {
		l.Every = 0
	}
	l.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		if err := ix.readStop(ctx); err != nil {
			return stopEvery, err
		}
		return 0, nil
	})
}

// StopChanged applies the stop of all sending that this process just set or ended, and waits for that. If it
// fails, it is tried again within stopEvery.
func (ix *Index) StopChanged(ctx context.Context) {
	if err := ix.readStop(context.WithoutCancel(ctx)); err != nil {
		ix.log.Warn("applying the stop of all sending failed, retrying", "error", err)
		process.Wake(ix.stopRetry)
	}
}

// readStop reads the stop of all sending from SQL. After an error the last known one stays. One call runs at
// a time, so an older state never replaces a newer one.
func (ix *Index) readStop(ctx context.Context) error {
	ix.stopLock.Lock()
	defer ix.stopLock.Unlock()
	ctx, cancel := context.WithTimeout(ctx, SQLTimeout)
	defer cancel()
	stop, err := ix.o.Store.Stop(ctx)
	if err != nil {
		return fmt.Errorf("read the stop: %w", err)
	}
	was := ix.Stopped()
	ix.stoppedUntil.Store(stop.Until)
	if was && !ix.Stopped() {
		ix.hintAll()
	}
	return nil
}

// SlowStart restarts the concurrency of the shard's lanes that have open callbacks, as after a pause: it
// pauses them for a moment. The settings keep their versions, so a newer setting prevails. Each process calls
// it when a stop of all sending has ended.
func (ix *Index) SlowStart(ctx context.Context, shard int) error {
	for after := int64(0); ; {
		lanes, err := ix.o.Store.BusyLanes(ctx, after, PageRows)
		if err != nil {
			return fmt.Errorf("read busy lanes: %w", err)
		}
		until := ix.clock.Now() + slowStartPause.Milliseconds()
		var settings []schedule.LaneSetting
		for i := range lanes {
			if ix.o.Schedule.ShardOf(lanes[i].ID) == shard {
				s := laneSetting(&lanes[i])
				s.PausedUntil = max(s.PausedUntil, until)
				settings = append(settings, s)
			}
		}
		if len(settings) > 0 {
			if err := ix.o.Schedule.SetLanes(ctx, settings); err != nil {
				ix.health.Failed("set_lanes", err)
				return fmt.Errorf("set lanes: %w", err)
			}
		}
		if len(lanes) < PageRows {
			return nil
		}
		after = lanes[len(lanes)-1].ID
	}
}
