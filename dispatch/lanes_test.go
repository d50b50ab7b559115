package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Tests of lanes: their concurrency, what blocks one, and that it does not block the others.

// A receiver that asks for a pause gets only the requests in flight. Callbacks that are already stamped, or
// wait for a worker, are diverted without counting an attempt, and are sent after the pause.
func TestWaitingCallbacksAreDivertedDuringRetryAfter(t *testing.T) {
	const concurrency, n, good = 8, 300, 100
	for _, slots := range []int{32, 2} {
		t.Run(fmt.Sprint(slots, " workers"), func(t *testing.T) {
			var arrived, over atomic.Int64
			with(func(context.Context, hit, int) (*http.Response, error) {
				time.Sleep(5 * time.Millisecond)
				if arrived.Add(1) > good && over.Load() == 0 {
					return answer(429, "", "Retry-After", "30"), nil
				}
				return answer(200, ""), nil
			}, laneConcurrency(concurrency), workers(slots)).run(t, func(b *fixture) {
				b.backlog(n, accept.Submission{})
				time.Sleep(20 * time.Second)
				between(b, "requests, of which 100 were answered", arrived.Load(), good+1,
					int64(good+min(concurrency, slots)))
				over.Store(1)
				b.awaitSucceeded(n, 2*time.Minute)
				between(b, "requests in all", arrived.Load(), n+1, n+concurrency)
			})
		})
	}
}

// awaitSucceeded waits until n callbacks have succeeded.
func (b *fixture) awaitSucceeded(n int64, within time.Duration) {
	b.Helper()
	for deadline := time.Now().Add(within); b.counts()[store.Succeeded] < n; time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d have succeeded within %s", b.counts()[store.Succeeded], n, within)
		}
	}
}

// A callback that is retried at another URL leaves the lane of the old one, so hanging attempts there do not
// block it. This also holds if a catch-up that read the row before puts it back into the old lane meanwhile.
func TestRetryAtAnotherURLLeavesTheLane(t *testing.T) {
	for _, putBack := range []bool{false, true} {
		t.Run(fmt.Sprintf("put back %t", putBack), func(t *testing.T) {
			with(answering("hang", hangs)).run(t, func(b *fixture) {
				waiting := make(map[string]bool)
				for range 10 {
					waiting[b.accept(to("https://hang.example/")).ID] = true
				}
				time.Sleep(1500 * time.Millisecond)
				// All were due at the same moment, so any of them may be in flight.
				for _, h := range b.hits("") {
					delete(waiting, h.id)
				}
				for id := range waiting {
					if putBack {
						c := b.get(id)
						old := schedule.Item{ID: id, Lane: c.LaneID, Due: c.DueAt}
						b.times(1, func(ctx context.Context, c *call) error {
							_, err := b.index.Ensure(ctx, []schedule.Item{old})
							return errors.Join(err, c.do())
						}, "Ensure")
					}
					b.retryAt(id, "https://other.example/")
					time.Sleep(100 * time.Millisecond)
					b.checkState(b.get(id), "succeeded")
					return
				}
				t.Fatal("all ten were sent: the lane was meant to be full")
			})
		})
	}
}

// A hundred hanging destinations do not delay a healthy one.
func TestIsolation(t *testing.T) {
	with(answering("hang", hangs), workers(64)).run(t, func(b *fixture) {
		b.accept(accept.Submission{}) // the healthy destination has answered once
		time.Sleep(time.Second)
		for i := range 100 {
			b.backlog(20, to(fmt.Sprintf("https://hang-%d.example/", i)))
		}
		for range 100 {
			time.Sleep(700 * time.Millisecond)
			c := b.accept(accept.Submission{})
			done := b.await(c.ID, 5*time.Second)
			between(b, "ms that a healthy destination waited for others that hang", done.FinishedAt-c.DueAt,
				0, 60)
		}
	})
}
