package picture

import (
	"html/template"
	"strconv"
	"time"
)

// A Form is how a chart draws its series.
type Form uint8

// The forms.
const (
	// Lines are values over time, with the area below where a series says so.
	Lines Form = iota
	// Bars are counts over time, stacked: the first series is at the bottom. A count above zero is always
	// visible.
	Bars
	// Spark is as small as a word, without axes, legend and table: the first series as a line, the second one
	// on the same scale as bars in the colour of what is bad.
	Spark
)

// Chart draws up to three series over time.
type Chart struct {
	// Frame has no NoData in a spark: without data its line is flat and faint.
	Frame
	TimeAxis
	Form Form
	// Times are the moments of the values, or when the spans of the counts began, ascending. One that is not
	// after the one before is left out; of more than 300, neighbours become one: lines keep peaks and dips,
	// bars are added up. Those of a spark are at equal distances, whatever Times says.
	Times []time.Time
	// Step is how long the span of a bar is. Zero: as long as from the first to the second, or an hour.
	Step time.Duration
	// Series beyond the third are left out.
	Series []Series
	// First is a bar set apart before the others, for what is overdue. Nil: none.
	First *Bar
	// Value writes a value. Nil: its decimals.
	Value func(float64) string
	// Scale is of lines, and Min the beginning of a logarithmic axis: what is smaller is drawn there. Zero: a
	// round number below the values.
	Scale Scale
	Min   float64
	// Height is in pixels, from 80 to 480. Zero: 200. That of a spark is at most 160; zero: 24.
	Height int
	// Width of a spark is in pixels, at most 640. Zero: 96. Other charts are as wide as the page lets them.
	Width int
}

// A Bar is a count with its name.
type Bar struct {
	Name  string
	Value float64
}

// HTML is the chart.
func (c Chart) HTML() template.HTML {
	if c.Form == Spark {
		return c.spark()
	}
	c.Series = c.Series[:min(len(c.Series), maxSeries)]
	d := drawing{Chart: c, write: plain(c.Value)}
	if d.Height <= 0 {
		d.Height = usualHeight
	}
	d.Height = min(max(d.Height, 80), 480)
	p := read(c.Times, c.Series, c.From, c.To)
	if c.Form == Lines {
		d.lines(p.thinned(maxPoints))
	} else {
		d.bars(p)
	}
	return d.html()
}

// The heights of a chart, in pixels: above and below its plot is room for labels.
const (
	usualHeight = 200
	above       = 8
	below       = 26
)

// A drawing is a chart while it is drawn: axes, a legend and a table around paths.
type drawing struct {
	Chart
	values scale
	write  func(float64) string // a value at the axis
	labels []label
	paths  markup // inside of the stretched part
	over   markup // beside it, where places are percents
	hits   []hit
	table  table
}

// A hit is a part of the plot that tells something when it is pointed at. Its ends are tenths of units.
type hit struct {
	from, to int
	text     string
}

// bottom is where zero is, in pixels from above.
func (d *drawing) bottom() int { return d.Height - below }

// steps is how many values the height has room for.
func (d *drawing) steps() int { return max((d.bottom()-above)/38, 1) }

// y is the height of a value in tenths of pixels from above.
func (d *drawing) y(v float64) int {
	return tenths(float64(d.bottom()) - d.values.at(v)*float64(d.bottom()-above))
}

// hit has the points tell their values: those before, and one for each of p, between the ends of its place.
func (d *drawing) hit(p points, axis span, before []hit, ends func(i int) (from, to int)) {
	if d.Quiet || len(before)+len(p.at) > maxHits {
		return
	}
	d.hits = before
	for i, t := range p.at {
		h := hit{text: told(axis.moment(t), d.Series, p, i, d.write)}
		h.from, h.to = ends(i)
		d.hits = append(d.hits, h)
	}
}

// html puts the parts together. The points tell their values only where that does not make the chart too
// long.
func (d *drawing) html() template.HTML {
	m := d.figure(d.hits)
	if len(m.b) > maxBytes && len(d.hits) > 0 {
		m = d.figure(nil)
	}
	return m.html()
}

func (d *drawing) figure(hits []hit) *markup {
	m := &markup{}
	kind, height, empty := "lines", strconv.Itoa(d.Height), len(d.paths.b) == 0
	if d.Form == Bars {
		kind = "bars"
	}
	m.put(`<figure class="pic pic-`, kind, ` pic-g`, strconv.Itoa(d.gutter()), `">`)
	d.legend(m)
	m.put(`<div class="pic-plot"><svg class="pic-svg" width="100%" height="`, height, `"`)
	m.name(d.Frame, `>`)
	d.axes(m, empty)
	m.put(`<svg width="100%" height="`, height, `" viewBox="0 0 `, strconv.Itoa(plotWidth), " ", height,
		`" preserveAspectRatio="none" overflow="visible" fill="none">`)
	d.grid(m)
	m.put(string(d.paths.b))
	if len(hits) > 0 {
		m.put(`<g class="pic-hits">`)
		for _, h := range hits {
			m.put(`<rect`)
			m.number("x", h.from, "")
			m.number("width", max(h.to-h.from, 0), "")
			m.put(` height="`, strconv.Itoa(d.bottom()), `"><title>`, h.text, `</title></rect>`)
		}
		m.put(`</g>`)
	}
	m.put(`</svg>`, string(d.over.b), `</svg>`)
	if empty {
		m.tag(`<p class="pic-none">`, d.NoData, maxText, `</p>`)
	}
	m.put(`</div>`)
	if !empty {
		d.table.draw(m, d.Title)
	}
	m.put(`</figure>`)
	return m
}

// gutter is how wide the room for the values at the axis is: from 1 to 4.
func (d *drawing) gutter() int {
	widest := 0
	for _, v := range d.values.ticks {
		widest = max(widest, width(fit(d.write(v), 80)))
	}
	return min(max((widest-32+15)/16+1, 1), 4)
}

// grid draws a line for each value at the axis; the lowest is the ground.
func (d *drawing) grid(m *markup) {
	var lines, ground pen
	for i, v := range d.values.ticks {
		p := &lines
		if i == 0 {
			p = &ground
		}
		p.move(0, d.tick(v)*10+5)
		p.d = append(p.d, "h1000"...)
	}
	m.path("pic-grid", lines)
	m.put(`<path class="pic-ground" d="`, string(ground.d), `"/>`)
}

// tick is the height of a line of the grid in whole pixels.
func (d *drawing) tick(v float64) int { return (d.y(v) + 5) / 10 }

// axes writes the labels of both axes.
func (d *drawing) axes(m *markup, empty bool) {
	m.put(`<g class="pic-y">`)
	for _, v := range d.values.ticks {
		if empty {
			break
		}
		m.put(`<text x="-8" y="`, strconv.Itoa(d.tick(v)+4), `"`)
		m.tag(`>`, fit(d.write(v), 80), maxName, `</text>`)
	}
	m.put(`</g><g class="pic-x">`)
	for _, l := range d.labels {
		x := string(appendTenths(nil, tenths(l.x/plotWidth*100)))
		m.put(`<g`)
		if l.from > 1 {
			m.put(` class="pic-x`, strconv.Itoa(l.from), `"`)
		}
		m.put(`>`)
		if !l.bare {
			m.put(`<line x1="`, x, `%" x2="`, x, `%" y1="`, strconv.Itoa(d.bottom()+1), `" y2="`,
				strconv.Itoa(d.bottom()+5), `"/>`)
		}
		m.put(`<text x="`, x, `%" y="`, strconv.Itoa(d.bottom()+19), `"`)
		switch {
		case l.start:
			m.put(` class="pic-start"`)
		case l.end:
			m.put(` class="pic-end"`)
		}
		m.tag(`>`, l.text, maxName, `</text></g>`)
	}
	m.put(`</g>`)
}

// legend names the series, unless there is only one.
func (d *drawing) legend(m *markup) {
	if len(d.Series) < 2 {
		return
	}
	m.put(`<ul class="pic-legend" role="list">`)
	for i, s := range d.Series {
		if d.Form == Lines {
			m.put(`<li><svg class="`, s.Tone.class(i),
				`" width="24" height="12" aria-hidden="true"><path class="pic-line `, dash(i),
				`" fill="none" d="M0 6h24"/><path class="pic-mark" transform="translate(12 6)" d="`, marks[i],
				`"/></svg>`)
		} else {
			m.put(`<li><svg width="12" height="12" aria-hidden="true"><path class="pic-bar `, s.Tone.class(i),
				" ", dash(i),
				`" stroke-width="12" d="M6 12V0"/></svg>`)
		}
		m.tag(`<span>`, s.Name, maxName, `</span></li>`)
	}
	m.put(`</ul>`)
}

// dash is the class by which a series differs where colours do not.
func dash(place int) string { return "pic-d" + strconv.Itoa(place+1) }

// A table holds the data of a chart for those who cannot see it.
type table struct {
	head []string
	rows [][]string
}

// draw writes the table. A box around it is hidden, because browsers do not make a table smaller than its
// content.
func (t *table) draw(m *markup, caption string) {
	m.put(`<div class="visually-hidden"><table>`)
	if caption != "" {
		m.tag(`<caption>`, caption, maxText, `</caption>`)
	}
	m.put(`<thead><tr>`)
	for _, h := range t.head {
		m.tag(`<th scope="col">`, h, maxName, `</th>`)
	}
	m.put(`</tr></thead><tbody>`)
	for _, row := range t.rows {
		m.tag(`<tr><th scope="row">`, row[0], maxName, `</th>`)
		for _, cell := range row[1:] {
			m.tag(`<td>`, cell, maxName, `</td>`)
		}
		m.put(`</tr>`)
	}
	m.put(`</tbody></table></div>`)
}
