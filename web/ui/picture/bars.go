package picture

import (
	"html/template"
	"math"
	"time"
)

// Bars draws up to three series of counts over time, stacked: the first is at the bottom.
type Bars struct {
	Frame
	TimeAxis
	// Times are when the spans that were counted began, ascending. One that is not after the one before is left out; of
	// more than 300, neighbours are added up.
	Times []time.Time
	// Step is how long a span is. Zero: as long as from the first to the second, or an hour.
	Step time.Duration
	// Series beyond the third are left out. A count above zero is always visible.
	Series []Series
	// Value writes a count. Nil: its digits.
	Value func(float64) string
	// Height is in pixels, from 80 to 480. Zero: 200.
	Height int
}

// HTML is the chart.
func (b Bars) HTML() template.HTML {
	series := b.Series[:min(len(b.Series), maxSeries)]
	p := read(b.Times, series, b.From, b.To)
	step := b.Step
	if step <= 0 && len(p.at) > 1 {
		step = p.at[1].Sub(p.at[0])
	}
	if step <= 0 {
		step = time.Hour
	}
	p, every := p.summed(maxPoints)
	step *= time.Duration(every)
	c := chart{Frame: b.Frame, kind: "bars", height: tall(b.Height), series: series, write: plain(b.Value)}
	c.values = linear(p.highest(), 0, c.steps(), true)
	if _, _, some := p.ends(); !some {
		return c.html()
	}
	axis := b.over(p.at[0], p.at[len(p.at)-1].Add(step))
	c.labels = axis.labels(0)
	c.stack(p, func(i int) (from, to float64) { return axis.at(p.at[i]), axis.at(p.at[i].Add(step)) })
	if c.tells(len(p.at)) {
		c.hits = p.barHits(axis, series, c.write, step)
	}
	rows, _ := p.summed(maxRows)
	c.table = rows.tabled(axis, series, b.Header, c.write)
	return c.html()
}

// highest is the height of the highest stack.
func (p points) highest() float64 {
	highest := 0.0
	for i := range p.at {
		sum := 0.0
		for _, row := range p.rows {
			if !math.IsNaN(row[i]) {
				sum += row[i]
			}
		}
		highest = max(highest, sum)
	}
	return min(highest, biggest)
}

// visible is how high the smallest count above zero is drawn, in tenths of pixels.
const visible = 15

// stack draws the bars: each series is one path of upright strokes, as wide as a bar.
func (c *chart) stack(p points, slot func(i int) (from, to float64)) {
	heights := make([]int, len(p.at))
	wide := barWidth(slot(0))
	for s, row := range p.rows {
		var bars pen
		for i, v := range row {
			h := c.barHeight(v)
			if h == 0 {
				continue
			}
			from, to := slot(i)
			bars.move(tenths((from+to)/2), c.bottom()*10-heights[i])
			heights[i] = min(heights[i]+h, (c.bottom()-above/2)*10)
			bars.down(c.bottom()*10 - heights[i])
		}
		c.bars(bars, wide, c.series[s].Tone.class(s)+" "+dash(s))
	}
}

// bars adds a path of strokes.
func (c *chart) bars(strokes pen, wide int, class string) {
	m := &markup{b: c.paths}
	m.put(`<path class="pic-bar `, class, `"`)
	m.number("stroke-width", wide, "")
	m.put(` d="`, string(strokes.d), `"/>`)
	c.paths = m.b
}

// barHeight is in tenths of pixels. A gap has none.
func (c *chart) barHeight(v float64) int {
	if math.IsNaN(v) || v == 0 {
		return 0
	}
	return max(tenths(c.values.at(v)*float64(c.bottom()-above)), visible)
}

// barWidth is how much of its room a bar takes, in tenths of units. A few bars do not become walls.
func barWidth(from, to float64) int { return max(tenths(min((to-from)*0.74, 60)), 1) }

// barHits makes each span tell its counts.
func (p points) barHits(axis span, series []Series, write func(float64) string, step time.Duration) []hit {
	hits := p.hits(axis, series, write)
	for i := range hits {
		hits[i].from, hits[i].to = tenths(axis.at(p.at[i])), tenths(axis.at(p.at[i].Add(step)))
	}
	return hits
}

// Due draws what is due in the coming hours: a first bar, set apart, for what is overdue, and one for each step after it.
type Due struct {
	Frame
	// TimeAxis has its beginning in From, which must not be zero. To is not looked at.
	TimeAxis
	// Step is how long the span of a bar is. Zero: an hour.
	Step time.Duration
	// Overdue is what should have been done already, and OverdueName stands below its bar.
	Overdue     float64
	OverdueName string
	// Counts are of the spans from From on. Those beyond the 100th are left out.
	Counts []float64
	// CountsName is above the counts in the table.
	CountsName string
	// Value writes a count. Nil: its digits.
	Value func(float64) string
	// Height is in pixels, from 80 to 480. Zero: 200.
	Height int
}

// apart is the room between the first bar and the others, in bars.
const apart = 0.5

// HTML is the chart.
func (d Due) HTML() template.HTML {
	step := d.Step
	if step <= 0 {
		step = time.Hour
	}
	later := d.Counts[:min(len(d.Counts), maxItems)]
	series := []Series{{Name: d.CountsName, Values: later}}
	c := chart{Frame: d.Frame, kind: "bars", height: tall(d.Height), series: series, write: plain(d.Value)}
	starts := make([]time.Time, len(later))
	for i := range starts {
		starts[i] = d.From.Add(time.Duration(i) * step)
	}
	p := read(starts, series, time.Time{}, time.Time{})
	overdue, known := Series{Values: []float64{d.Overdue}}.at(0)
	c.values = linear(max(p.highest(), overdue), 0, c.steps(), true)
	if _, _, some := p.ends(); !some && !known || len(p.at) == 0 {
		return c.html()
	}
	axis := d.over(d.From, d.From)
	axis.to = d.From.Add(time.Duration(len(later)) * step).In(axis.Location)
	bar := plotWidth / (float64(len(later)) + 1 + apart)
	axis.left = bar * (1 + apart)
	name := fit(d.OverdueName, 120)
	c.labels = append([]label{{text: name, from: 1, start: true, bare: true}}, axis.labels(width(name)+10)...)
	c.stack(p, func(i int) (from, to float64) { return axis.at(p.at[i]), axis.at(p.at[i]) + bar })
	if c.tells(len(p.at) + 1) {
		c.hits = p.barHits(axis, series, c.write, step)
	}
	rows, _ := p.summed(maxRows - 1)
	c.table = rows.tabled(axis, series, d.Header, c.write)
	c.overdue(overdue, name, bar)
	return c.html()
}

// overdue draws the bar before the others, with its count above it.
func (c *chart) overdue(count float64, name string, bar float64) {
	said := c.write(count)
	c.table.rows = append([][]string{{name, said}}, c.table.rows...)
	if !c.Quiet {
		told := &markup{}
		told.text(name, maxName)
		told.put("\n")
		told.text(said, maxName)
		c.hits = append([]hit{{from: 0, to: tenths(bar), text: string(told.b)}}, c.hits...)
	}
	var stroke pen
	if h := c.barHeight(count); h > 0 {
		stroke.move(tenths(bar/2), c.bottom()*10)
		stroke.down(c.bottom()*10 - h)
	}
	c.bars(stroke, barWidth(0, bar), Warn.class(0))
}
