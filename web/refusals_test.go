package web

import (
	"testing"
	"time"
)

// Requests come here at about the same time, and not in the order of their ends: at the border of two
// seconds, from both by turns.
func TestRefusalsOfTwoSecondsByTurns(t *testing.T) {
	t.Parallel()
	var r refusals
	now := time.Unix(1_000_000, 0)
	lines, told := 0, 0
	for i := range 1000 {
		if ok, left := r.line(now.Add(time.Duration(i%2) * -time.Millisecond)); ok {
			lines, told = lines+1, told+left
		}
	}
	if lines != refusalLines {
		t.Errorf("%d lines in a second, want %d", lines, refusalLines)
	}
	ok, left := r.line(now.Add(time.Second))
	if !ok || told+left != 1000-lines {
		t.Errorf("the next second's first refusal has a line: %t; it tells of %d that had none, want %d", ok,
			told+left, 1000-lines)
	}
}
