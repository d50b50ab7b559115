package picture

import (
	"html/template"
)

// Progress draws the parts of a whole as one bar: of a redrive what is done, what failed and what is left, or
// a share and the rest.
type Progress struct {
	// Frame has no NoData here: without data the bar is empty.
	Frame
	// Parts beyond the sixth are left out.
	Parts []Part
	// Total is the whole. Zero, or less than the parts together: the sum of the parts. What is not in a part
	// stays empty.
	Total float64
	// Legend adds the parts' names below the bar.
	Legend bool
}

// A Part is one piece of a whole.
type Part struct {
	Name string
	// Value is zero where it is NaN, infinite, negative or above 1e15. What is above zero is always visible.
	Value float64
	Tone  Tone
}

// HTML is the bar.
func (p Progress) HTML() template.HTML {
	parts := p.Parts[:min(len(p.Parts), 6)]
	m := &markup{}
	m.put(`<div class="pic pic-progress"><svg class="pic-track" width="100%" height="10"`)
	m.name(p.Frame, `>`)
	x := 0
	for i, w := range shares(parts, p.Total) {
		if w == 0 {
			continue
		}
		m.put(`<rect class="`, parts[i].Tone.class(i), `" height="10"`)
		m.number("x", x, "%")
		m.number("width", w, "%")
		m.put(`/>`)
		x += w
	}
	m.put(`</svg>`)
	if p.Legend && len(parts) > 0 {
		m.put(`<ul class="pic-legend" role="list">`)
		for i, part := range parts {
			m.put(`<li><svg class="`, part.Tone.class(i),
				`" width="12" height="12" aria-hidden="true"><rect width="12" height="12" rx="2"/></svg>`)
			m.tag(`<span>`, part.Name, maxName, `</span></li>`)
		}
		m.put(`</ul>`)
	}
	m.put(`</div>`)
	return m.html()
}

// shares are the widths of the parts in tenths of a percent. Nothing above zero is thinner than one percent,
// and neither is what is left, so that what is not finished does not look so: the widest of all gives way.
func shares(parts []Part, total float64) []int {
	values := make([]float64, len(parts), len(parts)+1)
	sum := 0.0
	for i, part := range parts {
		values[i], _ = drawn(part.Value)
		sum += values[i]
	}
	if !drawable(total) || total < sum {
		total = sum
	}
	values = append(values, total-sum)
	widths := make([]int, len(values))
	if total == 0 {
		return widths[:len(parts)]
	}
	const thinnest, whole = 10, 1000
	room, widest := whole, 0
	for i, v := range values {
		if v > 0 {
			widths[i] = max(tenths(v/total*100), thinnest)
		}
		room -= widths[i]
		if widths[i] > widths[widest] {
			widest = i
		}
	}
	widths[widest] += room
	return widths[:len(parts)]
}
