package picture

import "time"

// moments returns the round times between two times, ascending: about most of them and at most twice as many.
// They are round in the local time of in, also after a change to or from daylight saving time.
func moments(from, to time.Time, most int, in *time.Location) []time.Time {
	from, to = from.In(in), to.In(in)
	most = max(most, 1)
	if !from.Before(to) || from.Year() < 1 || to.Year() > 9999 {
		return nil
	}
	span := float64(to.Unix()-from.Unix()) / 60 // minutes
	enough := func(minutes int) bool { return span/float64(minutes) <= float64(most) }
	c := collector{from: from, to: to, most: 2 * most}
	// The steps of an axis: minutes, hours, days, months, years. Steps of 7 and 14 days begin on a Monday.
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

// A collector collects ascending times within its ends.
type collector struct {
	from, to time.Time
	most     int
	found    []time.Time
}

// add adds a time unless it is before from or not after the last one. It reports whether more can follow.
func (c *collector) add(t time.Time) bool {
	if t.After(c.to) || len(c.found) >= c.most {
		return false
	}
	if !t.Before(c.from) && (len(c.found) == 0 || t.After(c.found[len(c.found)-1])) {
		c.found = append(c.found, t)
	}
	return true
}

// minutes, hours, days and months collect the times at round distances of n units.
func (c *collector) minutes(n int) []time.Time {
	step := time.Duration(n) * time.Minute
	t := c.from.Add(-time.Duration(c.from.Minute())*time.Minute - time.Duration(c.from.Second())*time.Second -
		time.Duration(c.from.Nanosecond()))
	for c.add(t) {
		t = t.Add(step)
	}
	return c.found
}

func (c *collector) hours(n int) []time.Time {
	year, month, day := c.from.Date()
	for {
		for h := 0; h < 24; h += n {
			t := time.Date(year, month, day, h, 0, 0, 0, c.from.Location())
			// An hour that daylight saving time skips has another t.Hour.
			if t.Hour() == h && !c.add(t) {
				return c.found
			}
		}
		day++
	}
}

func (c *collector) days(n int) []time.Time {
	year, month, day := c.from.Date()
	// number is a day number in which Mondays are multiples of 7.
	number := int(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()/86400) + 3
	for skip := ((-number)%n + n) % n; c.add(midnight(year, month, day+skip, c.from.Location())); skip += n {
	}
	return c.found
}

func (c *collector) months(n int) []time.Time {
	months := c.from.Year()*12 + int(c.from.Month()) - 1
	for months -= months % n; c.add(midnight(0, time.Month(months+1), 1, c.from.Location())); months += n {
	}
	return c.found
}

// midnight returns the begin of a day. If daylight saving time skips the first hour, that is 01:00.
func midnight(year int, month time.Month, day int, in *time.Location) time.Time {
	t := time.Date(year, month, day, 0, 0, 0, 0, in)
	if t.Hour() >= 12 {
		t = t.Add(time.Hour)
	}
	return t
}

// startsDay reports whether a day begins at t.
func startsDay(t time.Time) bool { return t.Add(-time.Nanosecond).Day() != t.Day() }
