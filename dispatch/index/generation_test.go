package index

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
)

// A mismatch begins once, however often it is found again: while a foreign index is left alone, and while
// rebuilds of it fail. After a match, the next one has another beginning.
func TestMismatchHasOneBeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGeneration(&Index{clock: new(clock.Clock)})
		g.apply("left alone")
		began := g.mismatchAt.Load()
		if began == 0 {
			t.Fatal("a first mismatch has no beginning")
		}
		for _, event := range []string{"left alone", "mismatch", "left alone", "begun", "failed", "begun",
			"filled"} {
			time.Sleep(checkEvery)
			g.apply(event)
			if at := g.mismatchAt.Load(); at != began {
				t.Errorf("after %q it began %d ms later", event, at-began)
			}
		}
		g.apply("mismatch")
		if at := g.mismatchAt.Load(); at != time.Now().UnixMilli() {
			t.Errorf("the next mismatch began at %d, and it is %d", at, time.Now().UnixMilli())
		}
	})
}

// A sequence that falls within one generation shows a rollback. A rebuild starts a new sequence, and an index
// that cannot be rolled back has none.
func TestShardVersionFallsOnlyWithinAGeneration(t *testing.T) {
	var seen ShardVersion
	for i, step := range []struct {
		generation, seq int64
		want            bool
	}{
		{1, 500, false}, // the first claim
		{1, 500, false}, // nothing was written
		{1, 900, false},
		{1, 700, true},
		{1, 701, false}, // it is reported once
		{2, 3, false},   // rebuilt
		{2, 2, true},
		{3, 0, false},
		{3, 0, false},
	} {
		if got := seen.Fell(step.generation, step.seq); got != step.want {
			t.Errorf("step %d, generation %d, sequence %d: got %t", i, step.generation, step.seq, got)
		}
	}
}
