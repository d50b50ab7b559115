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
	// Lines draws values over time. Series.Fill colours the area below a line.
	Lines Form = iota
	// Bars draws stacked counts over time, the first series at the bottom. A count above zero is always
	// visible.
	Bars
	// Spark draws a sparkline: no axes, no legend, no table. The first series is a line. The second one is
	// bars on the same scale in the colour Bad.
	Spark
)

// Chart draws up to three series over time.
type Chart struct {
	// Spark ignores Frame.NoData: without data its line is flat and faint.
	Frame
	TimeAxis
	Form Form
	// Times are the times of the values, or the begins of the counted spans, ascending. A time that is not
	// after the previous one is omitted. Above 60, neighbours are merged: lines keep peaks and dips, bars are
	// summed. Spark ignores Times and draws values at equal distances.
	Times []time.Time
	// Step is the span of a bar. Zero means the distance of the first two times, or an hour.
	Step time.Duration
	// Series beyond the third are omitted.
	Series []Series
	// First is a separate bar before the others, for overdue callbacks. Nil means none.
	First *Bar
	// Value formats a value. Nil means plain decimals.
	Value func(float64) string
	// Scale is the scale of Lines. Min is the lower end of a logarithmic axis; smaller values are drawn
	// there. Zero means a round number below the values.
	Scale Scale
	Min   float64
	// Height is in pixels, from 80 to 480. Zero means 200. For Spark the maximum is 160, and zero means 24.
	Height int
	// Width is the width of Spark in pixels, at most 640. Zero means 96. Other charts are as wide as the
	// page.
	Width int
}

// A Bar is a named count.
type Bar struct {
	Name  string
	Value float64
}

// HTML returns the chart.
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

// Heights in pixels. The rows above and below the plot hold labels.
const (
	usualHeight = 200
	above       = 8
	below       = 26
)

// A drawing is the state of HTML for a chart with axes.
type drawing struct {
	Chart
	values  scale
	write   func(float64) string // formats a value
	labels  []label
	paths   markup // in the stretched SVG, in units
	overlay markup // in the outer SVG, in percent
	hits    []hit
}

// A hit is the part of the plot that shows a point's values. It is a radio button: a chart is one stop of the
// Tab key, and the arrow keys go from point to point without a script. All hits of a chart have the same
// width. A first bar stands apart.
type hit struct {
	text  string
	apart bool
}

// bottom returns the y coordinate of zero in pixels.
func (d *drawing) bottom() int { return d.Height - below }

// steps returns the number of axis values that fit into the height.
func (d *drawing) steps() int { return max((d.bottom()-above)/38, 1) }

// y returns the y coordinate of a value in tenths of pixels.
func (d *drawing) y(v float64) int {
	return tenths(float64(d.bottom()) - d.values.at(v)*float64(d.bottom()-above))
}

// hit sets the hits: those of before, and one for each point.
func (d *drawing) hit(p points, axis span, before []hit) {
	d.hits = before
	for i := range p.at {
		d.hits = append(d.hits, hit{text: hitText(axis.moment(p.at[i]), d.Series, p, i, d.write)})
	}
}

// html returns the markup of the chart. The outer SVG holds texts and marks; the inner one holds the paths
// and is stretched to the width of the page.
func (d *drawing) html() template.HTML {
	m := &markup{}
	kind, height := "lines", strconv.Itoa(d.Height)
	empty := len(d.paths.b) == 0
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
	m.put(`</svg>`, string(d.overlay.b), `</svg>`)
	if empty {
		m.tag(`<p class="pic-none">`, d.NoData, maxText, `</p>`)
	}
	if !empty {
		d.drawHits(m)
	}
	m.put(`</div></figure>`)
	return m.html()
}

// drawHits draws the hits over the plot.
func (d *drawing) drawHits(m *markup) {
	m.put(`<div class="pic-hits" role="group"`)
	m.tag(` aria-label="`, d.Title, maxText, `">`)
	name := ident(d.ID) + "-v"
	for _, h := range d.hits {
		m.put(`<label`)
		if h.apart {
			m.put(` class="pic-apart"`)
		}
		m.put(`><input type="radio" name="`, name, `"/><span>`, h.text, `</span></label>`)
	}
	m.put(`</div>`)
}

// gutter returns the width class of the axis values: 1 to 4.
func (d *drawing) gutter() int {
	widest := 0
	for _, v := range d.values.ticks {
		widest = max(widest, width(fit(d.write(v), 80)))
	}
	return min(max((widest-32+15)/16+1, 1), 4)
}

// grid draws a line for each axis value. The lowest is the ground line.
func (d *drawing) grid(m *markup) {
	var lines, ground pathData
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

// tick returns the y coordinate of a grid line in whole pixels.
func (d *drawing) tick(v float64) int { return (d.y(v) + 5) / 10 }

// axes draws the labels of both axes.
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

// legend draws the names of the series, if there are at least two.
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
			m.put(`<li><svg width="12" height="12" aria-hidden="true"><path class="pic-bar `,
				s.Tone.class(i), " ", dash(i), `" stroke-width="12" d="M6 12V0"/></svg>`)
		}
		m.tag(`<span>`, s.Name, maxName, `</span></li>`)
	}
	m.put(`</ul>`)
}

// dash returns the class of a dash pattern. It distinguishes series without colours.
func dash(place int) string { return "pic-d" + strconv.Itoa(place+1) }
