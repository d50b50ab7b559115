package index

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Every state and everything that happens: what becomes of it.
func TestStates(t *testing.T) {
	t.Parallel()
	wantTable(t, reachChanges, []reach{answering, partly, silent}, `
all:    answering answering answering
failed: silent partly silent
none:   answering silent silent
some:   answering partly partly`)
	wantTable(t, contentChanges, []content{sound, doubtful, rebuilding, foreign}, `
begun:   rebuilding rebuilding rebuilding rebuilding
failed:  sound doubtful doubtful foreign
filled:  sound doubtful sound foreign
left:    foreign foreign rebuilding foreign
matches: sound sound rebuilding sound
odd:     doubtful doubtful rebuilding doubtful`)
}

func wantTable[S comparable](t *testing.T, c changes[S], states []S, want string) {
	t.Helper()
	var got strings.Builder
	for _, what := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&got, "\n%s:", what)
		for _, first := range states {
			s := newState(first, c)
			was, is := s.happens(what)
			if was != first || !s.is(is) {
				t.Errorf("%v, %s: was %v, is %v", first, what, was, is)
			}
			fmt.Fprintf(&got, " %v", is)
		}
	}
	if strings.Join(strings.Fields(got.String()), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got %s\nwant %s", got.String(), want)
	}
}
