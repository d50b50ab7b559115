package picture

import (
	"html/template"
	"strconv"
	"time"
)

// Spark draws a series as small as a word: without axes, legend and table.
type Spark struct {
	// Frame has no NoData here: without data the line is flat and faint.
	Frame
	// Values are at equal distances. Of more than 300, neighbours become one.
	Values []float64
	// Failures are drawn on the same scale as bars in the colour of what is bad. Nil: none.
	Failures []float64
	Tone     Tone
	// Width and Height are in pixels. Zero: 96 and 24.
	Width, Height int
}

// HTML is the picture.
func (s Spark) HTML() template.HTML {
	wide, high := s.Width, s.Height
	if wide <= 0 {
		wide = 96
	}
	if high <= 0 {
		high = 24
	}
	wide, high = min(wide, 640), min(high, 160)
	m := &markup{}
	m.put(`<svg class="pic pic-spark" width="`, strconv.Itoa(wide), `" height="`, strconv.Itoa(high), `" viewBox="0 0 `,
		strconv.Itoa(wide), " ", strconv.Itoa(high), `"`)
	inside := m.name(s.Frame)
	m.put(` fill="none">`)
	inside()
	s.paths(m, float64(wide), float64(high))
	m.put(`</svg>`)
	return m.html()
}

func (s Spark) paths(m *markup, wide, high float64) {
	n := max(len(s.Values), len(s.Failures))
	times := make([]time.Time, n)
	for i := range times {
		times[i] = time.Unix(int64(i), 0)
	}
	p := read(times, []Series{{Values: s.Values}, {Values: s.Failures}}, time.Time{}, time.Time{}).thinned(min(maxPoints, max(int(wide), 1)))
	_, greatest, some := p.ends()
	const edge = 2
	ground := tenths(high - 1)
	if !some {
		m.put(`<path class="pic-flat" d="M`, strconv.Itoa(edge), " ", strconv.Itoa(int(high)-2), "h", strconv.Itoa(max(int(wide)-2*edge, 0)), `"/>`)
		return
	}
	if greatest == 0 {
		greatest = 1
	}
	slot := (wide - 2*edge) / float64(max(len(p.at)-1, 1))
	x := func(i int) int { return tenths(edge + float64(i)*slot) }
	y := func(v float64) int { return tenths(high - 2 - v/greatest*(high-2-edge)) }
	t := traced(p.rows[0], func(i int) (int, int) { return x(i), y(p.rows[0][i]) }, ground)
	var bad pen
	for i, v := range p.rows[1] {
		if v > 0 {
			bad.move(x(i), ground)
			bad.down(min(y(v), ground-visible))
		}
	}
	if len(bad.d) > 0 {
		m.put(`<path class="pic-bar pic-bad"`)
		m.number("stroke-width", min(max(tenths(slot*0.7), 10), 60), "")
		m.put(` d="`, string(bad.d), `"/>`)
	}
	t.draw(m, s.Tone.class(0), "", true)
}
