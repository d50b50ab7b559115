package schedule

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// This file computes the instants at which the wall clock of a zone shows the times that a Spec's fields
// name. An instant is in Unix seconds. A wall time is the reading of a wall clock, expressed as the Unix
// second at which a UTC clock shows the same reading: instant plus offset.

// A Spec handles the years 1 to 9999. Every calendar and every time format can hold them.
const (
	firstSecond = -62135596800
	lastSecond  = 253402300799
)

const (
	// farthest is more than the offset of any zone from UTC.
	farthest = 30 * 3600
	// never is later than every instant.
	never = math.MaxInt64
	// longestRepeat is more than twice the largest step back of any zone. A repeat that began so long ago is
	// over.
	longestRepeat = 72 * 3600
	// longestSearch bounds the search of nextSteady. The longest gap between two due times is eight years,
	// from one leap day to the next around a year such as 2100. Every zone has its leap days.
	longestSearch = 20 * 366 * 86400
)

// ParseZone returns the time zone of an IANA name; "" is UTC. It refuses names whose meaning depends on the
// machine, such as "Local", and names that only some machines have, such as "right/Europe/Berlin". An error
// is ErrZone, and one sentence for users.
func ParseZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	// No name in the IANA database is longer than 32 characters.
	if len(name) > 64 {
		return nil, refuseZone("the name of the time zone is too long")
	}
	if portable(name) {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, refuseZone(fmt.Sprintf("unknown time zone %q", name))
}

func refuseZone(why string) error {
	return &refusal{field: ErrZone, why: why + ": use an IANA name, such as Asia/Shanghai, or UTC"}
}

// portable reports whether every machine's IANA database could have the name. ParseZone calls it before
// time.LoadLocation, which would open other files of the machine.
func portable(name string) bool {
	switch {
	case strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/_+-") != "":
		return false
	case name[0] == '/', strings.HasSuffix(name, "/"), strings.Contains(name, "//"):
		return false
	case strings.HasPrefix(name, "posix/"), strings.HasPrefix(name, "right/"): // right counts leap seconds
		return false
	}
	return name != "Local" && name != "localtime" && name != "posixrules" && name != "Factory"
}

// at returns an instant as a time, or the zero time if it is after lastSecond.
func at(second int64) time.Time {
	if second > lastSecond {
		return time.Time{}
	}
	return time.Unix(second, 0).UTC()
}

// offset returns the zone's offset in seconds at an instant, and an instant until which the offset surely
// stays the same; never: for ever.
func offset(zone *time.Location, instant int64) (seconds, until int64) {
	t := time.Unix(instant, 0).In(zone)
	_, o := t.Zone()
	_, end := t.ZoneBounds()
	switch {
	case end.IsZero():
		return int64(o), never
	case end.Unix() <= instant:
		// In the years of a zone's last rule, package time ends the year after 365 days. In a leap year that
		// leaves out the last day. No rule takes effect on that day.
		return int64(o), instant - mod(instant, 86400) + 86400
	default:
		return int64(o), end.Unix()
	}
}

// mod returns the remainder of n divided by d, from 0 to d-1 even if n is negative.
func mod(n, d int64) int64 { return (n%d + d) % d }

// match returns the first wall time, wall or later, that the fields name, and false if there is none.
func (s Spec) match(wall int64) (int64, bool) {
	t := time.Unix(wall-1, 0).UTC()
	next := s.fields.Next(t)
	if next.IsZero() {
		// The parser's schedule stops searching after five years. Leap days can be eight years apart.
		next = s.fields.Next(time.Date(t.Year()+6, time.January, 1, 0, 0, -1, 0, time.UTC))
	}
	return next.Unix(), !next.IsZero()
}

// nextSteady returns the first instant after an instant at which the wall clock shows a named time, even if
// it repeats; never: there is none.
func (s Spec) nextSteady(after int64) int64 {
	for from := after + 1; from < after+longestSearch; {
		o, until := offset(s.zone, from)
		wall, ok := s.match(from + o)
		if !ok {
			return never
		}
		if wall-o < until {
			return wall - o
		}
		from = until
	}
	return never
}

// nextWall returns the first instant after an instant at which a named wall time is due; never: there is
// none. A wall time is due at the first instant at which the wall clock shows it or a later time. So each is
// due once, and a skipped one is due when the gap ends. Therefore the wall times due after an instant are
// those beyond the highest reading up to the instant.
func (s Spec) nextWall(after int64) int64 {
	wall, ok := s.match(s.highest(after) + 1)
	if !ok {
		return never
	}
	// No zone is so far ahead of UTC that its clock shows the wall time before this instant.
	for from := max(after, wall-farthest); ; {
		o, until := offset(s.zone, from)
		if from+o >= wall {
			return from
		}
		if wall-o < until {
			return wall - o
		}
		from = until
	}
}

// highest returns the highest reading of the wall clock up to an instant.
func (s Spec) highest(instant int64) int64 {
	h := int64(math.MinInt64)
	for from := instant - longestRepeat; from <= instant; {
		o, until := offset(s.zone, from)
		h = max(h, min(until-1, instant)+o)
		from = until
	}
	return h
}
