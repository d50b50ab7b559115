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

// Lanes: how many attempts go to one at once, what holds one up, and that it holds up no other.

// A receiver that asks for a pause gets no more than what is on the wire already: what was stamped ahead goes
// back, uncharged, and is sent when the pause is over. So does what waits for a worker.
func TestWhatWaitsBehindAHoldGoesBack(t *testing.T) {
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

// awaitSucceeded waits until so many callbacks have succeeded.
func (b *fixture) awaitSucceeded(n int64, within time.Duration) {
	b.Helper()
	for deadline := time.Now().Add(within); b.counts()[store.Succeeded] < n; time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d have succeeded within %s", b.counts()[store.Succeeded], n, within)
		}
	}
}

// A callback that is retried at another address leaves the lane of the old one: what hangs there does not
// hold it up, also where a catch-up that read the row before puts it back into the old lane in the middle of
// it.
func TestRetryElsewhereLeavesTheLane(t *testing.T) {
	for _, putBack := range []bool{false, true} {
		t.Run(fmt.Sprintf("put back %t", putBack), func(t *testing.T) {
			with(answering("hang", hangs)).run(t, func(b *fixture) {
				waiting := make(map[string]bool)
				for range 10 {
					waiting[b.accept(to("https://hang.example/")).ID] = true
				}
				time.Sleep(1500 * time.Millisecond)
				// All were due at the same moment: any of them may be under way.
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
					b.stands(b.get(id), "succeeded")
					return
				}
				t.Fatal("all ten were sent: the lane was meant to be full")
			})
		})
	}
}

// A hundred destinations that hang leave one that answers alone.
func TestIsolation(t *testing.T) {
	with(answering("hang", hangs), workers(64)).run(t, func(b *fixture) {
		b.accept(accept.Submission{}) // The healthy one is known to answer.
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
