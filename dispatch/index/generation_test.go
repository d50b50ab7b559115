package index

import "testing"

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
