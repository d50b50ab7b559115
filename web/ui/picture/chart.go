package picture

import (
	"html/template"
	"strconv"
)

// The heights of a chart, in pixels: above and below its plot is room for labels.
const (
	usualHeight = 200
	above       = 8
	below       = 26
)

// The marks at the end of a line, around its point: a disc, a square, a triangle.
var marks = [maxSeries]string{
	"M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
	"M-3.2-3.2h6.4v6.4h-6.4z",
	"M0-4.2l4.2 7.4h-8.4z",
}

// A chart is what lines and bars have in common: a frame, axes, a legend and a table around their paths.
type chart struct {
	Frame
	kind   string // of the class
	height int
	values scale
	write  func(float64) string // a value at the axis
	labels []label
	series []Series
	paths  []byte // inside of the stretched part
	over   []byte // beside it, where places are percents
	hits   []hit
	table  table
}

// A hit is a part of the plot that tells something when it is pointed at. Its ends are tenths of units.
type hit struct {
	from, to int
	text     string
}

// tall gives a chart a height that can be read.
func tall(height int) int {
	if height <= 0 {
		return usualHeight
	}
	return min(max(height, 80), 480)
}

// bottom is where zero is, and top where the highest value may be, in pixels from above.
func (c *chart) bottom() int { return c.height - below }

// steps is how many values the height has room for.
func (c *chart) steps() int { return max((c.bottom()-above)/38, 1) }

// y is the height of a value in tenths of pixels from above.
func (c *chart) y(v float64) int {
	return tenths(float64(c.bottom()) - c.values.at(v)*float64(c.bottom()-above))
}

// tells says whether each of so many points may tell its values.
func (c *chart) tells(points int) bool { return !c.Quiet && points <= maxHits }

// html puts the parts together. The points tell their values only where that does not make the chart too long.
func (c *chart) html() template.HTML {
	m := c.figure(c.hits)
	if len(m.b) > maxBytes && len(c.hits) > 0 {
		m = c.figure(nil)
	}
	return m.html()
}

func (c *chart) figure(hits []hit) *markup {
	m := &markup{}
	empty := len(c.paths) == 0
	m.put(`<figure class="pic pic-`, c.kind, ` pic-g`, strconv.Itoa(c.gutter()), `">`)
	c.legend(m)
	m.put(`<div class="pic-plot"><svg class="pic-svg" width="100%" height="`, strconv.Itoa(c.height), `"`)
	inside := m.name(c.Frame)
	m.put(`>`)
	inside()
	c.axes(m, empty)
	m.put(`<svg width="100%" height="`, strconv.Itoa(c.height), `" viewBox="0 0 `, strconv.Itoa(plotWidth), " ", strconv.Itoa(c.height),
		`" preserveAspectRatio="none" overflow="visible" fill="none">`)
	c.grid(m)
	m.put(string(c.paths))
	if len(hits) > 0 {
		m.put(`<g class="pic-hits">`)
		for _, h := range hits {
			m.put(`<rect`)
			m.number("x", h.from, "")
			m.number("width", max(h.to-h.from, 0), "")
			m.put(` height="`, strconv.Itoa(c.bottom()), `"><title>`, h.text, `</title></rect>`)
		}
		m.put(`</g>`)
	}
	m.put(`</svg>`, string(c.over), `</svg>`)
	if empty {
		m.put(`<p class="pic-none">`)
		m.text(c.NoData, maxText)
		m.put(`</p>`)
	}
	m.put(`</div>`)
	if !empty {
		c.table.draw(m, c.Title)
	}
	m.put(`</figure>`)
	return m
}

// gutter is how wide the room for the values at the axis is: from 1 to 4.
func (c *chart) gutter() int {
	widest := 0
	for _, v := range c.values.ticks {
		widest = max(widest, width(fit(c.write(v), 80)))
	}
	return min(max((widest-32+15)/16+1, 1), 4)
}

// grid draws a line for each value at the axis; the lowest is the ground.
func (c *chart) grid(m *markup) {
	var lines, ground pen
	for i, v := range c.values.ticks {
		p := &lines
		if i == 0 {
			p = &ground
		}
		p.move(0, c.tick(v)*10+5)
		p.d = append(p.d, "h1000"...)
	}
	if len(lines.d) > 0 {
		m.put(`<path class="pic-grid" d="`, string(lines.d), `"/>`)
	}
	m.put(`<path class="pic-ground" d="`, string(ground.d), `"/>`)
}

// tick is the height of a line of the grid in whole pixels.
func (c *chart) tick(v float64) int { return (c.y(v) + 5) / 10 }

// axes writes the labels of both axes.
func (c *chart) axes(m *markup, empty bool) {
	m.put(`<g class="pic-y">`)
	for _, v := range c.values.ticks {
		if empty {
			break
		}
		m.put(`<text x="-8" y="`, strconv.Itoa(c.tick(v)+4), `">`)
		m.text(fit(c.write(v), 80), maxName)
		m.put(`</text>`)
	}
	m.put(`</g><g class="pic-x">`)
	for _, l := range c.labels {
		x := string(appendTenths(nil, tenths(l.x/plotWidth*100)))
		m.put(`<g`)
		if l.from > 1 {
			m.put(` class="pic-x`, strconv.Itoa(l.from), `"`)
		}
		m.put(`>`)
		if !l.bare {
			m.put(`<line x1="`, x, `%" x2="`, x, `%" y1="`, strconv.Itoa(c.bottom()+1), `" y2="`, strconv.Itoa(c.bottom()+5), `"/>`)
		}
		m.put(`<text x="`, x, `%" y="`, strconv.Itoa(c.bottom()+19), `"`)
		switch {
		case l.start:
			m.put(` class="pic-start"`)
		case l.end:
			m.put(` class="pic-end"`)
		}
		m.put(`>`)
		m.text(l.text, maxName)
		m.put(`</text></g>`)
	}
	m.put(`</g>`)
}

// legend names the series, unless there is only one and nothing is noted about it.
func (c *chart) legend(m *markup) {
	if len(c.series) == 0 || len(c.series) == 1 && c.series[0].Note == "" {
		return
	}
	m.put(`<ul class="pic-legend" role="list">`)
	for i, s := range c.series {
		m.put(`<li>`)
		if c.kind == "lines" {
			m.put(`<svg class="`, s.Tone.class(i), `" width="24" height="12" aria-hidden="true"><path class="pic-line `, dash(i),
				`" fill="none" d="M0 6h24"/><path class="pic-mark" transform="translate(12 6)" d="`, marks[i], `"/></svg>`)
		} else {
			m.put(`<svg width="12" height="12" aria-hidden="true"><path class="pic-bar `, s.Tone.class(i), " ", dash(i),
				`" stroke-width="12" d="M6 12V0"/></svg>`)
		}
		entry(m, s.Name, s.Note)
		m.put(`</li>`)
	}
	m.put(`</ul>`)
}

// entry writes the words of a legend.
func entry(m *markup, name, note string) {
	m.put(`<span>`)
	m.text(name, maxName)
	m.put(`</span>`)
	if note != "" {
		m.put(` <b>`)
		m.text(note, maxName)
		m.put(`</b>`)
	}
}

// dash is the class by which a series differs where colours do not.
func dash(place int) string { return "pic-d" + strconv.Itoa(place+1) }

// told writes what a point tells when it is pointed at: its moment, and a line for each series.
func told(moment string, series []Series, value func(i int) (string, bool)) string {
	m := &markup{}
	m.text(moment, maxName)
	for i, s := range series {
		if v, ok := value(i); ok {
			m.put("\n")
			if s.Name != "" {
				m.text(s.Name, maxName)
				m.put(": ")
			}
			m.text(v, maxName)
		}
	}
	return string(m.b)
}

// A table holds the data of a chart for those who cannot see it.
type table struct {
	head []string
	rows [][]string
}

// draw writes the table. A box around it is hidden, because browsers do not make a table smaller than its content.
func (t *table) draw(m *markup, caption string) {
	m.put(`<div class="visually-hidden"><table>`)
	if caption != "" {
		m.put(`<caption>`)
		m.text(caption, maxText)
		m.put(`</caption>`)
	}
	m.put(`<thead><tr>`)
	for _, h := range t.head {
		m.put(`<th scope="col">`)
		m.text(h, maxName)
		m.put(`</th>`)
	}
	m.put(`</tr></thead><tbody>`)
	for _, row := range t.rows {
		m.put(`<tr>`)
		for i, cell := range row {
			open, end := `<td>`, `</td>`
			if i == 0 {
				open, end = `<th scope="row">`, `</th>`
			}
			m.put(open)
			m.text(cell, maxName)
			m.put(end)
		}
		m.put(`</tr>`)
	}
	m.put(`</tbody></table></div>`)
}
