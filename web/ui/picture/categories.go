package picture

import "html/template"

// Categories draws a horizontal bar chart of counts. It is an HTML list. Each line has a name, a count and a
// bar.
type Categories struct {
	// Label names the list for screen readers.
	Label string
	// NoData is shown if there are no items.
	NoData string
	// Items beyond the 100th are omitted.
	Items []Category
	// Value formats a count. Nil means plain decimals.
	Value func(float64) string
}

// A Category is one bar.
type Category struct {
	Name string
	// Value is drawn as zero if it is NaN, infinite, negative or above 1e15. Zero has a stub as its bar.
	Value float64
	// Href makes the line a link. It must be a URL of this site or an HTTP URL; other values are ignored.
	Href string
}

// HTML returns the list.
func (c Categories) HTML() template.HTML {
	items := c.Items[:min(len(c.Items), maxItems)]
	write := plain(c.Value)
	m := &markup{}
	m.put(`<div class="pic pic-cats">`)
	if len(items) == 0 {
		m.tag(`<p class="pic-none">`, c.NoData, maxText, `</p></div>`)
		return m.html()
	}
	greatest := 0.0
	for _, item := range items {
		greatest = max(greatest, item.value())
	}
	m.put(`<ul role="list"`)
	if c.Label != "" {
		m.tag(` aria-label="`, c.Label, maxText, `"`)
	}
	m.put(`>`)
	for _, item := range items {
		m.put(`<li>`)
		end := `</span>`
		if href := link(item.Href); href != "" {
			m.tag(`<a class="pic-cat" href="`, href, 2000, `">`)
			end = `</a>`
		} else {
			m.put(`<span class="pic-cat">`)
		}
		m.tag(`<span class="pic-cat-name">`, item.Name, maxName, `</span> `)
		m.tag(`<b class="pic-cat-count">`, write(item.value()), maxName, `</b>`)
		item.bar(m, greatest)
		m.put(end, `</li>`)
	}
	m.put(`</ul></div>`)
	return m.html()
}

func (c Category) value() float64 {
	v, _ := plotted(c.Value)
	return v
}

// bar draws the count in proportion to the greatest. A bar above zero is at least one percent wide.
func (c Category) bar(m *markup, greatest float64) {
	m.put(`<svg class="pic-cat-bar pic-t1" aria-hidden="true" width="100%" height="10">`)
	if v := c.value(); v > 0 {
		m.put(`<rect height="10" rx="2.5"`)
		m.number("width", max(tenths(v/greatest*100), 10), "%")
		m.put(`/>`)
	} else {
		m.put(`<rect class="pic-zero" height="10" width="2"/>`)
	}
	m.put(`</svg>`)
}
