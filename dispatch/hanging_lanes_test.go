package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// hangs lets every address with "hang" in it run into its time-out, and answers the others with 200.
func hangs(ctx context.Context, h hit, _ int) (*http.Response, error) {
	if !strings.Contains(h.url, "hang") {
		return answer(200, ""), nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A callback that is retried at another address leaves the lane of the old one: what hangs there does not hold it up, also
// where a catch-up that read the row before puts it back into the old lane in the middle of it.
func TestRetryElsewhereLeavesTheLane(t *testing.T) {
	for _, putBack := range []bool{false, true} {
		t.Run(fmt.Sprintf("put back %t", putBack), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { retryElsewhere(t, putBack) })
		})
	}
}

func retryElsewhere(t *testing.T, putBack bool) {
	index := new(faults)
	b := newFixture(t, hangs, faultyIndex(index))
	waiting := make(map[string]bool)
	for range 10 {
		s := tiers(time.Hour)
		s.URL = "https://hang.example/"
		waiting[b.accept(s).ID] = true
	}
	time.Sleep(1500 * time.Millisecond)
	for _, h := range b.receiver.seen() { // All were due at the same moment: any of them may be under way.
		delete(waiting, strings.TrimPrefix(h.id, store.CallbackPrefix))
	}
	if len(waiting) == 0 {
		t.Fatal("all ten were sent: the lane was meant to be full")
	}
	id := slices.Collect(maps.Keys(waiting))[0]
	if putBack {
		c := b.get(id)
		old := schedule.Item{ID: id, Lane: c.LaneID, Due: c.DueAt}
		index.times(1, func(ctx context.Context, c *call) error {
			_, err := b.index.Ensure(ctx, []schedule.Item{old})
			return errors.Join(err, c.do())
		}, "Ensure")
	}
	_, err := b.engine.Retry(t.Context(), store.DefaultProject, id, control.RetryRequest{URL: "https://other.example/"}, store.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if c := b.get(id); c.State != store.Succeeded {
		t.Errorf("still %s: it waits in the old address's lane", c.State)
	}
}

// Where the slots that hanging destinations may share are used up, the claimer looks again now and then, and does not spin.
func TestClaimsDoNotSpinForLanesWithoutASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newFixture(t, hangs, faultyIndex(index), func(o *dispatch.Options) { o.Workers = 16 })
		for i := range 200 {
			s := tiers(time.Hour)
			s.URL = fmt.Sprintf("https://hang-%d.example/", i)
			b.accept(s)
		}
		time.Sleep(time.Minute)
		before := index.count("Claim")
		time.Sleep(time.Minute)
		if n := index.count("Claim") - before; n > 4000 {
			t.Errorf("%d claims in a minute", n)
		}
	})
}

// A hundred destinations that hang leave one that answers alone.
func TestIsolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, hangs, func(o *dispatch.Options) { o.Workers = 64 })
		b.accept(accept.Submission{}) // The healthy one is known to answer.
		time.Sleep(time.Second)
		for i := range 100 {
			var subs []accept.Submission
			for range 20 {
				subs = append(subs, accept.Submission{URL: fmt.Sprintf("https://hang-%d.example/", i), Body: []byte("1")})
			}
			b.must(b.engine.Accept(t.Context(), store.DefaultProject, subs))
		}
		for range 100 {
			time.Sleep(700 * time.Millisecond)
			c := b.accept(accept.Submission{})
			done := b.await(c.ID, 5*time.Second)
			if late := done.FinishedAt - c.DueAt; late > 60 {
				t.Fatalf("a healthy destination waited %d ms for others that hang", late)
			}
		}
	})
}
