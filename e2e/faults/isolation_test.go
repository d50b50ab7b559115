package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// Destinations that hang, fifty of them with 300 callbacks each, delay nobody else.
func TestFiftyHangingDestinationsDelayOnlyThemselves(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		const destinations, each, rate = 50, 300, 50
		healthy := harness.NewReceiver(t, harness.Always(200, ""))
		dead := harness.HangingServers(t, destinations)
		p := harness.Serve(t, harness.Launch{On: b})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()

		stalled := harness.Stalls(t)
		before := newStream()
		before.run(ctx, p.Client, healthy.URL, rate, 10*time.Second)
		calm := before.waits(t, healthy, 10*time.Second)

		during := newStream()
		var group sync.WaitGroup
		group.Go(func() { during.run(ctx, p.Client, healthy.URL, rate, 25*time.Second) })
		for _, url := range dead {
			batch := make([]harness.Submission, each)
			for i := range batch {
				batch[i] = harness.Submission{"url": url, "ref": fmt.Sprint("hang-", i), "payload": harness.Payload("hang"), "policy": harness.Submission{"tiers": []string{"15s", "3m"}, "timeout": "15s"}}
			}
			if _, err := p.AcceptBatch(ctx, batch); err != nil {
				t.Fatal(err)
			}
		}
		group.Wait()
		storm := during.waits(t, healthy, 30*time.Second)
		stall := stalled()

		p99Before, p99 := harness.Quantile(calm, 0.99), harness.Quantile(storm, 0.99)
		t.Logf("%s: healthy destination at %d/s: before: median %s, p99 %s; with %d hanging destinations of %d callbacks: median %s, p99 %s, most %s (goal: at most %s); the disk stalled for %s at most",
			b.Name, rate, harness.Quantile(calm, 0.5), p99Before, destinations, each, harness.Quantile(storm, 0.5), p99, harness.Quantile(storm, 1), max(2*p99Before, 60*time.Millisecond), stall)
		// The goal is for a machine that does nothing else; what fails the test is what G5 promises at half load.
		if limit := max(time.Duration(noise*float64(2*p99Before)), 250*time.Millisecond) + commits*stall; p99 > limit {
			t.Errorf("p99 is %s with hanging destinations, over %s", p99, limit)
		}
	})
}

// A hundred thousand callbacks for one dead destination, all due in the same millisecond, hold nobody up.
func TestFloodForADeadDestinationLeavesTheHealthyOneAlone(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		const flood, rate = 100_000, 50
		healthy := harness.NewReceiver(t, harness.Always(200, ""))
		dead := "http://127.0.0.1:" + harness.FreePorts(t, 1)[0] // nobody listens: refused
		p := harness.Serve(t, harness.Launch{On: b})
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
		one, err := p.Accept(ctx, harness.Submission{"url": healthy.URL, "ref": "after-the-flood", "payload": harness.Payload("x"), "due_at": due.Add(time.Millisecond).UTC().Format(time.RFC3339Nano)})
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(due); left < time.Second {
			t.Fatalf("accepting %d took %s, longer than was foreseen: they were not due together", flood, acceptTook)
		}
		harness.Eventually(t, time.Until(due)+60*time.Second, "the healthy one is sent", func() error {
			if len(healthy.Of(one.ID)) == 0 {
				return errors.New("it has not arrived")
			}
			return nil
		})
		after := healthy.Of(one.ID)[0].At.Sub(due)

		// Promoted: nothing of the flood is left in the delay set but what has failed and waits for its tier.
		stalled := harness.Stalls(t)
		calm := newStream()
		calm.run(ctx, p.Client, healthy.URL, rate, 12*time.Second)
		waits := calm.waits(t, healthy, 30*time.Second)
		stall := stalled()
		p99 := harness.Quantile(waits, 0.99)
		t.Logf("%s: %d accepted in %s (%.0f/s, batches of 1000); due in one millisecond; the healthy one arrived %s after its due time (goal 3 s); then at %d/s: median %s, p99 %s, most %s (goal 250 ms); the disk stalled for %s at most",
			b.Name, flood, acceptTook.Round(time.Millisecond), flood/acceptTook.Seconds(), after, rate, harness.Quantile(waits, 0.5), p99, harness.Quantile(waits, 1), stall)
		if after > 3*time.Second {
			t.Errorf("the healthy callback went out %s after its due time", after)
		}
		if limit := time.Duration(noise*float64(250*time.Millisecond)) + commits*stall; p99 > limit {
			t.Errorf("p99 is %s, over %s", p99, limit)
		}
	})
}
