package relay

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMarksBefore(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	var m marks
	if m.before(at(9)) != beginning {
		t.Error("there is a mark")
	}
	for s := range 10 {
		m.add(at(float64(s)), int64(100+s))
	}
	m.add(at(9.5), 50) // behind an earlier one: it says nothing new
	for _, tc := range []struct {
		at   float64
		want int64
	}{{-1, beginning}, {0, 100}, {0.9, 100}, {5, 105}, {99, 109}} {
		if got := m.before(at(tc.at)); got != tc.want {
			t.Errorf("before %v: %d, want %d", tc.at, got, tc.want)
		}
	}
	m.cut(105)
	if got := m.before(at(99)); got != 104 {
		t.Errorf("after cut: %d", got)
	}
	m.cut(100)
	if got := m.before(at(99)); got != beginning {
		t.Errorf("after cut of all: %d", got)
	}
}

// TestMarksAreBounded adds marks at the highest rate. They stay few, and a window scan finds one that is not
// much older than it may be.
func TestMarksAreBounded(t *testing.T) {
	var m marks
	now := time.Unix(1000, 0)
	for seq := range int64(100_000) {
		now = now.Add(5 * time.Millisecond)
		m.add(now, seq)
		if len(m.list) > int(markAge/markGap)+3 {
			t.Fatalf("%d marks", len(m.list))
		}
	}
	for _, reach := range []time.Duration{tailReach, windowReach} {
		seq := m.before(now.Add(-reach))
		if behind := time.Duration(100_000-1-seq) * 5 * time.Millisecond; behind > reach+2*markGap {
			t.Errorf("the scan that reaches %s back begins %s back", reach, behind)
		}
	}
}

// TestMarksAreTrue compares marks with all that were added: before never returns a number that was not seen
// by then.
func TestMarksAreTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m marks
		var all []mark
		now := time.Unix(1000, 0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			seq := rapid.Int64Range(-50, 1000).Draw(t, "seq")
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0, 1, 2:
				m.cut(seq)
				var left []mark
				for _, a := range all {
					if a.seq < seq {
						left = append(left, a)
					}
				}
				all = left
			default:
				m.add(now, seq)
				all = append(all, mark{now, seq})
			}
			back := now.Add(-time.Duration(rapid.IntRange(0, 100_000).Draw(t, "back")) * time.Millisecond)
			got, most := m.before(back), int64(beginning)
			for _, a := range all {
				if !a.at.After(back) {
					most = max(most, a.seq)
				}
			}
			if got > most {
				t.Fatalf("before: %d, but at most %d was seen by then", got, most)
			}
		}
	})
}
