package schedule_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

func TestWakerSleepsExactlyUntilTheNextEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := schedule.NewWaker()
		for _, c := range []struct {
			next  int64
			want  time.Duration
			cause schedule.Cause
		}{
			{0, time.Second, schedule.ByPoll},
			{1250, 250 * time.Millisecond, schedule.ByTimer},
			{1000, 0, schedule.ByTimer},
			{1, 0, schedule.ByTimer},
			{1000 + 3600_000, time.Second, schedule.ByPoll},
			{math.MaxInt64, time.Second, schedule.ByPoll},
			{math.MinInt64 + 2000, 0, schedule.ByTimer},
		} {
			start := time.Now()
			cause := w.Wait(t.Context(), 1000, c.next, time.Second)
			if slept := time.Since(start); slept != c.want || cause != c.cause {
				t.Errorf("next %d: slept %v by %v, want %v by %v", c.next, slept, cause, c.want, c.cause)
			}
		}
	})
}

func TestWakerHints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := schedule.NewWaker()
		w.Hint()
		w.Hint() // Several hints before a wait count as one.
		start := time.Now()
		cause := w.Wait(t.Context(), 0, 0, time.Second)
		if cause != schedule.ByHint || time.Since(start) != 0 {
			t.Errorf("a hint before the wait: %v after %v", cause, time.Since(start))
		}
		if cause := w.Wait(t.Context(), 0, 0, time.Second); cause != schedule.ByPoll {
			t.Errorf("the second of two hints ended a wait: %v", cause)
		}
		time.AfterFunc(100*time.Millisecond, w.Hint)
		start = time.Now()
		cause = w.Wait(t.Context(), 0, 0, time.Second)
		if cause != schedule.ByHint || time.Since(start) != 100*time.Millisecond {
			t.Errorf("a hint during the wait: %v after %v", cause, time.Since(start))
		}
	})
}

func TestWakerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := schedule.NewWaker()
	if cause := w.Wait(ctx, 0, 0, time.Hour); cause != schedule.ByEnd {
		t.Errorf("got %v, want end", cause)
	}
	if cause := w.Wait(ctx, 10, 10, time.Hour); cause != schedule.ByEnd {
		t.Errorf("with an event that is due: got %v, want end", cause)
	}
}
