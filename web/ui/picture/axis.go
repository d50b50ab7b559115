package picture

import (
	"slices"
	"strconv"
	"time"
)

// The plot is a thousand units wide, which are stretched over what there is.
const plotWidth = 1000

// Widths of a plot in pixels that labels are placed for. The style sheet shows all labels where there is room
// for the widest, without those of class pic-x3 where there is less, and without those of pic-x2 too on a
// page of 400 pixels.
var plots = [3]int{280, 460, 720}

// A span is the time axis of one chart.
type span struct {
	TimeAxis
	from, to time.Time
	left     float64 // units that are kept free at the left
}

// over is the axis over what lies between two moments, unless it has its own ends.
func (a TimeAxis) over(from, to time.Time) span {
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

// at is the place of a moment from left to right. An axis without length has all in the middle.
func (s span) at(t time.Time) float64 {
	whole := seconds(s.from, s.to)
	if whole <= 0 {
		return plotWidth / 2
	}
	return s.left + seconds(s.from, t)/whole*(plotWidth-s.left)
}

// seconds lie between two moments, however far apart they are.
func seconds(from, to time.Time) float64 {
	return float64(to.Unix()-from.Unix()) + float64(to.Nanosecond()-from.Nanosecond())/1e9
}

// tick writes a moment below the axis.
func (s span) tick(t time.Time) string {
	if startsDay(t) {
		return t.Format("01-02")
	}
	return t.Format("15:04")
}

// moment writes a moment in the table, and where a point is pointed at.
func (s span) moment(t time.Time) string { return t.In(s.Location).Format("2006-01-02 15:04") }

// plain writes a number where the caller says nothing else.
func plain(f func(float64) string) func(float64) string {
	if f != nil {
		return f
	}
	return func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
}

// A label stands below the plot.
type label struct {
	x     float64 // units
	text  string
	from  int  // the plot's width from which on it is shown: 1 to 3
	start bool // begins at its place and is not around it
	end   bool // ends there
	bare  bool // without a tick
}

// tickWidth is how many pixels a label below the plot takes.
var tickWidth = width("15:04")

// labels writes the round moments below the axis, so that they do not touch each other or what takes up the
// first pixels of it.
func (s span) labels(taken int) []label {
	if !s.from.Before(s.to) {
		return []label{{x: plotWidth / 2, text: s.moment(s.from), from: 1, bare: true}}
	}
	ticks := moments(s.from, s.to, plots[2]/(tickWidth+20), s.Location)
	day := max(slices.IndexFunc(ticks, startsDay), 0)
	var strides [len(plots)]int // each is a multiple of the next, so that what is shown stays in equal steps
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
			if (i-day)%strides[n] == 0 && l.clear(all, n+1, wide, taken) {
				l.from = n + 1
				all = append(all, l)
				break
			}
		}
	}
	return all
}

// clear says whether a label that is placed after others has room in a plot of a width, given those that are
// shown there and the pixels that are taken at the left.
func (l label) clear(others []label, level, wide, taken int) bool {
	begins := func(l label) int {
		left := int(l.x / plotWidth * float64(wide))
		if l.end {
			return left - width(l.text)
		}
		return left - width(l.text)/2
	}
	for _, o := range slices.Backward(others) {
		if o.from <= level {
			taken = max(taken, begins(o)+width(o.text)+10)
			break
		}
	}
	return taken == 0 || begins(l) >= taken
}
