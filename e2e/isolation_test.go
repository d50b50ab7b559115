package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// noise is how much longer than its goal a tail may be here before a test fails: the machine that runs these tests
// also runs the receivers, the database and Redis, and shares its cores. The goals themselves are in the log.
const noise = 1.5

// commits is how many a callback waits for on its way from the request to the receiver: those of its row and of its stamp.
const commits = 2

// A stream sends a steady rate of callbacks to a healthy receiver and knows how long each took to arrive.
type stream struct {
	mu    sync.Mutex
	sent  map[string]time.Time
	fails []error
}

// run sends at the rate for as long as asked, in one goroutine a send, so that a slow accept delays no other.
func (s *stream) run(ctx context.Context, c *client, url string, rate int, length time.Duration) {
	var group sync.WaitGroup
	defer group.Wait()
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for i := range int(length.Seconds() * float64(rate)) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		group.Go(func() {
			at := time.Now()
			ref := fmt.Sprintf("healthy-%d-%d", at.UnixNano(), i)
			cb, err := c.accept(ctx, submission{"url": url, "ref": ref, "payload": payload(ref)})
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil {
				s.fails = append(s.fails, err)
				return
			}
			s.sent[cb.ID] = at
		})
	}
}

// waits returns, once all have arrived, how long each took from before its accept to its arrival.
func (s *stream) waits(t *testing.T, r *receiver, limit time.Duration) []time.Duration {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.fails...); err != nil {
		t.Fatalf("%d accepts failed: %v", len(s.fails), err)
	}
	var all []time.Duration
	for id, at := range s.sent {
		eventually(t, limit, "all of the stream has arrived", func() error {
			if len(r.of(id)) == 0 {
				return fmt.Errorf("%s has not", id)
			}
			return nil
		})
		all = append(all, r.of(id)[0].at.Sub(at))
	}
	return all
}

func newStream() *stream { return &stream{sent: map[string]time.Time{}} }

// Destinations that hang, fifty of them with 300 callbacks each, delay nobody else.
func TestFiftyHangingDestinationsDelayOnlyThemselves(t *testing.T) {
	blackBox(t)
	on(t, bothEnds, func(t *testing.T, b backend) {
		const destinations, each, rate = 50, 300, 50
		healthy := listen(t, always(200, ""))
		dead := hangers(t, destinations)
		p := serve(t, launch{on: b})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()

		stalled := stalls(t)
		before := newStream()
		before.run(ctx, p.client, healthy.url, rate, 10*time.Second)
		calm := before.waits(t, healthy, 10*time.Second)

		during := newStream()
		var group sync.WaitGroup
		group.Go(func() { during.run(ctx, p.client, healthy.url, rate, 25*time.Second) })
		for _, url := range dead {
			batch := make([]submission, each)
			for i := range batch {
				batch[i] = submission{"url": url, "ref": fmt.Sprint("hang-", i), "payload": payload("hang"), "policy": submission{"tiers": []string{"15s", "3m"}, "timeout": "15s"}}
			}
			if _, err := p.acceptBatch(ctx, batch); err != nil {
				t.Fatal(err)
			}
		}
		group.Wait()
		storm := during.waits(t, healthy, 30*time.Second)
		stall := stalled()

		p99Before, p99 := quantile(calm, 0.99), quantile(storm, 0.99)
		t.Logf("%s: healthy destination at %d/s: before: median %s, p99 %s; with %d hanging destinations of %d callbacks: median %s, p99 %s, most %s (goal: at most %s); the disk stalled for %s at most",
			b.name, rate, quantile(calm, 0.5), p99Before, destinations, each, quantile(storm, 0.5), p99, quantile(storm, 1), max(2*p99Before, 60*time.Millisecond), stall)
		// The goal is for a machine that does nothing else; what fails the test is what G5 promises at half load.
		if limit := max(time.Duration(noise*float64(2*p99Before)), 250*time.Millisecond) + commits*stall; p99 > limit {
			t.Errorf("p99 is %s with hanging destinations, over %s", p99, limit)
		}
	})
}

// A hundred thousand callbacks for one dead destination, all due in the same millisecond, hold nobody up.
func TestFloodForADeadDestinationLeavesTheHealthyOneAlone(t *testing.T) {
	blackBox(t)
	on(t, bothEnds, func(t *testing.T, b backend) {
		const flood, rate = 100_000, 50
		healthy := listen(t, always(200, ""))
		dead := "http://127.0.0.1:" + freePorts(t, 1)[0] // nobody listens: refused
		p := serve(t, launch{on: b})
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
		defer cancel()

		// The due time lies as far ahead as accepting will take, with room: the first batches tell how long that is.
		start := time.Now()
		acceptFlood(ctx, t, p, dead, 2000, start.Add(time.Hour))
		perThousand := time.Since(start) / 2
		due := time.Now().Add(flood/1000*perThousand*3/2 + 10*time.Second).Truncate(time.Millisecond)
		start = time.Now()
		acceptFlood(ctx, t, p, dead, flood, due)
		acceptTook := time.Since(start)
		one, err := p.accept(ctx, submission{"url": healthy.url, "ref": "after-the-flood", "payload": payload("x"), "due_at": due.Add(time.Millisecond).UTC().Format(time.RFC3339Nano)})
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(due); left < time.Second {
			t.Fatalf("accepting %d took %s, longer than was foreseen: they were not due together", flood, acceptTook)
		}
		eventually(t, time.Until(due)+60*time.Second, "the healthy one is sent", func() error {
			if len(healthy.of(one.ID)) == 0 {
				return errors.New("it has not arrived")
			}
			return nil
		})
		after := healthy.of(one.ID)[0].at.Sub(due)

		// Promoted: nothing of the flood is left in the delay set but what has failed and waits for its tier.
		stalled := stalls(t)
		calm := newStream()
		calm.run(ctx, p.client, healthy.url, rate, 12*time.Second)
		waits := calm.waits(t, healthy, 30*time.Second)
		stall := stalled()
		p99 := quantile(waits, 0.99)
		t.Logf("%s: %d accepted in %s (%.0f/s, batches of 1000); due in one millisecond; the healthy one arrived %s after its due time (goal 3 s); then at %d/s: median %s, p99 %s, most %s (goal 250 ms); the disk stalled for %s at most",
			b.name, flood, acceptTook.Round(time.Millisecond), flood/acceptTook.Seconds(), after, rate, quantile(waits, 0.5), p99, quantile(waits, 1), stall)
		if after > 3*time.Second {
			t.Errorf("the healthy callback went out %s after its due time", after)
		}
		if limit := time.Duration(noise*float64(250*time.Millisecond)) + commits*stall; p99 > limit {
			t.Errorf("p99 is %s, over %s", p99, limit)
		}
	})
}

// acceptFlood accepts n callbacks in batches of a thousand, all due at once.
func acceptFlood(ctx context.Context, t *testing.T, p *process, url string, n int, due time.Time) {
	t.Helper()
	at := due.UTC().Format(time.RFC3339Nano)
	for from := 0; from < n; from += 1000 {
		batch := make([]submission, 1000)
		for i := range batch {
			batch[i] = submission{"url": url, "ref": fmt.Sprint("flood-", from+i), "payload": payload("flood"), "due_at": at}
		}
		if _, err := p.acceptBatch(ctx, batch); err != nil {
			t.Fatalf("accept %d: %v", from, err)
		}
	}
}
