package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// newArena starts receivers that answer so, and a dispatcher, or two where they share an index.
func newArena(t *testing.T, b harness.Backend, answers func(*harness.Arrival) harness.Reply) *arena {
	t.Helper()
	a := &arena{T: t, near: harness.NewReceiver(t, answers), far: harness.NewReceiver(t, answers),
		books: harness.NewLedger(), counts: map[*contestKind]map[string]int{}}
	a.processes = append(a.processes, harness.Serve(t, harness.Launch{On: b}))
	if b.Redis != "" {
		a.processes = append(a.processes, harness.Serve(t, harness.Launch{On: b}))
	}
	return a
}

// At the moment of a claim, too, the answer says what happens: what is canceled is not sent any more, of a
// superseded one nothing starts after its newer version was accepted, what is mended goes where it was told
// to, and what is moved comes no earlier.
func TestRacesAgainstTheClaim(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		a := newArena(t, b, func(a *harness.Arrival) harness.Reply {
			if strings.Contains(a.Path, "/fails") && a.Number == 1 {
				return harness.Reply{Status: 500, After: 4 * time.Millisecond}
			}
			return harness.Reply{Status: 200, After: 4 * time.Millisecond}
		})
		a.spacing = 5 * time.Millisecond
		kinds := []*contestKind{cancelKind(), supersedeKind(), mendKind(), moveKind()}
		a.run(kinds, sized(500, 10_000, 10_000))
		a.books.Judge(t, a.processes[0], b, judge.Bounds{
			SharedRefs: true,                              // versions of one order
			Expect:     func(string) string { return "" }, // each race knows more of it
		}, a.near, a.far)
	})
}

// A caller that resolves a poll, at any moment, is told whether the resolve or an answer was first. The
// merchant hears of that end and of no other, once.
func TestRacesOfResolveAgainstTheLastAnswer(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		a := newArena(t, b, func(a *harness.Arrival) harness.Reply {
			if strings.HasSuffix(a.Path, "/second") && a.Nth == 1 {
				return harness.Reply{Status: 200, Body: processing, After: 4 * time.Millisecond}
			}
			return harness.Reply{Status: 200, Body: succeeded, After: 4 * time.Millisecond}
		})
		a.spacing = 10 * time.Millisecond // of each come a request, a call and a result
		a.run([]*contestKind{resolveKind()}, sized(200, 4_000, 10_000))
	})
}
