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

// A dispatcher that is killed under load loses nothing, and sends again only what it had in flight.
func TestKilledUnderLoad(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		// One process runs at a time and commits its results before it claims again: it loses no claim in a stall.
		struckUnderLoad(trialOn(t, b), func(tr *harness.Trial) {
			tr.Kill(tr.AnyProcess(), 0)
			tr.Serve()
		})
	})
}

// Redis that is emptied under load is rebuilt without a restart, and nothing is lost or sent twice: what was in flight
// may be adopted.
func TestRedisIsEmptiedUnderLoad(t *testing.T) {
	harness.BlackBox(t)
	struckUnderLoad(trialOn(t, harness.NewBackend(t, harness.PostgresRedis)), func(tr *harness.Trial) {
		tr.Flush()
		tr.MarkFault()
	})
}

// struckUnderLoad has a fault strike between two hundred callbacks.
func struckUnderLoad(tr *harness.Trial, strike func(*harness.Trial)) {
	tr.Serve()
	load := tr.Load(40, tr.Mixed)
	more := func() { tr.AtLeast(time.Minute, "the load is handed over", tr.Count()+100, tr.Count) }
	more()
	strike(tr)
	more()
	load.Finish()
	tr.Conclude(2*time.Minute, 2*time.Minute)
}

// A thousand callbacks with one lock key never overlap, follow each other closely, and keep no worker waiting.
func TestOneLockKeyNeverOverlapsAndDivertsUncharged(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		const n = 1000
		tr := trialOn(t, b)
		tr.Receiver.Answer(func(*harness.Arrival) harness.Reply { return harness.Reply{Status: 200, After: time.Millisecond} })
		p := tr.Serve("--workers", "64")
		tr.AcceptMany(n, func(i int) harness.Submission {
			s := tr.Numbered("locked")(i)
			s["lock_key"], s["lane"] = "order-7", fmt.Sprint("merchant-", i%20) // many lanes: none serialises them
			return s
		})
		// A worker that waited for the lock would not be there for the others.
		for i := range 20 {
			id := tr.AskAndNote(tr.Callback("free", fmt.Sprint("free-", i)))
			tr.AtLeast(10*time.Second, "a callback without a lock is sent", 1, func() int { return tr.Receiver.Times(id) })
		}
		tr.Settle(3 * time.Minute)
		tr.Verdict(judge.Bounds{})
		locked := slices.DeleteFunc(tr.Receiver.All(), func(a harness.Arrival) bool { return a.Kind() == "free" })
		slices.SortFunc(locked, func(a, b harness.Arrival) int { return a.At.Compare(b.At) })
		var gaps []time.Duration
		for i := 1; i < len(locked); i++ {
			gaps = append(gaps, locked[i].At.Sub(locked[i-1].End))
		}
		rows, err := p.ListAll(client.Filter{})
		tr.Check(err)
		diverts := 0
		for _, row := range rows {
			if diverts += row.DivertCount; row.AttemptCount != 1 {
				t.Errorf("%s has %d charged attempts, want 1: a divert charges nothing", row.Ref, row.AttemptCount)
			}
		}
		between := judge.QuantilesOf(gaps)
		t.Logf("%s: %d under one lock: gaps %s (goal of p50: 5 ms); %d diverts", b.Name, n, between, diverts)
		// A waiter that is not woken waits for a second and more.
		if diverts == 0 || between.P50 > 500*time.Millisecond {
			t.Errorf("%d diverts, and the median gap is %s", diverts, between.P50)
		}
	})
}
