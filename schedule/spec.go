package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// ParseSpec returns errors of these two kinds, so that a caller can name the wrong field.
var (
	// ErrSpec: the spec is invalid.
	ErrSpec = errors.New("not a cron spec")
	// ErrZone: the time zone is invalid.
	ErrZone = errors.New("not a time zone")
)

// Bounds of ParseSpec.
const (
	// MaxSpec is the longest spec in bytes.
	MaxSpec = 256
	// MaxEvery is the longest duration of "@every".
	MaxEvery = MaxTier
)

// A Spec is a set of times: those that five crontab fields describe on the wall clock of a time zone, or
// those at a fixed interval ("@every"). [ParseSpec] makes one; the zero value is never due.
//
// When a zone changes its clocks, the hour field decides:
//
//   - A spec that names every hour ("*", "*/1", "0-23", and so "@hourly" and "*/15 * * * *") follows real
//     time. It is due in each matching minute of each hour that passes: twice in an hour that repeats, and
//     never in an hour that is skipped. Its author wants a steady interval. An hour without a run, or two
//     runs in one minute, would be wrong.
//   - A spec that names some hours ("30 2 * * *", "0 */6 * * *") follows the wall clock. Each time that it
//     names is due exactly once. A skipped time is due at the first instant after the gap; several times in
//     one gap are due there once. A repeated time is due the first time. Its author wants one run a day: no
//     day without a settlement, and no day with two.
//   - "@every" depends on no wall clock and no time zone.
//
// Day of month and day of week combine as in crontab: if neither is "*", a day must match only one of them.
type Spec struct {
	fields *cron.SpecSchedule // of the parser, in UTC, used for wall clocks only; nil: the spec is "@every"
	every  int64              // in seconds
	zone   *time.Location
	// steady: the spec names every hour and so follows real time.
	steady bool
}

// ParseSpec reads five crontab fields ("30 2 * * 1-5"), "@hourly", "@daily", "@midnight", "@weekly",
// "@monthly", "@yearly", "@annually", or "@every" with a duration. [ParseDuration] reads the duration: whole
// seconds, from one second to [MaxEvery]. [ParseZone] reads the time zone, in which the fields name wall
// clock times. A spec that would never be due is refused.
//
// An error is one sentence for users that says what to write instead. It is ErrSpec or ErrZone; if both are
// wrong, ErrSpec.
func ParseSpec(text, timezone string) (Spec, error) {
	s, err := parseText(text)
	if err != nil {
		return Spec{}, err
	}
	s.zone, err = ParseZone(timezone)
	if err != nil {
		return Spec{}, err
	}
	return s, nil
}

// Zone returns the time zone of the spec, in which its times are displayed; UTC for the zero Spec.
func (s Spec) Zone() *time.Location {
	if s.zone == nil {
		return time.UTC
	}
	return s.zone
}

// Next returns the first due time after t, in UTC and whole seconds. It returns the zero time if there is
// none: for the zero Spec and after the year 9999. Its duration does not depend on how long ago t is.
func (s Spec) Next(t time.Time) time.Time {
	after := max(t.Unix(), firstSecond)
	switch {
	case after > lastSecond:
		return time.Time{}
	case s.every > 0:
		return at(after + s.every)
	case s.fields == nil:
		return time.Time{}
	case s.steady:
		return at(s.nextSteady(after))
	default:
		return at(s.nextWall(after))
	}
}

// Resume returns the first due time after both now and due; due is the previous due time, met or missed. It
// returns the zero time if there is none. "@every" keeps its phase: the result is a whole number of intervals
// after due. With a zero due the result is Next(now). The duration does not depend on how many times were
// missed.
func (s Spec) Resume(due, now time.Time) time.Time {
	if s.every == 0 {
		if due.After(now) {
			now = due
		}
		return s.Next(now)
	}
	if due.IsZero() {
		return s.Next(now)
	}
	from, to := max(due.Unix(), firstSecond), max(now.Unix(), firstSecond)
	if from > lastSecond || to > lastSecond {
		return time.Time{}
	}
	missed := max(to-from, 0) / s.every
	return at(from + (missed+1)*s.every)
}

// A refusal is an error for users and the field that it is about: ErrSpec or ErrZone.
type refusal struct {
	field error
	why   string
}

func (r *refusal) Error() string { return r.why }

func (r *refusal) Unwrap() error { return r.field }

func refuseSpec(format string, args ...any) error {
	return &refusal{field: ErrSpec, why: fmt.Sprintf(format, args...)}
}

const (
	fiveFields = "write five fields: minute, hour, day of month, month and day of week, such as 30 2 * * 1-5"
	shorthands = "@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or @every with a " +
		"duration, such as @every 15m"
)

// descriptors are those of the parser, without "@every".
var descriptors = []string{"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}

// parseText reads a spec; the caller adds its zone.
func parseText(text string) (Spec, error) {
	if len(text) > MaxSpec {
		return Spec{}, refuseSpec("the spec is longer than %d characters: %s", MaxSpec, fiveFields)
	}
	text = strings.Trim(text, " ")
	foreign := strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
	switch name, rest, _ := strings.Cut(text, " "); {
	case text == "":
		return Spec{}, refuseSpec("the spec is empty: %s", fiveFields)
	case foreign:
		return Spec{}, refuseSpec("%q has characters other than ASCII letters, digits, signs and spaces: %s",
			text, fiveFields)
	case strings.Contains(text, "TZ="):
		return Spec{}, refuseSpec("%q names a time zone: remove it and set the time zone separately", text)
	case name == "@every":
		return parseEvery(text, strings.Trim(rest, " "))
	case name[0] == '@' && (rest != "" || !slices.Contains(descriptors, name)):
		return Spec{}, refuseSpec("%q is unknown: write %s", text, shorthands)
	}
	return parseFields(text)
}

// parseEvery reads the duration of "@every". The parser is not used: it rounds 1ms and 1500ms to one second.
func parseEvery(text, duration string) (Spec, error) {
	d, err := ParseDuration(duration)
	if err != nil || d < time.Second || d > MaxEvery || d%time.Second != 0 {
		return Spec{}, refuseSpec("%q needs a duration in whole seconds from 1s to %s, such as @every 90s, "+
			"@every 15m or @every 2d", text, FormatDuration(MaxEvery))
	}
	return Spec{every: int64(d / time.Second)}, nil
}

// A fieldKind describes one of the five fields: its name and its values for users, and the parser's option
// that reads this field alone.
type fieldKind struct {
	name, what string
	option     cron.ParseOption
}

var fieldKinds = []fieldKind{
	{"minute", "0 to 59", cron.Minute},
	{"hour", "0 to 23", cron.Hour},
	{"day of month", "1 to 31", cron.Dom},
	{"month", "1 to 12 or jan to dec", cron.Month},
	{"day of week", "0 to 6 or sun to sat (Sunday is 0)", cron.Dow},
}

// allHours has the bits of an hour field that names every hour.
const allHours = 1<<24 - 1

// anyTime is the wall time at which parseFields starts to look for a first match. Any other would do, because
// the calendar of the fields repeats.
const anyTime = 0

// parseFields reads five fields, or a descriptor that stands for five.
func parseFields(text string) (Spec, error) {
	if text[0] != '@' {
		fields := strings.Fields(text)
		switch {
		case len(fields) == len(fieldKinds)+1:
			return Spec{}, refuseSpec("%q has 6 fields, but seconds are not supported: %s", text, fiveFields)
		case len(fields) != len(fieldKinds):
			return Spec{}, refuseSpec("%q has %d of 5 fields: %s", text, len(fields), fiveFields)
		}
		for i, field := range fields {
			k := fieldKinds[i]
			if !wellFormed(field) || read(k.option, field) == nil {
				return Spec{}, refuseSpec("%q is not a valid %s: write %s, a list of them (1,3), a rising "+
					"range (1-5), a step (*/2), or *", field, k.name, k.what)
			}
		}
	}
	parsed := read(cron.Minute|cron.Hour|cron.Dom|cron.Month|cron.Dow|cron.Descriptor, text)
	if parsed == nil {
		return Spec{}, refuseSpec("%q cannot be read: %s", text, fiveFields)
	}
	parsed.Location = time.UTC
	s := Spec{fields: parsed, steady: parsed.Hour&allHours == allHours}
	if _, ok := s.match(anyTime); !ok {
		return Spec{}, refuseSpec("%q never occurs: name a day that exists in one of its months", text)
	}
	return s, nil
}

// wellFormed refuses fields that the parser would accept and read in another way than their author means. The
// parser ignores an empty part of a list, even if the whole list is empty, and reads "*-5" as "*" and "+5" as
// 5. Whether the values of a well-formed field are valid is for the parser to decide.
func wellFormed(field string) bool {
	if strings.Trim(field, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ*?,/-") != "" {
		return false
	}
	for part := range strings.SplitSeq(field, ",") {
		if part == "" || strings.HasPrefix(part, "*-") || strings.HasPrefix(part, "?-") {
			return false
		}
	}
	return true
}

// read calls the parser; nil: the text is invalid. The parser panics on some texts. read recovers, so that a
// user's spec cannot end the process.
func read(options cron.ParseOption, text string) (s *cron.SpecSchedule) {
	defer func() {
		if recover() != nil {
			s = nil
		}
	}()
	parsed, err := cron.NewParser(options).Parse(text)
	if err != nil {
		return nil
	}
	s, _ = parsed.(*cron.SpecSchedule)
	return s
}
