package ui

import (
	"html/template"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A zoneChoice is the time zone of a viewer, with its IANA name.
type zoneChoice struct {
	name string
	*time.Location
}

// utc is the zone until the viewer or the browser's script sets one.
var utc = zoneChoice{"UTC", time.UTC}

// zoneOf returns the zone of an IANA name from a browser. It returns UTC and false for an invalid name.
func zoneOf(name string) (zoneChoice, bool) {
	// Go accepts "Local" too. It is the server's zone, which differs from process to process.
	if name == "" || name == "Local" || len(name) > 64 {
		return utc, false
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return utc, false
	}
	return zoneChoice{name, location}, true
}

// Layouts of times.
const (
	// absolute and absoluteExact are for times in pages, in the viewer's zone with the offset.
	absolute      = "2006-01-02 15:04:05" + noBreak + "-07:00"
	absoluteExact = "2006-01-02 15:04:05.000" + noBreak + "-07:00"
	// noBreak is a no-break space.
	noBreak = "\u00a0"
	// htmlTime is for the datetime attribute.
	htmlTime = "2006-01-02T15:04:05.000Z07:00"
	// inputTime is for form fields. It has no offset: the time is in the viewer's zone.
	inputTime = "2006-01-02T15:04:05"
)

// relativeBegin begins the relative time in the HTML of a time. timeless removes it.
const relativeBegin = `<span class="rel">`

// Time formats a time in Unix milliseconds, absolute and relative to now. Zero is a dash.
func (b *base) Time(ms int64) template.HTML { return b.time(ms, absolute) }

// Exact is Time with milliseconds.
func (b *base) Exact(ms int64) template.HTML { return b.time(ms, absoluteExact) }

func (b *base) time(ms int64, layout string) template.HTML {
	if ms <= 0 {
		return `<span class="none">–</span>`
	}
	t := time.UnixMilli(ms).In(b.zone.Location)
	// The HTML is safe: the times are digits and punctuation, and the relative time is escaped.
	return template.HTML(`<time datetime="` + t.UTC().Format(htmlTime) +
		`"><span class="abs" translate="no">` + t.Format(layout) + `</span> ` + relativeBegin +
		template.HTMLEscapeString(b.relative(ms)) + `</span></time>`)
}

// Moment returns a typed time in the format of form fields, or "" if it is not a time.
func (b *base) Moment(typed string) string {
	ms, ok := b.r.parseInput(typed)
	if !ok {
		return ""
	}
	return inputText(b.r, ms)
}

// inputText formats a time for a form field.
func inputText(r *request, ms int64) string {
	return time.UnixMilli(ms).In(r.zone.Location).Format(inputTime)
}

// Absolute formats a time as plain text. Zero is a dash.
func (b *base) Absolute(ms int64) string {
	if ms <= 0 {
		return "–"
	}
	return time.UnixMilli(ms).In(b.zone.Location).Format(absolute)
}

// relative formats a time relative to now, such as "5s ago".
func (b *base) relative(ms int64) string {
	switch d := ms - b.now; {
	case d > 500:
		return b.T("time.in", "d", shortDuration(time.Duration(d)*time.Millisecond))
	case d < -500:
		return b.T("time.ago", "d", shortDuration(time.Duration(-d)*time.Millisecond))
	}
	return b.T("time.now")
}

// Between formats the duration from one time to another.
func (b *base) Between(from, to int64) string {
	return shortDuration(time.Duration(max(to-from, 0)) * time.Millisecond)
}

// shortDuration formats a duration in its two largest units, such as "2d3h", "1m20s" or "350ms".
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
