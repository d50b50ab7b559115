package schedule

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// This file finds the instants at which the clocks of a zone show what a Spec's fields name. Instants are
// Unix seconds. A wall time is what clocks show, as the Unix seconds at which clocks in UTC show the same:
// instant plus offset.

// The seconds between which a Spec is asked and answers: the years 1 to 9999, which every calendar and every
// format that a time is written in can hold.
const (
	firstSecond = -62135596800
	lastSecond  = 253402300799
)

const (
	// farthest is more than any zone is from UTC.
	farthest = 30 * 3600
	// never is later than every instant.
	never = math.MaxInt64
	// longestRepeat is more than clocks were ever put back by, twice: what was repeated is over by then,
	// whatever came before it.
	longestRepeat = 72 * 3600
	// longestSearch bounds the search for a time by real time. The longest that a spec rests is from one leap
	// day to the next around a year such as 2100, eight years; the leap days themselves exist in every zone.
	longestSearch = 20 * 366 * 86400
)

// ParseZone returns the time zone of an IANA name; "" is UTC. A name that means something else on another
// machine, such as "Local", is refused, and so is what is there on some machines only, such as
// "right/Europe/Berlin". An error is ErrZone, and one sentence for people.
func ParseZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	// The database has no name that is longer than 32 characters.
	if len(name) > 64 {
		return nil, refuseZone("the time zone is longer than any")
	}
	if portable(name) {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, refuseZone(fmt.Sprintf("the time zone %q is not known", name))
}

func refuseZone(why string) error {
	return &refusal{field: ErrZone, why: why + ": give an IANA name, such as Asia/Shanghai, or UTC"}
}

// portable says whether a name could be in the database, and not only a file beside it. It decides before a
// file is looked for.
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

// at returns an instant as a time; the zero time where it is beyond the last that is answered.
func at(second int64) time.Time {
	if second > lastSecond {
		return time.Time{}
	}
	return time.Unix(second, 0).UTC()
}

// offset returns the zone's offset in seconds at an instant, and the instant until which, at least, it stays
// so; never: for good.
func offset(zone *time.Location, instant int64) (seconds, until int64) {
	t := time.Unix(instant, 0).In(zone)
	_, o := t.Zone()
	_, end := t.ZoneBounds()
	switch {
	case end.IsZero():
		return int64(o), never
	case end.Unix() <= instant:
		// In the years of a zone's last rule the library ends the year after 365 days, and in a leap year
		// that leaves out its last day, on which no rule can take effect any more.
		return int64(o), instant - mod(instant, 86400) + 86400
	default:
		return int64(o), end.Unix()
	}
}

// mod is what is left of n after whole times of d, also where n is below zero.
func mod(n, d int64) int64 { return (n%d + d) % d }

// match returns the first wall time that the fields name, not before wall, and false where there is none.
func (s Spec) match(wall int64) (int64, bool) {
	t := time.Unix(wall-1, 0).UTC()
	next := s.fields.Next(t)
	if next.IsZero() {
		// The parser's schedule gives up after the fifth year, but leap days are up to eight apart.
		next = s.fields.Next(time.Date(t.Year()+6, time.January, 1, 0, 0, -1, 0, time.UTC))
	}
	return next.Unix(), !next.IsZero()
}

// nextSteady returns the first instant after an instant at which clocks show what is named, whether they show
// it again or not; never: there is none.
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

// nextWall returns the first instant after an instant at which a wall time that is named is due; never: there
// is none. A wall time is due at the first instant at which clocks show it, or a later one: so each is due
// once, and one in a gap when the gap ends. What is due after an instant are therefore just the wall times
// beyond all that clocks have shown until then.
func (s Spec) nextWall(after int64) int64 {
	wall, ok := s.match(s.highest(after) + 1)
	if !ok {
		return never
	}
	// No clock is so far ahead that it would show the time before this.
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

// highest returns the highest wall time that clocks have shown up to an instant.
func (s Spec) highest(instant int64) int64 {
	h := int64(math.MinInt64)
	for from := instant - longestRepeat; from <= instant; {
		o, until := offset(s.zone, from)
		h = max(h, min(until-1, instant)+o)
		from = until
	}
	return h
}
