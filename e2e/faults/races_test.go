package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// Whatever is asked at the moment of a claim, the answer says what happens: what is canceled is not sent any
// more, of a superseded one nothing starts after its newer version was accepted, what is mended goes where it
// was told to, and what is moved comes no earlier.
func TestRacesAgainstTheClaim(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		answers := func(a *harness.Arrival) harness.Reply {
			if strings.Contains(a.Path, "/fails") && a.Number == 1 {
				return harness.Reply{Status: 500, After: 4 * time.Millisecond}
			}
			return harness.Reply{Status: 200, After: 4 * time.Millisecond}
		}
		a := &arena{T: t, near: harness.NewReceiver(t, answers), far: harness.NewReceiver(t, answers),
			books: harness.NewLedger(), counts: map[*contestKind]map[string]int{}}
		a.processes = append(a.processes, harness.Serve(t, harness.Launch{On: b}))
		if b.Redis != "" {
			a.processes = append(a.processes, harness.Serve(t, harness.Launch{On: b}))
		}
		kinds := []*contestKind{cancelKind(), cancelRefKind(), supersedeKind(), mendKind(), moveKind()}
		var missing []string
		for round := range 3 {
			contests := make([]*contest, sized(500, 5_000, 10_000))
			for i := range contests {
				k := kinds[i%len(kinds)]
				c := &contest{kind: k, n: round*len(contests) + i/len(kinds)}
				// Half of them meet the first attempt, which succeeds; the others a first one that fails, or the
				// one after that.
				c.fails, c.second = c.n%2 == 1, c.n%4 == 1
				c.ref = fmt.Sprintf("%s-%d", k.name, c.n)
				contests[i] = c
			}
			a.enter(contests)
			a.race(contests)
			harness.Await(t, a.processes[0].Client, time.Minute)
			a.look(contests)
			// Where the machine is too busy for calls and attempts to come when they are meant to, there are more.
			if missing = a.decide(kinds, contests); len(missing) == 0 {
				break
			}
			t.Logf("round %d was not close, attempts being over %s after they are due: %v", round+1, a.lag, missing)
		}
		if len(missing) > 0 {
			t.Errorf("outcomes that hardly occurred: %v", missing)
		}
		a.books.Judge(t, a.processes[0], b, judge.Bounds{
			// versions of one order, and callbacks that are canceled by their reference
			SharedRefs: true,
			Expect:     func(string) string { return "" }, // each race knows more of it
		}, a.near, a.far)
	})
}
