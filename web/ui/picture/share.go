package picture

import (
	"html/template"
	"strconv"
)

// Progress draws the parts of a whole as one bar: of a redrive what is done, what failed and what is left, or a share and
// the rest.
type Progress struct {
	// Frame has no NoData here: without data the bar is empty.
	Frame
	// Parts beyond the sixth are left out.
	Parts []Part
	// Total is the whole. Zero, or less than the parts together: the sum of the parts. What is not in a part stays empty.
	Total float64
	// Legend adds the parts' names and notes below the bar.
	Legend bool
}

// A Part is one piece of a whole.
type Part struct {
	Name string
	// Note is written after the name in the legend, for example the count.
	Note string
	// Value is zero where it is NaN, infinite, negative or above 1e15. What is above zero is always visible.
	Value float64
	Tone  Tone
}

// HTML is the bar.
func (p Progress) HTML() template.HTML {
	parts := p.Parts[:min(len(p.Parts), 6)]
	m := &markup{}
	m.put(`<div class="pic pic-progress"><svg class="pic-track" width="100%" height="10"`)
	inside := m.name(p.Frame)
	m.put(`>`)
	inside()
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
			m.put(`<li><svg class="`, part.Tone.class(i), `" width="12" height="12" aria-hidden="true"><rect width="12" height="12" rx="2"/></svg>`)
			entry(m, part.Name, part.Note)
			m.put(`</li>`)
		}
		m.put(`</ul>`)
	}
	m.put(`</div>`)
	return m.html()
}

// shares are the widths of the parts in tenths of a percent. Nothing above zero is thinner than one percent, and neither
// is what is left, so that what is not finished does not look so: the widest of all gives way.
func shares(parts []Part, total float64) []int {
	values := make([]float64, len(parts), len(parts)+1)
	sum := 0.0
	for i, part := range parts {
		values[i], _ = Series{Values: []float64{part.Value}}.at(0)
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

// Ring draws a share of a whole around a few characters.
type Ring struct {
	// Frame has as its NoData what is written instead of Text where there is no share.
	Frame
	// Share is between 0 and 1. NaN and everything else: there is none.
	Share float64
	// Text is in the middle; at most about seven characters fit.
	Text string
	Tone Tone
}

// HTML is the picture. A share that is not quite 1 leaves a gap that can be seen, and one that is not quite 0 is there.
func (r Ring) HTML() template.HTML {
	m := &markup{}
	m.put(`<svg class="pic pic-ring" width="80" height="80" viewBox="0 0 80 80"`)
	inside := m.name(r.Frame)
	m.put(` fill="none">`)
	inside()
	m.put(`<circle class="pic-ring-track" cx="40" cy="40" r="36"/>`)
	text := r.Text
	if known := r.Share >= 0 && r.Share <= 1; !known {
		text = r.NoData
	} else if r.Share > 0 {
		part := strconv.Itoa(1000)
		if r.Share < 1 {
			part = strconv.Itoa(min(max(tenths(r.Share*100), 15), 985))
		}
		m.put(`<circle class="pic-ring-share `, r.Tone.class(0), `" cx="40" cy="40" r="36" pathLength="1000" stroke-dasharray="`, part,
			` 1000" transform="rotate(-90 40 40)"/>`)
	}
	m.put(`<text x="40" y="45">`)
	m.text(fit(text, 64), maxName)
	m.put(`</text></svg>`)
	return m.html()
}
