package picture

import (
	"html/template"
	"math"
	"strconv"
	"time"
)

// marks are the paths of the marks at the end of a line: a disc, a square, a triangle.
var marks = [maxSeries]string{
	"M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
	"M-3.2-3.2h6.4v6.4h-6.4z",
	"M0-4.2l4.2 7.4h-8.4z",
}

// lines draws points as lines.
func (d *drawing) lines(p points) {
	least, greatest, some := p.ends()
	if d.Scale == Log {
		d.values = logarithmic(least, greatest, d.Min)
	} else {
		d.values = linear(greatest, d.steps(), false)
	}
	if !some {
		return
	}
	axis := d.TimeAxis.resolve(p.at[0], p.at[len(p.at)-1])
	d.labels = axis.labels(0)
	for place := range d.Series {
		d.line(axis, p, place)
	}
	d.hit(p, axis, nil)
}

// line draws one series with the mark at its last value.
func (d *drawing) line(axis span, p points, place int) {
	series, row := d.Series[place], p.rows[place]
	at := func(i int) (x, y int) { return tenths(axis.at(p.at[i])), d.y(row[i]) }
	t := traced(row, at, d.bottom()*10)
	if t.last < 0 {
		return
	}
	tone := series.Tone.class(place)
	t.draw(&d.paths, tone, " "+dash(place), series.Fill)
	x, y := at(t.last)
	d.overlay.put(`<svg overflow="visible"`)
	d.overlay.number("x", (x+5)/10, "%")
	d.overlay.number("y", y, "")
	d.overlay.put(`><path class="pic-mark `, tone, `" d="`, marks[place], `"/></svg>`)
}

// A trace has the paths of a row of values: the lines between gaps, dots for single values between gaps, and
// the area below. last is the index of the last value, or -1.
type trace struct {
	line, dots, area pathData
	last             int
}

// traced returns the trace of a row. at returns the coordinates of a value in tenths. ground is the y
// coordinate of the area's lower edge.
func traced(row []float64, at func(i int) (x, y int), ground int) trace {
	t := trace{last: -1}
	begin := 0 // x coordinate of the current line's first value
	for i, v := range row {
		if math.IsNaN(v) {
			continue
		}
		x, y := at(i)
		ends := i+1 == len(row) || math.IsNaN(row[i+1])
		begins := i == 0 || math.IsNaN(row[i-1])
		switch {
		case begins && ends:
			t.dots.move(x, y)
			t.dots.line(x+1, y) // round line ends make it a dot
		case begins:
			begin = x
			t.line.move(x, y)
			t.area.move(x, y)
		default:
			t.line.line(x, y)
			t.area.line(x, y)
		}
		if ends && !begins {
			t.area.down(ground)
			t.area.close(begin)
		}
		t.last = i
	}
	return t
}

// draw draws the paths of a trace.
func (t *trace) draw(m *markup, tone, dash string, fill bool) {
	if fill {
		m.path("pic-area "+tone, t.area)
	}
	m.path("pic-line "+tone+dash, t.line)
	m.path("pic-dots "+tone, t.dots)
}

// firstBarGap is the gap between Chart.First and the other bars, in bar widths.
const firstBarGap = 0.5

// minBarHeight is the height of the smallest count above zero, in tenths of pixels.
const minBarHeight = 15

// bars draws points as stacked bars, with Chart.First before them.
func (d *drawing) bars(p points) {
	step := d.Step
	if step <= 0 && len(p.at) > 1 {
		step = p.at[1].Sub(p.at[0])
	}
	if step <= 0 {
		step = time.Hour
	}
	p, every := p.summed(maxPoints)
	step *= time.Duration(every)
	first, known := Bar{}, false
	if d.First != nil {
		first = *d.First
		first.Value, known = plotted(first.Value)
	}
	d.values = linear(max(p.highest(), first.Value), d.steps(), true)
	if _, _, some := p.ends(); !some && !known || len(p.at) == 0 {
		return
	}
	axis := d.TimeAxis.resolve(p.at[0], p.at[len(p.at)-1].Add(step))
	taken := 0
	var before []hit
	bar := plotWidth / (float64(len(p.at)) + 1 + firstBarGap)
	if d.First != nil {
		axis.left = bar * (1 + firstBarGap)
		first.Name = fit(first.Name, 120)
		taken = width(first.Name) + 10
		d.labels = []label{{text: first.Name, from: 1, start: true, bare: true}}
		text := &markup{}
		text.text(first.Name, maxName)
		text.put(" · ")
		text.text(d.write(first.Value), maxName)
		before = []hit{{text: string(text.b), apart: true}}
	}
	d.labels = append(d.labels, axis.labels(taken)...)
	slot := func(i int) (from, to float64) { return axis.at(p.at[i]), axis.at(p.at[i].Add(step)) }
	d.stack(p, slot)
	d.hit(p, axis, before)
	if d.First != nil {
		var stroke pathData
		if h := d.barHeight(first.Value); h > 0 {
			stroke.move(tenths(bar/2), d.bottom()*10)
			stroke.down(d.bottom()*10 - h)
		}
		d.paths.strokes(stroke, barWidth(0, bar), Warn.class(0))
	}
}

// stack draws the bars. Each series is one path of vertical strokes, which is shorter than rectangles.
func (d *drawing) stack(p points, slot func(i int) (from, to float64)) {
	heights := make([]int, len(p.at))
	wide := barWidth(slot(0))
	for s, row := range p.rows {
		var bars pathData
		for i, v := range row {
			h := d.barHeight(v)
			if h == 0 {
				continue
			}
			from, to := slot(i)
			bars.move(tenths((from+to)/2), d.bottom()*10-heights[i])
			heights[i] = min(heights[i]+h, (d.bottom()-above/2)*10)
			bars.down(d.bottom()*10 - heights[i])
		}
		d.paths.strokes(bars, wide, d.Series[s].Tone.class(s)+" "+dash(s))
	}
}

// strokes appends a path of strokes of the given width.
func (m *markup) strokes(strokes pathData, wide int, class string) {
	m.put(`<path class="pic-bar `, class, `"`)
	m.number("stroke-width", wide, "")
	m.put(` d="`, string(strokes.d), `"/>`)
}

// barHeight returns the height of a bar in tenths of pixels. It is zero for a gap.
func (d *drawing) barHeight(v float64) int {
	if math.IsNaN(v) || v == 0 {
		return 0
	}
	return max(tenths(d.values.at(v)*float64(d.bottom()-above)), minBarHeight)
}

// barWidth returns the width of a bar in tenths of units. It is at most 60 units, so that few bars do not
// fill the chart.
func barWidth(from, to float64) int { return max(tenths(min((to-from)*0.74, 60)), 1) }

// hitText returns the values of a point: its time, and the value of each series.
func hitText(moment string, series []Series, p points, i int, write func(float64) string) string {
	m := &markup{}
	m.text(moment, maxShort)
	for s := range series {
		if math.IsNaN(p.rows[s][i]) {
			continue
		}
		m.put(" ·\n")
		if series[s].Name != "" {
			m.tag("", series[s].Name, maxShort, " ")
		}
		m.text(write(p.rows[s][i]), maxShort)
	}
	return string(m.b)
}

// spark draws the chart as a sparkline.
func (c Chart) spark() template.HTML {
	wide, high := 96, 24
	if c.Width > 0 {
		wide = min(c.Width, 640)
	}
	if c.Height > 0 {
		high = min(c.Height, 160)
	}
	m := &markup{}
	size := [2]string{strconv.Itoa(wide), strconv.Itoa(high)}
	m.put(`<svg class="pic pic-spark" width="`, size[0], `" height="`, size[1], `" viewBox="0 0 `, size[0],
		" ", size[1], `"`)
	m.name(c.Frame, `>`)
	var series [2]Series
	copy(series[:], c.Series)
	sparkPaths(m, series, float64(wide), float64(high))
	m.put(`</svg>`)
	return m.html()
}

// sparkPaths draws the paths of a sparkline: the first series as a line, the second one as bars.
func sparkPaths(m *markup, series [2]Series, wide, high float64) {
	times := make([]time.Time, max(len(series[0].Values), len(series[1].Values)))
	for i := range times {
		times[i] = time.Unix(int64(i), 0)
	}
	p := read(times, series[:], time.Time{}, time.Time{}).thinned(min(maxPoints, max(int(wide), 1)))
	_, greatest, some := p.ends()
	const edge = 2
	ground := tenths(high - 1)
	if !some {
		m.put(`<path class="pic-flat" d="M`, strconv.Itoa(edge), " ", strconv.Itoa(int(high)-2), "h",
			strconv.Itoa(max(int(wide)-2*edge, 0)), `"/>`)
		return
	}
	if greatest == 0 {
		greatest = 1
	}
	slot := (wide - 2*edge) / float64(max(len(p.at)-1, 1))
	// Whole pixels: a list has many sparklines, and this makes them a third shorter.
	x := func(i int) int { return 10 * int(math.Round(edge+float64(i)*slot)) }
	y := func(v float64) int { return 10 * int(math.Round(high-2-v/greatest*(high-2-edge))) }
	t := traced(p.rows[0], func(i int) (int, int) { return x(i), y(p.rows[0][i]) }, ground)
	var bad pathData
	for i, v := range p.rows[1] {
		if v > 0 {
			bad.move(x(i), ground)
			bad.down(min(y(v), ground-minBarHeight))
		}
	}
	if len(bad.d) > 0 {
		m.strokes(bad, min(max(tenths(slot*0.7), 10), 60), string(Bad))
	}
	t.draw(m, series[0].Tone.class(0), "", false)
}
