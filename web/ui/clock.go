package ui

import (
	"html/template"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A zoneChoice is the time zone in which a viewer is shown times.
type zoneChoice struct {
	name string
	*time.Location
}

// utc is shown to a viewer who has chosen none and whose browser has not said where it is.
var utc = zoneChoice{"UTC", time.UTC}

// zoneOf returns the zone of an IANA name that came from a browser.
func zoneOf(name string) (zoneChoice, bool) {
	// Local is the server's own, and means something else on the next one
	if name == "" || name == "Local" || len(name) > 64 {
		return utc, false
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return utc, false
	}
	return zoneChoice{name, location}, true
}

// absolute is how a moment is written: in the viewer's zone, with the offset, to the millisecond where that
// is of use.
const (
	absolute      = "2006-01-02 15:04:05" + noBreak + "-07:00"
	absoluteExact = "2006-01-02 15:04:05.000" + noBreak + "-07:00"
	// noBreak is a space at which no line ends.
	noBreak = "\u00a0"
	// wireTime is how HTML wants it for programs.
	wireTime = "2006-01-02T15:04:05.000Z07:00"
	// inputTime is how a field of a form has it, without an offset: it is in the viewer's zone.
	inputTime = "2006-01-02T15:04:05"
)

// relativeBegin begins what says how far away a moment is.
const relativeBegin = `<span class="rel">`

// Time writes a moment in Unix milliseconds, with how far away it is beside it; zero: a dash.
func (b *base) Time(ms int64) template.HTML { return b.time(ms, absolute) }

// Exact is Time with milliseconds.
func (b *base) Exact(ms int64) template.HTML { return b.time(ms, absoluteExact) }

func (b *base) time(ms int64, layout string) template.HTML {
	if ms <= 0 {
		return `<span class="none">–</span>`
	}
	t := time.UnixMilli(ms).In(b.zone.Location)
	// Both are digits and a few signs, or a text of the catalogue: nothing of it comes from outside.
	return template.HTML(`<time datetime="` + t.UTC().Format(wireTime) +
		`"><span class="abs" translate="no">` + t.Format(layout) + `</span> ` + relativeBegin +
		template.HTMLEscapeString(b.relative(ms)) + `</span></time>`)
}

// Moment is what a field of a form holds of a moment that was typed or stands in an address: the moment as
// such fields have it, or nothing where it is none.
func (b *base) Moment(typed string) string {
	ms, ok := b.r.parseInput(typed)
	if !ok {
		return ""
	}
	return inputOf(b.r, ms)
}

// inputOf writes a moment as a field of a form has it.
func inputOf(r *request, ms int64) string {
	return time.UnixMilli(ms).In(r.zone.Location).Format(inputTime)
}

// Absolute writes a moment as plain text.
func (b *base) Absolute(ms int64) string {
	if ms <= 0 {
		return "–"
	}
	return time.UnixMilli(ms).In(b.zone.Location).Format(absolute)
}

// relative says how far away a moment is.
func (b *base) relative(ms int64) string {
	switch d := ms - b.now; {
	case d > 500:
		return b.T("time.in", "d", shortDuration(time.Duration(d)*time.Millisecond))
	case d < -500:
		return b.T("time.ago", "d", shortDuration(time.Duration(-d)*time.Millisecond))
	}
	return b.T("time.now")
}

// Between writes how long a moment is after another one.
func (b *base) Between(from, to int64) string {
	return shortDuration(time.Duration(max(to-from, 0)) * time.Millisecond)
}

// shortDuration writes a length of time in its two largest units, as the API does: "2d3h", "1m20s", "350ms".
func shortDuration(d time.Duration) string {
	if d < 0 {
		return "-" + shortDuration(-d)
	}
	const day = 24 * time.Hour
	for _, unit := range []struct{ least, to time.Duration }{
		{10 * day, day}, {day, time.Hour}, {time.Hour, time.Minute}, {10 * time.Second, time.Second},
		{time.Second, 100 * time.Millisecond},
	} {
		if d >= unit.least {
			return schedule.FormatDuration(d.Round(unit.to))
		}
	}
	return schedule.FormatDuration(d.Round(time.Millisecond))
}
