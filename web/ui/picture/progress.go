package picture

import (
	"html/template"
)

// Progress draws the parts of a whole as one bar, such as the done and failed callbacks of a redrive.
type Progress struct {
	// Progress ignores Frame.NoData: without data the bar is empty.
	Frame
	// Parts beyond the sixth are omitted.
	Parts []Part
	// Total is the whole. If it is less than the sum of the parts, the sum is used. The rest of the bar stays
	// empty.
	Total float64
	// Legend adds the names of the parts below the bar.
	Legend bool
}

// A Part is one part of a whole.
type Part struct {
	Name string
	// Value is drawn as zero if it is NaN, infinite, negative or above 1e15. A part above zero is always
	// visible.
	Value float64
	Tone  Tone
}

// HTML returns the bar.
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

// shares returns the widths of the parts in tenths of a percent. Each part above zero has at least one
// percent. So has the rest, so that an unfinished bar does not look finished. The widest part is reduced for
// them.
func shares(parts []Part, total float64) []int {
	values := make([]float64, len(parts), len(parts)+1)
	sum := 0.0
	for i, part := range parts {
		values[i], _ = plotted(part.Value)
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
