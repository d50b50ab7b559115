package picture

import "time"

// moments gives the round moments from one moment to another in a place, ascending, about most of them and
// never more than twice as many. Round is what clocks and calendars there show: after a change of the clocks,
// hours are still round.
func moments(from, to time.Time, most int, in *time.Location) []time.Time {
	from, to = from.In(in), to.In(in)
	most = max(most, 1)
	if !from.Before(to) || from.Year() < 1 || to.Year() > 9999 {
		return nil
	}
	span := float64(to.Unix()-from.Unix()) / 60 // minutes
	enough := func(minutes int) bool { return span/float64(minutes) <= float64(most) }
	c := collector{from: from, to: to, most: 2 * most}
	// The steps between moments on an axis: minutes, hours, days (of which 7 and 14 begin on a Monday),
	// months, years.
	for _, unit := range []struct {
		minutes int
		every   func(n int) []time.Time
		steps   []int
	}{
		{1, c.minutes, []int{1, 2, 5, 10, 15, 30}}, {60, c.hours, []int{1, 2, 3, 6, 12}},
		{60 * 24, c.days, []int{1, 2, 7, 14}}, {60 * 24 * 30, c.months, []int{1, 2, 3, 6}},
	} {
		for _, n := range unit.steps {
			if enough(n * unit.minutes) {
				return unit.every(n)
			}
		}
	}
	for n := 1; ; n *= 10 {
		for _, f := range []int{1, 2, 5} {
			if enough(f * n * 60 * 24 * 365) {
				return c.months(12 * f * n)
			}
		}
	}
}

// A collector keeps the moments that are within its ends and after the one before.
type collector struct {
	from, to time.Time
	most     int
	kept     []time.Time
}

// add says whether there may be more.
func (c *collector) add(t time.Time) bool {
	if t.After(c.to) || len(c.kept) >= c.most {
		return false
	}
	if !t.Before(c.from) && (len(c.kept) == 0 || t.After(c.kept[len(c.kept)-1])) {
		c.kept = append(c.kept, t)
	}
	return true
}

func (c *collector) minutes(n int) []time.Time {
	step := time.Duration(n) * time.Minute
	t := c.from.Add(-time.Duration(c.from.Minute())*time.Minute - time.Duration(c.from.Second())*time.Second -
		time.Duration(c.from.Nanosecond()))
	for c.add(t) {
		t = t.Add(step)
	}
	return c.kept
}

func (c *collector) hours(n int) []time.Time {
	year, month, day := c.from.Date()
	for {
		for h := 0; h < 24; h += n {
			t := time.Date(year, month, day, h, 0, 0, 0, c.from.Location())
			if t.Hour() == h && !c.add(t) { // an hour that the clocks leave out is none
				return c.kept
			}
		}
		day++
	}
}

func (c *collector) days(n int) []time.Time {
	year, month, day := c.from.Date()
	// of which Mondays are multiples of 7
	number := int(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()/86400) + 3
	for skip := ((-number)%n + n) % n; c.add(midnight(year, month, day+skip, c.from.Location())); skip += n {
	}
	return c.kept
}

func (c *collector) months(n int) []time.Time {
	months := c.from.Year()*12 + int(c.from.Month()) - 1
	for months -= months % n; c.add(midnight(0, time.Month(months+1), 1, c.from.Location())); months += n {
	}
	return c.kept
}

// midnight is when a day begins; where the clocks leave out its first hour, an hour later.
func midnight(year int, month time.Month, day int, in *time.Location) time.Time {
	t := time.Date(year, month, day, 0, 0, 0, 0, in)
	if t.Hour() >= 12 {
		t = t.Add(time.Hour)
	}
	return t
}

// startsDay says whether a new day begins with a moment.
func startsDay(t time.Time) bool { return t.Add(-time.Nanosecond).Day() != t.Day() }
