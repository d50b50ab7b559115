package index

import (
	"context"
	"fmt"
	"time"
)

// A clockReader is an index that tells its clock even while it is lost or closed.
type clockReader interface {
	// Clock returns the index's clock in Unix milliseconds.
	Clock(ctx context.Context) (int64, error)
}

// learnTime asks the index what time it is if no reply has told yet. Until then the clock is this machine's,
// which may be wrong by any amount: nothing that other processes rely on may be counted by it.
func (ix *Index) learnTime(ctx context.Context) error {
	reader, ok := ix.o.Schedule.(clockReader)
	if !ok || ix.clock.Sample.Load() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	sent := time.Now()
	now, err := reader.Clock(ctx)
	if err != nil {
		return fmt.Errorf("read the index's clock: %w", err)
	}
	ix.clock.Observe(now, sent)
	return nil
}

// clockJumped counts a jump of the index's clock, and warns of it, once a minute at most.
func (ix *Index) clockJumped(by time.Duration) {
	ix.metrics.clockJumps.Inc()
	now, last := time.Now(), ix.jumpWarned.Load()
	if last != nil && now.Sub(*last) < WarnEvery || !ix.jumpWarned.CompareAndSwap(last, &now) {
		return
	}
	way := "forward"
	if by < 0 {
		way = "back"
	}
	ix.log.Warn("the index's clock was put "+way+
		"; attempts in flight keep their time, due times stay as they were: "+
		"let NTP keep the time of the machines that the index runs on", "by", by.Round(time.Millisecond))
}
