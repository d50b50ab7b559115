package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// What errors.Is finds in an error of ParseSpec, so that a caller can name the field that is wrong.
var (
	// ErrSpec: the text cannot be taken.
	ErrSpec = errors.New("not a cron spec")
	// ErrZone: the time zone cannot be taken.
	ErrZone = errors.New("not a time zone")
)

// Bounds of what ParseSpec reads.
const (
	// MaxSpec is the longest text of a Spec in bytes.
	MaxSpec = 256
	// MaxEvery is the longest duration of "@every".
	MaxEvery = MaxTier
)

// A Spec says at which times something is due: at those that five fields as in crontab name on the clocks of
// a time zone, or again and again after a duration. [ParseSpec] makes one; the zero value is never due.
//
// Where clocks are changed, what the hour field says decides:
//
//   - A spec that names every hour ("*", "*/1", "0-23", and so "@hourly" and "*/15 * * * *") goes by real
//     time: it is due in each
//     matching minute of each hour that passes, twice in an hour that comes twice, and not at all in one that
//     is skipped. Whoever
//     writes it wants a steady beat, and it would be wrong to be silent for an hour or to be due twice in one
//     minute.
//   - A spec that names some hours ("30 2 * * *", "0 */6 * * *") goes by the wall clock: each time that it
//     names is due exactly
//     once. One that is skipped is due when the gap ends, at the first instant after the change; several in
//     one gap are due
//     together, once. One that comes twice is due the first time. Whoever writes it wants one run a day:
//     neither a day without
//     a settlement nor one with two of them.
//   - "@every" knows no clocks and no time zone.
//
// Day of month and day of week are as in crontab: where neither is "*", a day need fit only one of them.
type Spec struct {
	fields *cron.SpecSchedule // in UTC: the parser's, asked only about wall clocks; nil: the spec is every
	every  int64              // in seconds
	zone   *time.Location
	// steady: every hour is named, so the spec goes by real time.
	steady bool
}

// ParseSpec reads five fields as in crontab ("30 2 * * 1-5"), "@hourly", "@daily", "@midnight", "@weekly",
// "@monthly", "@yearly", "@annually", or "@every" with a duration as [ParseDuration] reads it, in whole
// seconds and from one second to [MaxEvery]. The fields are those of clocks in the time zone, which is as for
// [ParseZone]. A spec that would never be due is refused.
//
// An error is one sentence for people that says what to write instead. It is ErrSpec or ErrZone; where both
// are wrong, ErrSpec.
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

// Zone returns the time zone that the spec was read with, for whoever shows its times; UTC for the zero Spec.
func (s Spec) Zone() *time.Location {
	if s.zone == nil {
		return time.UTC
	}
	return s.zone
}

// Next returns the first due time after t, in UTC and whole seconds; the zero time: there is none, as after
// the year 9999. It takes no longer for a t that is long past.
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

// Resume returns the first due time after both now and due, where due is the due time before, whether it was
// met or missed; the zero time: there is none. "@every" keeps its phase: it is due whole durations after due,
// however many were missed. With a zero due it is Next(now). It takes no longer for much that was missed.
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

// A refusal is a sentence for people, and the field that it is about.
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

// descriptors are the ones that the parser knows, but for "@every".
var descriptors = []string{"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}

// parseText reads a spec whose zone is still missing.
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
		return Spec{}, refuseSpec("%q names a time zone: leave it out of the spec, and give it as the time "+
			"zone beside it", text)
	case name == "@every":
		return parseEvery(text, strings.Trim(rest, " "))
	case name[0] == '@' && (rest != "" || !slices.Contains(descriptors, name)):
		return Spec{}, refuseSpec("%q is not known: write %s", text, shorthands)
	}
	return parseFields(text)
}

// parseEvery reads the duration of an "@every". The parser is not asked: it takes 1ms for a second, and
// 1500ms too.
func parseEvery(text, duration string) (Spec, error) {
	d, err := ParseDuration(duration)
	if err != nil || d < time.Second || d > MaxEvery || d%time.Second != 0 {
		return Spec{}, refuseSpec("%q needs a duration in whole seconds, from 1s to %s: write it such as "+
			"@every 90s, @every 15m or @every 2d",
			text, FormatDuration(MaxEvery))
	}
	return Spec{every: int64(d / time.Second)}, nil
}

// A fieldKind is one of the five fields: what people call it, what may stand in it, and the parser that reads
// it alone.
type fieldKind struct {
	name, what string
	alone      cron.ParseOption
}

var fieldKinds = []fieldKind{
	{"minute", "0 to 59", cron.Minute},
	{"hour", "0 to 23", cron.Hour},
	{"day of month", "1 to 31", cron.Dom},
	{"month", "1 to 12 or jan to dec", cron.Month},
	{"day of week", "0 to 6 or sun to sat (Sunday is 0)", cron.Dow},
}

// allHours are the bits of an hour field that names each of them.
const allHours = 1<<24 - 1

// anyTime is where it is tried whether a spec is ever due. Any would do: the calendar that the fields name
// repeats.
const anyTime = 0

// parseFields reads five fields or a descriptor that stands for five.
func parseFields(text string) (Spec, error) {
	if text[0] != '@' {
		fields := strings.Fields(text)
		switch {
		case len(fields) == len(fieldKinds)+1:
			return Spec{}, refuseSpec("%q has 6 fields, but there is none for seconds: %s", text, fiveFields)
		case len(fields) != len(fieldKinds):
			return Spec{}, refuseSpec("%q has %d of 5 fields: %s", text, len(fields), fiveFields)
		}
		for i, field := range fields {
			k := fieldKinds[i]
			if !wellFormed(field) || read(k.alone, field) == nil {
				return Spec{}, refuseSpec("%q cannot be the %s: write %s, a list of them (1,3), a rising "+
					"range (1-5), a step (*/2), or *",
					field, k.name, k.what)
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
		return Spec{}, refuseSpec("%q is never due: name a day that one of its months has", text)
	}
	return s, nil
}

// wellFormed refuses what the parser takes for more than was written: an empty part of a list is left out by
// it, even where that leaves nothing, and "*-5" is "*".
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

// read asks the parser; nil: it does not take the text. That it panics on some texts must not become the
// caller's end.
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
