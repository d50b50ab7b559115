package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// indexAway is how long the index is away, and missedInIt is more callbacks than a process remembers one by
// one: afterwards it gives the index every open row.
const (
	indexAway  = 12 * time.Second
	missedInIt = 120_000
)

// newWithin is how soon a callback is sent that is accepted when the index has just come back.
const newWithin = time.Second

// However much the index missed, and however many rows are open, it is used as soon as it answers again.
func TestANewCallbackAfterAnOutage(t *testing.T) {
	runOn(t, "catching up beside the traffic", 0, bothWithRedis, newCallbackAfterAnOutage)
}

func newCallbackAfterAnOutage(tr *trial) {
	way := tr.behindProxy()
	open := sized(50_000, 200_000, 1_000_000)
	tr.seeded(open, 0)
	tr.Serve()
	tr.awaitFilled(open, 3*time.Minute)

	way.Refuse()
	tr.MarkFault()
	began := time.Now()
	tr.AcceptMany(missedInIt, func(i int) harness.Submission {
		s := tr.due("plain", fmt.Sprint("missed-", i), 24*time.Hour)
		s["lane"] = harness.SeedRef(i % 100)
		return s
	})
	if took := time.Since(began); took > indexAway {
		tr.Logf("it took %s to accept %d", took.Round(time.Millisecond), missedInIt)
	}
	time.Sleep(time.Until(began.Add(indexAway))) // the fault lasts for a time, not until a condition
	way.Pass()
	back := time.Now()
	var waits []time.Duration
	for i := range 10 {
		sent := time.Now()
		ref := fmt.Sprint("new-", i)
		id := tr.AskAndNote(tr.Callback("plain", ref))
		tr.AtLeast(time.Minute, "a new callback arrives", 1, func() int { return tr.Receiver.Times(id) })
		waits = append(waits, time.Since(sent).Round(time.Millisecond))
	}
	tr.Remark("%s after the index came back with %d open rows, new callbacks arrived within %v",
		time.Since(back), open+missedInIt, waits)
	for _, wait := range waits {
		if wait > newWithin {
			tr.Errorf("a new callback arrived %s after it was accepted, over %s", wait, newWithin)
		}
	}
	tr.awaitFilled(open+missedInIt, 3*time.Minute)
}
