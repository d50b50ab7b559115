package picture

import (
	"html/template"
	"math"
	"time"
)

// Lines draws up to three series over time: as lines, with the area below where a series says so.
type Lines struct {
	Frame
	TimeAxis
	// Times are the moments of the values, ascending. One that is not after the one before is left out; of more than
	// 300, neighbours become one that keeps peaks and dips.
	Times []time.Time
	// Series beyond the third are left out.
	Series []Series
	// Value writes a value. Nil: its decimals.
	Value func(float64) string
	Scale Scale
	// Max is the end of a linear axis, for example 100 for percents. Zero: a round number above the values.
	Max float64
	// Min is the beginning of a logarithmic axis: what is smaller is drawn there. Zero: a round number below the values.
	Min float64
	// Height is in pixels, from 80 to 480. Zero: 200.
	Height int
}

// HTML is the chart.
func (l Lines) HTML() template.HTML {
	series := l.Series[:min(len(l.Series), maxSeries)]
	p := read(l.Times, series, l.From, l.To).thinned(maxPoints)
	c := chart{Frame: l.Frame, kind: "lines", height: tall(l.Height), series: series, write: plain(l.Value)}
	least, greatest, some := p.ends()
	if l.Scale == Log {
		c.values = logarithmic(least, greatest, l.Min)
	} else {
		c.values = linear(greatest, l.Max, c.steps(), false)
	}
	if !some {
		return c.html()
	}
	axis := l.over(p.at[0], p.at[len(p.at)-1])
	c.labels = axis.labels(0)
	for i := range series {
		c.draw(axis, p, i)
	}
	if c.tells(len(p.at)) {
		c.hits = p.hits(axis, series, c.write)
	}
	c.table = p.tabled(axis, series, l.Header, c.write)
	return c.html()
}

// A trace is what a row of values looks like as a line: its runs between gaps, the values that stand alone, the area below,
// and the place of the last value, or -1.
type trace struct {
	line, dots, area pen
	last             int
}

// traced follows a row; at places a value in tenths, and the area goes down to the ground.
func traced(row []float64, at func(i int) (x, y int), ground int) trace {
	t := trace{last: -1}
	begin := 0 // of the run
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
			t.dots.line(x+1, y) // round ends make it a dot
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

// draw adds the paths of a trace.
func (t *trace) draw(m *markup, tone, dash string, fill bool) {
	for _, part := range []struct {
		class string
		pen   *pen
		drawn bool
	}{{"pic-area " + tone, &t.area, fill}, {"pic-line " + tone + dash, &t.line, true}, {"pic-dots " + tone, &t.dots, true}} {
		if part.drawn && len(part.pen.d) > 0 {
			m.put(`<path class="`, part.class, `" d="`, string(part.pen.d), `"/>`)
		}
	}
}

// draw adds the paths of one series, and the mark at its last value.
func (c *chart) draw(axis span, p points, place int) {
	series, row := c.series[place], p.rows[place]
	at := func(i int) (x, y int) { return tenths(axis.at(p.at[i])), c.y(row[i]) }
	t := traced(row, at, c.bottom()*10)
	if t.last < 0 {
		return
	}
	tone := series.Tone.class(place)
	m := &markup{b: c.paths}
	t.draw(m, tone, " "+dash(place), series.Fill)
	c.paths = m.b
	x, y := at(t.last)
	m = &markup{b: c.over}
	m.put(`<svg overflow="visible"`)
	m.number("x", (x+5)/10, "%")
	m.number("y", y, "")
	m.put(`><path class="pic-mark `, tone, `" d="`, marks[place], `"/></svg>`)
	c.over = m.b
}

// hits parts the plot in the middle between neighbouring points.
func (p points) hits(axis span, series []Series, write func(float64) string) []hit {
	var hits []hit
	for i, t := range p.at {
		h := hit{from: 0, to: plotWidth * 10}
		if i > 0 {
			h.from = hits[i-1].to
		}
		if i+1 < len(p.at) {
			h.to = tenths((axis.at(t) + axis.at(p.at[i+1])) / 2)
		}
		h.text = told(axis.moment(t), series, func(s int) (string, bool) {
			if math.IsNaN(p.rows[s][i]) {
				return "", false
			}
			return write(p.rows[s][i]), true
		})
		hits = append(hits, h)
	}
	return hits
}
