package picture

import (
	"slices"
	"strconv"
	"time"
)

// plotWidth is the width of the plot in SVG units. The browser stretches it to the available width.
const plotWidth = 1000

// plots are the widths in pixels for which labels are placed. The style sheet shows all labels at the widest.
// With less room it hides those of class pic-x3, and on a page of 400 pixels those of pic-x2 too.
var plots = [3]int{280, 460, 720}

// A span is the time axis of one chart.
type span struct {
	TimeAxis
	from, to time.Time
	left     float64 // units reserved at the left
}

// resolve returns the axis from one time to another. TimeAxis.From and To replace these if they are not zero.
func (a TimeAxis) resolve(from, to time.Time) span {
	if a.Location == nil {
		a.Location = time.UTC
	}
	if !a.From.IsZero() {
		from = a.From
	}
	if !a.To.IsZero() {
		to = a.To
	}
	if to.Before(from) {
		to = from
	}
	return span{TimeAxis: a, from: from.In(a.Location), to: to.In(a.Location)}
}

// at returns the x coordinate of a time in units. An axis of zero length has every time in the middle.
func (s span) at(t time.Time) float64 {
	whole := seconds(s.from, s.to)
	if whole <= 0 {
		return plotWidth / 2
	}
	return s.left + seconds(s.from, t)/whole*(plotWidth-s.left)
}

// seconds returns the seconds between two times. Unlike time.Sub it does not saturate at 292 years.
func seconds(from, to time.Time) float64 {
	return float64(to.Unix()-from.Unix()) + float64(to.Nanosecond()-from.Nanosecond())/1e9
}

// tick formats the label of a time below the axis.
func (s span) tick(t time.Time) string {
	if startsDay(t) {
		return t.Format("01-02")
	}
	return t.Format("15:04")
}

// moment formats a time for the table and for tooltips.
func (s span) moment(t time.Time) string { return t.In(s.Location).Format("2006-01-02 15:04") }

// plain returns f, or a function that formats plain decimals if f is nil.
func plain(f func(float64) string) func(float64) string {
	if f != nil {
		return f
	}
	return func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
}

// A label is a text below the plot.
type label struct {
	x     float64 // units
	text  string
	from  int  // the smallest plot that shows it: 1 to 3, see plots
	start bool // the text begins at x; otherwise it is centred
	end   bool // the text ends at x
	bare  bool // no tick mark
}

// tickWidth is the width of a time label in pixels.
var tickWidth = width("15:04")

// labels returns labels for round times. They do not touch each other or the reserved pixels at the left.
func (s span) labels(reserved int) []label {
	if !s.from.Before(s.to) {
		return []label{{x: plotWidth / 2, text: s.moment(s.from), from: 1, bare: true}}
	}
	ticks := moments(s.from, s.to, plots[2]/(tickWidth+20), s.Location)
	day := max(slices.IndexFunc(ticks, startsDay), 0)
	// Each stride is a multiple of the next. So the visible labels have equal steps at each width.
	var strides [len(plots)]int
	stride := 1
	for n, wide := range slices.Backward(plots[:]) {
		for multiple := stride; stride*wide < len(ticks)*(tickWidth+14); stride += multiple {
		}
		strides[n] = stride
	}
	var all []label
	for i, t := range ticks {
		l := label{x: s.at(t), text: s.tick(t)}
		l.end = l.x > plotWidth*0.985
		for n, wide := range plots {
			if (i-day)%strides[n] == 0 && l.clear(all, n+1, wide, reserved) {
				l.from = n + 1
				all = append(all, l)
				break
			}
		}
	}
	return all
}

// clear reports whether a label has room in a plot of the given width. others are the labels before it, level
// is the plot's number, and reserved are the reserved pixels at the left.
func (l label) clear(others []label, level, wide, reserved int) bool {
	begins := func(l label) int {
		left := int(l.x / plotWidth * float64(wide))
		if l.end {
			return left - width(l.text)
		}
		return left - width(l.text)/2
	}
	for _, o := range slices.Backward(others) {
		if o.from <= level {
			reserved = max(reserved, begins(o)+width(o.text)+10)
			break
		}
	}
	return reserved == 0 || begins(l) >= reserved
}
