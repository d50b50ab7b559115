package picture

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
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

func TestLinearTicks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		highest float64
		steps   int
		whole   bool
		want    string
	}{
		{0, 4, false, "[0 1]"},
		{1, 4, false, "[0 0.5 1]"},
		{0.3, 4, false, "[0 0.1 0.2 0.3]"},
		{0.003, 4, false, "[0 0.001 0.002 0.003]"},
		{7, 4, false, "[0 2 4 6 8]"},
		{100, 4, false, "[0 50 100]"},
		{101, 4, false, "[0 50 100 150]"},
		{412, 4, false, "[0 200 400 600]"},
		{1, 4, true, "[0 1]"},
		{3, 4, true, "[0 1 2 3]"},
		{5, 4, true, "[0 2 4 6]"},
		{math.Inf(1), 4, false, "[0 1]"},
		{math.NaN(), 0, false, "[0 1]"},
		{5, 4, false, "[0 2 4 6]"},
		{1e15, 4, true, "[0 5e+14 1e+15]"},
	} {
		s := linear(c.highest, c.steps, c.whole)
		if got := fmt.Sprint(s.ticks); got != c.want {
			t.Errorf("linear(%g, %d, %v) has %s, not %s", c.highest, c.steps, c.whole, got, c.want)
		}
	}
}

func TestLogarithmicTicks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		least, highest, floor float64
		want                  string
	}{
		{3, 40, 0, "[2 5 10 20 50]"},
		{3, 3, 0, "[2 5 10 20]"},
		{3, 900, 1, "[1 10 100 1000]"},
		{0.002, 0.9, 0, "[0.001 0.01 0.1 1]"},
		{1, 90_000, 0, "[1 10 100 1000 10000 100000]"},
		{7, 3e9, 1, "[1 100 10000 1e+06 1e+08 1e+10]"},
		{math.Inf(1), 0, 0, "[1e-09 2e-09 5e-09 1e-08]"},
		{math.Inf(1), 0, 1, "[1 2 5 10]"},
		{math.NaN(), math.Inf(1), math.Inf(1), "[1e-09 2e-09 5e-09 1e-08]"},
	} {
		if got := fmt.Sprint(logarithmic(c.least, c.highest, c.floor).ticks); got != c.want {
			t.Errorf("logarithmic(%g, %g, %g) has %s, not %s", c.least, c.highest, c.floor, got, c.want)
		}
	}
}

// checkScale says what is wrong with a scale.
func checkScale(s scale, highest float64) error {
	switch {
	case len(s.ticks) < 2 || len(s.ticks) > 40:
		return fmt.Errorf("%d ticks", len(s.ticks))
	case !slices.IsSorted(s.ticks) || len(slices.Compact(slices.Clone(s.ticks))) != len(s.ticks):
		return fmt.Errorf("not ascending: %v", s.ticks)
	case !(s.lo < s.hi):
		return fmt.Errorf("from %g to %g", s.lo, s.hi)
	case drawable(highest) && s.hi < highest*(1-1e-9):
		return fmt.Errorf("%g is above %g", highest, s.hi)
	}
	for _, v := range append([]float64{0, highest, math.Inf(1), s.lo, s.hi}, s.ticks...) {
		if math.IsNaN(v) {
			continue
		}
		if at := s.at(v); !(at >= 0 && at <= 1) {
			return fmt.Errorf("%g is at %g", v, at)
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

func TestMoments(t *testing.T) {
	t.Parallel()
	zone := func(name string) *time.Location {
		in, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	const layout = "2006-01-02 15:04"
	for _, c := range []struct {
		zone, from, to string
		most           int
		want           string
	}{
		{"UTC", "2026-03-08 04:10", "2026-03-08 05:10", 6, "04:10 04:20 04:30 04:40 04:50 05:00 05:10"},
		{"UTC", "2026-03-08 04:11", "2026-03-08 04:16", 8, "04:11 04:12 04:13 04:14 04:15 04:16"},
		{"Asia/Shanghai", "2026-03-08 22:30", "2026-03-09 07:00", 5, "9 00:00 02:00 04:00 06:00"},
		{"Asia/Kathmandu", "2026-03-08 22:10", "2026-03-09 01:00", 3, "23:00 9 00:00 01:00"},
		// The clocks go from 1:59 to 3:00, and from 1:59 back to 1:00.
		{"America/New_York", "2026-03-07 22:00", "2026-03-08 06:00", 8, "22:00 23:00 8 00:00 01:00 03:00 04:00 05:00 06:00"},
		{"America/New_York", "2026-10-31 18:00", "2026-11-01 18:00", 5, "18:00 1 00:00 06:00 12:00 18:00"},
		// The clocks leave out midnight.
		{"Africa/Cairo", "2026-04-22 12:00", "2026-04-25 12:00", 4, "23 00:00 24 01:00 25 00:00"},
		{"UTC", "2026-03-04 12:00", "2026-03-26 12:00", 4, "9 00:00 16 00:00 23 00:00"},
		{"UTC", "2026-01-15 00:00", "2026-12-20 00:00", 4, "4/1 7/1 10/1"},
		{"UTC", "1998-01-15 00:00", "2026-12-20 00:00", 8, "2000 2005 2010 2015 2020 2025"},
	} {
		in := zone(c.zone)
		from, _ := time.ParseInLocation(layout, c.from, in)
		to, _ := time.ParseInLocation(layout, c.to, in)
		var got []string
		for _, m := range moments(from, to, c.most, in) {
			switch {
			case strings.Contains(c.want, "/"):
				got = append(got, m.Format("1/2"))
			case !strings.Contains(c.want, ":"):
				got = append(got, m.Format("2006"))
			case startsDay(m):
				got = append(got, m.Format("2 15:04"))
			default:
				got = append(got, m.Format("15:04"))
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s, %s to %s by %d: %s, not %s", c.zone, c.from, c.to, c.most, text, c.want)
		}
	}
}

func FuzzMoments(f *testing.F) {
	f.Add(int64(1_772_000_000), int64(86_400), 8, 0)
	f.Add(int64(-62_135_596_800), int64(253_402_300_799), 3, 1)
	f.Add(int64(0), int64(59), 1, 2)
	f.Add(int64(1<<62), int64(1<<62), 1<<40, 3)
	names := []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "Africa/Cairo"}
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
			t.Errorf("%d moments, of about %d", len(ticks), most)
		}
		for i, m := range ticks {
			if m.Before(begin) || m.After(end) || i > 0 && !m.After(ticks[i-1]) {
				t.Errorf("moment %d is %v, between %v and %v", i, m, begin, end)
			}
			if m.Second() != 0 && m.Year() > 1980 {
				t.Errorf("%v is not round", m)
			}
		}
	})
}
