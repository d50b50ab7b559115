package index

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A clockReader is an index whose clock can be read even while it is lost or closed.
type clockReader interface {
	// Clock returns the index's clock in Unix milliseconds.
	Clock(ctx context.Context) (int64, error)
}

// ErrNoClock: the index's clock has not been read yet, and the index does not answer.
var ErrNoClock = errors.New("the index's clock cannot be read")

// readClock reads the index's clock if no reply carried it yet. Until then the clock is this machine's, which
// may be wrong by any amount, so no lease in SQL may be taken by it. Its error is ErrNoClock.
func (ix *Index) readClock(ctx context.Context) error {
	reader, ok := ix.o.Schedule.(clockReader)
	if !ok || ix.clock.Sample.Load() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	sent := time.Now()
	now, err := reader.Clock(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoClock, err)
	}
	ix.clock.Observe(now, sent)
	return nil
}

// clockJumped counts a jump of the index's clock, and logs it at most once a minute.
func (ix *Index) clockJumped(by time.Duration) {
	ix.metrics.clockJumps.Inc()
	now, last := time.Now(), ix.jumpLoggedAt.Load()
	if last != nil && now.Sub(*last) < WarnEvery || !ix.jumpLoggedAt.CompareAndSwap(last, &now) {
		return
	}
	ix.log.Warn("the index's clock jumped; due times and attempts in flight keep their times; run a time "+
		"service on the index's machines",
		"by", by.Round(time.Millisecond))
}
