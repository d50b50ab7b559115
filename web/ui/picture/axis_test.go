package picture

import (
	"slices"
	"testing"
	"time"
)

// What is shown below an axis is in equal steps at every width, and labels do not touch each other.
func TestLabelsStandInEqualSteps(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 8, 4, 0, 0, 0, time.UTC)
	for _, length := range []time.Duration{
		10 * time.Minute, time.Hour, 5 * time.Hour, 12 * time.Hour, 23*time.Hour + 30*time.Minute, 48 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
	} {
		axis := TimeAxis{}.over(begin, begin.Add(length))
		labels := axis.labels(0)
		for n, wide := range plots {
			shown := slices.DeleteFunc(slices.Clone(labels), func(l label) bool { return l.from > n+1 })
			if len(shown) < 2 {
				t.Errorf("%v in %d pixels has %d labels", length, wide, len(shown))
				continue
			}
			for i, l := range shown[1:] {
				step := l.x - shown[i].x
				if first := shown[1].x - shown[0].x; step < first-1 || step > first+1 {
					t.Errorf("%v in %d pixels: %s is %.1f after %s, not %.1f", length, wide, l.text, step, shown[i].text, first)
				}
				if gap := step/plotWidth*float64(wide) - float64(width(l.text)); gap < 6 && !l.end {
					t.Errorf("%v in %d pixels: %s is %.1f pixels beside %s", length, wide, l.text, gap, shown[i].text)
				}
			}
		}
	}
}

func TestLabelsLeaveWhatIsTaken(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 8, 4, 0, 0, 0, time.UTC)
	axis := TimeAxis{}.over(begin, begin.Add(12*time.Hour))
	for _, l := range axis.labels(100) {
		if left := l.x / plotWidth * float64(plots[l.from-1]); int(left)-width(l.text)/2 < 100 && !l.end {
			t.Errorf("%s begins %.0f pixels from the left", l.text, left)
		}
	}
}

func TestTextsAreCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"12:00", 96, "12:00"}, {"a very long label", 60, "a very…"}, {"十一月二十三日", 60, "十一月二…"}, {"", 5, ""}, {"\u202e\x00ab\n", 96, "ab "}, {"abc", 0, "…"},
	} {
		if got := fit(c.in, c.most); got != c.want {
			t.Errorf("fit(%q, %d) is %q, not %q", c.in, c.most, got, c.want)
		}
	}
	if got := ident("a.b-c 1\u00e9"); got != "a_b-c_1__" {
		t.Errorf("the id is %q", got)
	}
}

// Peaks and dips stay when neighbours become one.
func TestThinningKeepsPeaksAndDips(t *testing.T) {
	t.Parallel()
	values := make([]float64, 3000)
	times := make([]time.Time, len(values))
	for i := range values {
		values[i], times[i] = 50, time.Unix(int64(i), 0)
	}
	values[777], values[1501] = 99, 1
	p := read(times, []Series{{Values: values}}, time.Time{}, time.Time{}).thinned(maxPoints)
	if n := len(p.at); n != maxPoints {
		t.Errorf("%d points are left, not %d", n, maxPoints)
	}
	if !slices.Contains(p.rows[0], 99) || !slices.Contains(p.rows[0], 1) {
		t.Error("the peak or the dip is gone")
	}
	sums, every := read(times, []Series{{Values: values}}, time.Time{}, time.Time{}).summed(maxPoints)
	total := 0.0
	for _, v := range sums.rows[0] {
		total += v
	}
	if every != 10 || total != 150_000 {
		t.Errorf("the sum by %d is %g, not 150,000", every, total)
	}
}
