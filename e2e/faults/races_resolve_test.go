package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A caller that resolves a poll, at any moment, is told whether the resolve or an answer was first; and the
// merchant hears of that end and of no other, once.
func TestRacesOfResolveAgainstTheLastAnswer(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		a := &resolveArena{T: t, merchant: harness.NewReceiver(t, harness.Always(200, ""))}
		a.up = harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
			if strings.HasSuffix(a.Path, "/second") && a.Nth == 1 {
				return harness.Reply{Status: 200, Body: processing, After: 4 * time.Millisecond}
			}
			return harness.Reply{Status: 200, Body: succeeded, After: 4 * time.Millisecond}
		})
		a.processes = append(a.processes, harness.Serve(t, harness.Launch{On: b}))
		if b.Redis != "" {
			a.processes = append(a.processes, harness.Serve(t, harness.Launch{On: b}))
		}
		counts := map[string]int{}
		var missing []string
		for round := range 3 {
			races := make([]*resolving, sized(200, 2_000, 10_000))
			for i := range races {
				n := round*len(races) + i
				races[i] = &resolving{n: n, ref: fmt.Sprint("resolve-", n), second: n%2 == 1, twice: n%8 >= 6}
			}
			a.enter(races)
			a.race(races)
			harness.Await(t, a.processes[0].Client, time.Minute)
			a.decide(races, counts)
			t.Logf("%d races of resolve: %v; an answer is there %s after it is due", (round+1)*len(races), counts,
				a.lag.Round(time.Millisecond))
			missing = missing[:0]
			for _, outcome := range resolveOutcomes {
				if counts[outcome] <= len(races)*(round+1)/400 {
					missing = append(missing, outcome)
				}
			}
			// Where the machine is too busy for calls and answers to come when they are meant to, there are more.
			if len(missing) == 0 || t.Failed() {
				return
			}
		}
		t.Errorf("outcomes that hardly occurred: %v", missing)
	})
}
