package web

import (
	"testing"
	"time"
)

// TestRefusalsOfAlternatingSeconds calls line with alternating times of two seconds, as parallel requests do
// at the border of two seconds.
func TestRefusalsOfAlternatingSeconds(t *testing.T) {
	t.Parallel()
	var r refusals
	now := time.Unix(1_000_000, 0)
	lines, reported := 0, 0
	for i := range 1000 {
		if ok, left := r.line(now.Add(time.Duration(i%2) * -time.Millisecond)); ok {
			lines, reported = lines+1, reported+left
		}
	}
	if lines != refusalLines {
		t.Errorf("%d lines in a second, want %d", lines, refusalLines)
	}
	ok, left := r.line(now.Add(time.Second))
	if !ok || reported+left != 1000-lines {
		t.Errorf("the first refusal of the next second: a line %t, %d refusals without one, want %d", ok,
			reported+left, 1000-lines)
	}
}
