package ui

import (
	"html/template"
	"math"
	"regexp"
	"strconv"
	"strings"
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

// commonZones are the zones that fields and lists offer.
var commonZones = []string{
	"UTC", "Asia/Shanghai", "Asia/Hong_Kong", "Asia/Singapore", "Asia/Tokyo", "Asia/Kolkata",
	"Europe/London", "Europe/Berlin", "America/Sao_Paulo", "America/New_York", "America/Los_Angeles",
	"Australia/Sydney",
}

// askZone returns a field for an IANA name.
func (b *base) askZone(name, key string) field {
	f := b.askMono(name, key, "Asia/Shanghai")
	f.Names = commonZones
	return f
}

// Layouts of times. Pages say the zone once, in their footer.
const (
	clockExact = "15:04:05.000"
	clock      = "15:04:05"
	monthDay   = "01-02 "
	yearDay    = "2006-01-02 "
	// htmlTime is for the datetime attribute.
	htmlTime = "2006-01-02T15:04:05.000Z07:00"
	// inputTime is for form fields. It has no offset: the time is in the viewer's zone.
	inputTime = "2006-01-02T15:04:05"
	// noBreak is a no-break space.
	noBreak = "\u00a0"
)

// relativeBegin begins the relative time in the HTML of a time. timeless removes it.
const relativeBegin = `<span class="rel">`

// Time formats a time in Unix milliseconds relative to now, for lists. The absolute time appears while the
// pointer or the focus is on it or on its row. Zero is a dash.
func (b *base) Time(ms int64) template.HTML {
	if ms <= 0 {
		return noTime
	}
	t := time.UnixMilli(ms).In(b.zone.Location)
	// The HTML is safe: the times are digits and punctuation, and the relative time is escaped.
	return template.HTML(`<time datetime="` + t.UTC().Format(htmlTime) + `" data-at="` +
		b.moment(t, clock) + `">` + relativeBegin +
		template.HTMLEscapeString(b.relative(ms)) + `</span></time>`)
}

// Exact formats a time in Unix milliseconds absolutely, for details: the time of day with milliseconds if it
// is today, else day and time. Zero is a dash.
func (b *base) Exact(ms int64) template.HTML {
	if ms <= 0 {
		return noTime
	}
	t := time.UnixMilli(ms).In(b.zone.Location)
	return template.HTML(`<time datetime="` + t.UTC().Format(htmlTime) + `" title="` +
		t.Format(yearDay+clockExact+" -07:00") + `" translate="no">` + b.moment(t, clockExact) + `</time>`)
}

// noTime is the HTML of a missing time.
const noTime template.HTML = `<span class="none">–</span>`

// moment formats a time in the viewer's zone. It omits the day if that is today, else the year if that is
// this year. today is the layout for today.
func (b *base) moment(t time.Time, today string) string {
	now := time.UnixMilli(b.now).In(b.zone.Location)
	switch {
	case t.Year() != now.Year():
		return t.Format(yearDay + clock)
	case t.YearDay() != now.YearDay():
		return t.Format(monthDay + clock)
	}
	return t.Format(today)
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
	return b.moment(time.UnixMilli(ms).In(b.zone.Location), clock)
}

// inZone returns a time in the viewer's zone.
func (b *base) inZone(ms int64) time.Time { return time.UnixMilli(ms).In(b.zone.Location) }

// Offset returns the current offset of the viewer's zone, such as +08:00.
func (b *base) Offset() string { return time.UnixMilli(b.now).In(b.zone.Location).Format("-07:00") }

// relative formats a time relative to now, such as "5s ago".
func (b *base) relative(ms int64) string {
	switch d := ms - b.now; {
	case d > 500:
		return b.T("time.in", "d", b.duration(time.Duration(d)*time.Millisecond))
	case d < -500:
		return b.T("time.ago", "d", b.duration(time.Duration(-d)*time.Millisecond))
	}
	return b.T("time.now")
}

// Between formats the duration from one time to another.
func (b *base) Between(from, to int64) string {
	return b.duration(time.Duration(max(to-from, 0)) * time.Millisecond)
}

// duration formats a duration in the viewer's language.
func (b *base) duration(d time.Duration) string { return b.lang.duration(d) }

// durationUnit is a number and a unit of schedule.FormatDuration.
var durationUnit = regexp.MustCompile(`([\d.]+)(ms|d|h|m|s)`)

// duration formats a duration in its two largest units.
func (l *language) duration(d time.Duration) string {
	return durationUnit.ReplaceAllStringFunc(shortDuration(d), l.unit)
}

// millis formats milliseconds: below 10 ms with one decimal place, else as a duration.
func (l *language) millis(ms float64) string {
	if ms < 10 {
		return l.unit(strconv.FormatFloat(math.Round(ms*10)/10, 'f', -1, 64) + "ms")
	}
	return l.duration(time.Duration(math.Round(ms)) * time.Millisecond)
}

// unit formats a number with a unit, such as "3m".
func (l *language) unit(part string) string {
	m := durationUnit.FindStringSubmatch(part)
	if key := "unit." + m[2]; l.has(key) {
		return l.text(key, "n", m[1])
	}
	return part
}

// Units returns the viewer's words for day, hour, minute, second and millisecond, for the page's script.
func (b *base) Units() string {
	words := []string{"d", "h", "m", "s", "ms"}
	for i, unit := range words {
		words[i] = strings.TrimPrefix(b.lang.unit("0"+unit), "0")
	}
	return strings.Join(words, " ")
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
