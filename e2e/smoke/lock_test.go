package smoke

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// A thousand callbacks with one lock key never overlap, follow each other closely, and keep no worker waiting.
func TestOneLockKeyNeverOverlapsAndDivertsUncharged(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		const n = 1000
		r := harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply { return harness.Reply{Status: 200, After: time.Millisecond} })
		free := harness.NewReceiver(t, harness.Always(200, ""))
		tr := harness.NewTrial(t, "one lock key")
		tr.Backend, tr.Others = b, []*harness.Receiver{r, free}
		p := tr.Serve("--workers", "64")
		batch := make([]harness.Submission, n)
		for i := range batch {
			ref := fmt.Sprint("locked-", i)
			batch[i] = harness.Submission{
				"url": r.URL + "/locked", "ref": ref, "payload": harness.Payload(ref), "lock_key": "order-7",
				"lane": fmt.Sprint("merchant-", i%20), // many lanes, so that no lane's concurrency serialises them
			}
		}
		accepted, err := p.AcceptBatch(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for i, cb := range accepted {
			tr.NoteAccepted(cb.ID, fmt.Sprint("locked-", i))
		}
		// A worker that waited for the lock would not be there for the others.
		var unlocked []time.Duration
		for i := range 20 {
			start := time.Now()
			cb, err := p.Accept(t.Context(), harness.Submission{"url": free.URL, "ref": fmt.Sprint("free-", i), "payload": harness.Payload("free")})
			if err != nil {
				t.Fatal(err)
			}
			harness.AtLeast(t, 10*time.Second, "a callback without a lock is sent", 1,
				func() int { return free.Times(cb.ID) })
			unlocked = append(unlocked, free.Of(cb.ID)[0].At.Sub(start))
		}
		harness.Await(t, p.Client, 3*time.Minute)
		tr.Verdict(judge.Bounds{})
		arrivals := r.All()
		slices.SortFunc(arrivals, func(a, b harness.Arrival) int { return a.At.Compare(b.At) })
		var gaps []time.Duration
		for i := 1; i < len(arrivals); i++ {
			gaps = append(gaps, arrivals[i].At.Sub(arrivals[i-1].End))
		}
		rows, err := p.ListAll(client.Filter{State: []client.State{"succeeded"}})
		if err != nil {
			t.Fatal(err)
		}
		diverts, diverted := 0, 0
		for _, row := range rows {
			if row.AttemptCount != 1 {
				t.Errorf("%s has %d charged attempts, want 1: a divert charges nothing", row.Ref, row.AttemptCount)
			}
			diverts += row.DivertCount
			if row.DivertCount > 0 {
				diverted++
			}
		}
		if diverts == 0 {
			t.Error("no divert was counted")
		}
		between, others := judge.QuantilesOf(gaps), judge.QuantilesOf(unlocked)
		t.Logf("%s: %d under one lock in %s; gaps: %s (goal of p50: 5 ms); %d callbacks diverted, %d diverts; "+
			"unlocked ones meanwhile: %s", b.Name, n,
			arrivals[len(arrivals)-1].End.Sub(arrivals[0].At).Round(time.Millisecond), between, diverted, diverts, others)
		if between.P50 > 500*time.Millisecond { // a waiter that is not woken waits for a second and more
			t.Errorf("the median gap is %s", between.P50)
		}
		if others.Most > 10*time.Second {
			t.Errorf("a callback without a lock waited %s", others.Most)
		}
	})
}
