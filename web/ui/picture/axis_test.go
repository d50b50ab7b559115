package picture

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// TestLabelsHaveEqualSteps checks that the visible labels of an axis have equal distances at every width and
// do not touch each other.
func TestLabelsHaveEqualSteps(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 8, 4, 0, 0, 0, time.UTC)
	for _, length := range []time.Duration{
		10 * time.Minute, time.Hour, 5 * time.Hour, 12 * time.Hour, 23*time.Hour + 30*time.Minute,
		48 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
	} {
		axis := TimeAxis{}.resolve(begin, begin.Add(length))
		labels := axis.labels(0)
		for n, wide := range plots {
			visible := slices.DeleteFunc(slices.Clone(labels), func(l label) bool { return l.from > n+1 })
			if len(visible) < 2 {
				t.Errorf("%v in %d pixels has %d labels", length, wide, len(visible))
				continue
			}
			for i, l := range visible[1:] {
				step, before := l.x-visible[i].x, visible[i].text
				if first := visible[1].x - visible[0].x; step < first-1 || step > first+1 {
					t.Errorf("%v in %d pixels: from %s to %s are %.1f units, want %.1f", length, wide, before,
						l.text, step, first)
				}
				if gap := step/plotWidth*float64(wide) - float64(width(l.text)); gap < 6 && !l.end {
					t.Errorf("%v in %d pixels: the gap between %s and %s is %.1f pixels", length, wide,
						before, l.text, gap)
				}
			}
		}
	}
}

func TestLabelsAvoidReservedSpace(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 8, 4, 0, 0, 0, time.UTC)
	axis := TimeAxis{}.resolve(begin, begin.Add(12*time.Hour))
	for _, l := range axis.labels(100) {
		if left := l.x / plotWidth * float64(plots[l.from-1]); int(left)-width(l.text)/2 < 100 && !l.end {
			t.Errorf("%s begins %.0f pixels from the left", l.text, left)
		}
	}
}

// TestThinningKeepsPeaksAndDips merges points and looks for the extreme values.
func TestThinningKeepsPeaksAndDips(t *testing.T) {
	t.Parallel()
	values := make([]float64, 3000)
	times := make([]time.Time, len(values))
	for i := range values {
		values[i], times[i] = 50, time.Unix(int64(i), 0)
	}
	values[777], values[1501] = 99, 1
	p := read(times, []Series{{Values: values}}, time.Time{}, time.Time{}).thinned(maxPoints)
	two := read(times[:2*maxPoints], []Series{{Values: values}}, time.Time{}, time.Time{}).thinned(maxPoints)
	if n := len(p.at); n != maxPoints || len(two.at) != n {
		t.Errorf("%d of 3,000 and %d of 120 points are left, want %d", n, len(two.at), maxPoints)
	}
	if !slices.Contains(p.rows[0], 99) || !slices.Contains(p.rows[0], 1) {
		t.Error("the peak or the dip is missing")
	}
	sums, every := read(times, []Series{{Values: values}}, time.Time{}, time.Time{}).summed(maxPoints)
	total := 0.0
	for _, v := range sums.rows[0] {
		total += v
	}
	if every != 50 || total != 150_000 {
		t.Errorf("the sum of groups of %d is %g, want groups of 50 and 150,000", every, total)
	}
}

// TestRules checks how texts are cut and which values and times an axis has.
func TestRules(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/rules.txt", func(line string) string {
		rule, rest, _ := strings.Cut(line, " ")
		args := strings.Split(rest, ", ")
		number := func(i int) float64 {
			v, err := strconv.ParseFloat(args[i], 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		switch rule {
		case "fit":
			return fmt.Sprintf("%q", fit(args[0], int(number(1))))
		case "ident":
			return ident(rest)
		case "linear":
			return fmt.Sprint(linear(number(0), int(number(1)), len(args) > 2).ticks)
		case "logarithmic":
			return fmt.Sprint(logarithmic(number(0), number(1), number(2)).ticks)
		case "moments":
			in, err := time.LoadLocation(args[0])
			if err != nil {
				t.Fatal(err)
			}
			from, to, _ := strings.Cut(args[1], " to ")
			return clockTimes(moments(clockTime(t, from, in), clockTime(t, to, in), int(number(2)), in))
		}
		return "unknown rule"
	})
}

// clockTime parses a local time.
func clockTime(t *testing.T, text string, in *time.Location) time.Time {
	t.Helper()
	at, err := time.ParseInLocation("2006-01-02 15:04", text, in)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// clockTimes formats local times. It omits the day if the previous time has the same day.
func clockTimes(all []time.Time) string {
	var texts []string
	day := ""
	for _, at := range all {
		layout := "2006-01-02 15:04"
		if at.Format(time.DateOnly) == day {
			layout = "15:04"
		}
		day = at.Format(time.DateOnly)
		texts = append(texts, at.Format(layout))
	}
	return strings.Join(texts, ", ")
}

// checkScale returns an error if a scale is invalid.
func checkScale(s scale, highest float64) error {
	switch {
	case len(s.ticks) < 2 || len(s.ticks) > 40:
		return fmt.Errorf("%d ticks, want 2 to 40", len(s.ticks))
	case !slices.IsSorted(s.ticks) || len(slices.Compact(slices.Clone(s.ticks))) != len(s.ticks):
		return fmt.Errorf("ticks not ascending: %v", s.ticks)
	case !(s.lo < s.hi):
		return fmt.Errorf("the scale goes from %g to %g", s.lo, s.hi)
	case drawable(highest) && s.hi < highest*(1-1e-9):
		return fmt.Errorf("%g is above %g", highest, s.hi)
	}
	for _, v := range append([]float64{0, highest, math.Inf(1), s.lo, s.hi}, s.ticks...) {
		if math.IsNaN(v) {
			continue
		}
		if at := s.at(v); !(at >= 0 && at <= 1) {
			return fmt.Errorf("%g is at %g, want 0 to 1", v, at)
		}
	}
	return nil
}

func FuzzLinear(f *testing.F) {
	f.Add(0.0, 4, false)
	f.Add(1e15, 100, true)
	f.Add(1e-9, -3, false)
	f.Add(math.Inf(1), 4, true)
	f.Fuzz(func(t *testing.T, highest float64, steps int, whole bool) {
		steps = min(steps, 12)
		if err := checkScale(linear(highest, steps, whole), highest); err != nil {
			t.Errorf("linear(%g, %d, %v): %v", highest, steps, whole, err)
		}
	})
}

func FuzzLogarithmic(f *testing.F) {
	f.Add(1.0, 100.0, 0.0)
	f.Add(5e-324, 1.7e308, -1.0)
	f.Add(999.9999999, 1000.0, 1e15)
	f.Fuzz(func(t *testing.T, least, highest, floor float64) {
		s := logarithmic(least, highest, floor)
		if err := checkScale(s, highest); err != nil {
			t.Errorf("logarithmic(%g, %g, %g): %v", least, highest, floor, err)
		}
	})
}

func FuzzMoments(f *testing.F) {
	f.Add(int64(1_772_000_000), int64(86_400), 8, 0)
	f.Add(int64(-62_135_596_800), int64(253_402_300_799), 3, 1)
	f.Add(int64(0), int64(59), 1, 2)
	f.Add(int64(1<<62), int64(1<<62), 1<<40, 3)
	names := []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu",
		"Africa/Cairo"}
	f.Fuzz(func(t *testing.T, from, length int64, most, zone int) {
		in, err := time.LoadLocation(names[((zone%len(names))+len(names))%len(names)])
		if err != nil {
			t.Fatal(err)
		}
		most = min(most, 100)
		begin := time.Unix(from, 0)
		end := begin.Add(time.Duration(length))
		if length > 1e9 { // longer than a duration can be
			end = time.Unix(from+length/1e6, 0)
		}
		ticks := moments(begin, end, most, in)
		if len(ticks) > 2*max(most, 1) {
			t.Errorf("%d times, want about %d", len(ticks), most)
		}
		for i, m := range ticks {
			if m.Before(begin) || m.After(end) || i > 0 && !m.After(ticks[i-1]) {
				t.Errorf("time %d is %v: outside of %v to %v, or not ascending", i, m, begin, end)
			}
			if m.Second() != 0 && m.Year() > 1980 {
				t.Errorf("%v is not round", m)
			}
		}
	})
}
