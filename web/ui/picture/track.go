package picture

import (
	"cmp"
	"html/template"
	"math"
	"slices"
	"strconv"
	"time"
)

// A Track is a time axis that several rows share. It keeps the order of the times and shortens the gaps
// between them: a minute and an hour differ, and attempts within a second stay apart.
type Track struct {
	// Label names each row that has links for screen readers. Rows without links are hidden from them.
	Label string
	// Rows are the marks of each row.
	Rows [][]Mark
	// Now is the present time. Unless there are many marks, it has a line in each row. Zero means none.
	Now time.Time
	// Location is the time zone of the labels. Nil means UTC.
	Location *time.Location
}

// A Mark is one attempt in a row.
type Mark struct {
	At    time.Time
	State State
	// Manual marks a manual attempt. Its mark is a square.
	Manual bool
	// Title is the tooltip, and the name of the link.
	Title string
	// Href makes the mark a link, as in a Step.
	Href string
}

// Bounds of a track. Places are in tenths of a percent.
const (
	maxMarks     = 150 // marks of all rows; the newest of each row stay
	fewMarks     = 60  // with more marks, they are dots without titles and links
	linkDistance = 95  // the least distance of a link to its neighbours: 24 pixels at 255 pixels
	trackEdge    = 30  // room at both ends
)

// HTML returns the head and the rows.
func (t Track) HTML() template.HTML {
	head, rows := t.Draw()
	all := head
	for _, row := range rows {
		all += row
	}
	return all
}

// Draw returns the head, which has the labels of the axis, and each row. The head is empty without marks.
func (t Track) Draw() (head template.HTML, rows []template.HTML) {
	shown := make([][]Mark, len(t.Rows))
	for i, row := range t.Rows {
		row = slices.SortedStableFunc(slices.Values(row), func(a, b Mark) int { return a.At.Compare(b.At) })
		shown[i] = row[max(len(row)-max(maxMarks/len(t.Rows), 1), 0):]
	}
	places := t.places(shown)
	n := 0
	for _, row := range shown {
		n += len(row)
	}
	for _, row := range shown {
		rows = append(rows, t.row(row, places, n > fewMarks))
	}
	return t.head(places), rows
}

// places returns the place of each time on the axis.
func (t Track) places(rows [][]Mark) map[int64]int {
	var times []int64
	for _, row := range rows {
		for _, m := range row {
			times = append(times, m.At.UnixMilli())
		}
	}
	if len(times) == 0 {
		return nil
	}
	if !t.Now.IsZero() {
		times = append(times, t.Now.UnixMilli())
	}
	slices.Sort(times)
	times = slices.Compact(times)
	along := make([]float64, len(times))
	for i := 1; i < len(times); i++ {
		gap := float64(times[i]) - float64(times[i-1])
		along[i] = along[i-1] + 1 + math.Log2(1+gap/1000)
	}
	whole := along[len(along)-1]
	places := make(map[int64]int, len(times))
	for i, at := range times {
		places[at] = 500
		if whole > 0 {
			places[at] = trackEdge + int(math.Round(along[i]/whole*(1000-2*trackEdge)))
		}
	}
	return places
}

// head draws the labels: the first time, and each further one that has room.
func (t Track) head(places map[int64]int) template.HTML {
	if len(places) == 0 {
		return ""
	}
	zone := t.Location
	if zone == nil {
		zone = time.UTC
	}
	var times []int64
	for at := range places {
		times = append(times, at)
	}
	slices.Sort(times)
	first, last := time.UnixMilli(times[0]).In(zone), time.UnixMilli(times[len(times)-1]).In(zone)
	layout := "01-02 15:04"
	switch sameDay := first.Format(time.DateOnly) == last.Format(time.DateOnly); {
	case sameDay && last.Sub(first) < 10*time.Minute:
		layout = time.TimeOnly
	case sameDay:
		layout = "15:04"
	}
	m := &markup{}
	m.put(`<svg class="pic pic-scale" width="100%" height="18" aria-hidden="true">`)
	free, before := 0, ""
	for _, at := range times {
		text := time.UnixMilli(at).In(zone).Format(layout)
		room := width(text) * 1000 / 300 // at a width of 300 pixels
		begin, class := places[at]-room/2, ""
		switch {
		case begin < 0:
			begin, class = places[at]-20, ` class="pic-start"`
		case begin+room > 1000:
			begin, class = places[at]+20-room, ` class="pic-end"`
		}
		if begin < free || text == before {
			continue
		}
		before, free = text, begin+room+20
		m.put(`<text y="13"`, class)
		m.number("x", places[at], "%")
		m.tag(">", text, maxName, `</text>`)
	}
	m.put(`</svg>`)
	return m.html()
}

// row draws one row. dense makes its marks dots.
func (t Track) row(marks []Mark, places map[int64]int, dense bool) template.HTML {
	m := &markup{}
	hrefs := make([]string, len(marks))
	if !dense {
		hrefs = linked(marks, places)
	}
	m.put(`<svg class="pic pic-row" width="100%" height="24"`)
	if slices.ContainsFunc(hrefs, func(href string) bool { return href != "" }) {
		m.tag(` role="group" aria-label="`, t.Label, maxText, `">`)
	} else {
		m.put(` aria-hidden="true">`)
	}
	rail := func(class string, from, to int) {
		m.put(`<line class="`, class, `" y1="12" y2="12"`)
		m.number("x1", from, "%")
		m.number("x2", to, "%")
		m.put(`/>`)
	}
	at := func(i int) int { return places[marks[i].At.UnixMilli()] }
	if x, ok := places[t.Now.UnixMilli()]; ok && !t.Now.IsZero() && !dense {
		m.put(`<line class="pic-now" y1="0" y2="24"`)
		m.number("x1", x, "%")
		m.number("x2", x, "%")
		m.put(`/>`)
	}
	if last := len(marks) - 1; last > 0 {
		past := last
		if marks[last].State == Next {
			past = last - 1
			rail("pic-rail pic-ahead", at(past), at(last))
		}
		rail("pic-rail", at(0), at(past))
	}
	for i, mark := range marks {
		if dense {
			m.put(`<circle class="pic-dot `, cmp.Or(string(mark.State), "pic-tocome"), `" cy="12" r="4"`)
			m.number("cx", at(i), "%")
			m.put(`/>`)
			continue
		}
		mark.draw(m, at(i), hrefs[i])
	}
	m.put(`</svg>`)
	return m.html()
}

// linked returns the link of each mark, or "" for one that is too close to a neighbour.
func linked(marks []Mark, places map[int64]int) []string {
	at := func(i int) int { return places[marks[i].At.UnixMilli()] }
	hrefs := make([]string, len(marks))
	for i := range marks {
		near := i > 0 && at(i)-at(i-1) < linkDistance ||
			i < len(marks)-1 && at(i+1)-at(i) < linkDistance
		if !near {
			hrefs[i] = link(marks[i].Href)
		}
	}
	return hrefs
}

// draw draws a mark at a place. href is its link or "".
func (k Mark) draw(m *markup, place int, href string) {
	end := `</g>`
	if href != "" {
		m.tag(`<a href="`, href, 2000, `">`)
		end = `</a>`
	} else {
		m.put(`<g>`)
	}
	if k.Title != "" {
		m.tag(`<title>`, k.Title, maxText, `</title>`)
	}
	m.put(`<svg class="pic-sign `, cmp.Or(string(k.State), "pic-tocome"), `"`)
	m.number("x", place, "%")
	// The middle of the 24 units wide mark is at its place.
	m.put(` aria-hidden="true" width="17" height="24" viewBox="12 -5 24 34" fill="none">`)
	if k.Manual {
		m.put(`<rect class="pic-body" x="2.5" y="2.5" width="19" height="19" rx="4"/>`)
	} else {
		m.put(`<circle class="pic-body" cx="12" cy="12" r="10"/>`)
	}
	m.put(glyphs[k.State], `</svg>`, end)
}

// maxPhases bounds the parts of a Phases.
const maxPhases = 6

// Phases draws the parts of the duration of an attempt as one bar, with a line of their values below it.
type Phases struct {
	// Label names the list of values for screen readers.
	Label string
	// Parts beyond the sixth are omitted.
	Parts []Phase
}

// A Phase is one part of a duration.
type Phase struct {
	// Text has the name and the value, such as "DNS 1.2 ms".
	Text string
	// Length is as the Value of a Part.
	Length float64
	// Kind is the colour: 0 for a wait before the first phase, else 1 to 5.
	Kind int
}

// HTML returns the bar, or "" without parts.
func (p Phases) HTML() template.HTML {
	phases := p.Parts[:min(len(p.Parts), maxPhases)]
	if len(phases) == 0 {
		return ""
	}
	parts := make([]Part, len(phases))
	class := func(i int) string { return "pic-p" + strconv.Itoa(min(max(phases[i].Kind, 0), 5)) }
	for i, phase := range phases {
		parts[i] = Part{Value: phase.Length}
	}
	m := &markup{}
	m.put(`<div class="pic pic-phases"><svg class="pic-track" width="100%" height="8" aria-hidden="true">`)
	x := 0
	for i, w := range shares(parts, 0) {
		if w == 0 {
			continue
		}
		m.put(`<rect class="`, class(i), `" height="8"`)
		m.number("x", x, "%")
		m.number("width", w, "%")
		m.tag(`><title>`, phases[i].Text, maxName, `</title></rect>`)
		x += w
	}
	m.put(`</svg><ul role="list"`)
	if p.Label != "" {
		m.tag(` aria-label="`, p.Label, maxText, `"`)
	}
	m.put(`>`)
	for i := range phases {
		m.tag(`<li class="`+class(i)+`"><span>`, phases[i].Text, maxName, `</span></li>`)
	}
	m.put(`</ul></div>`)
	return m.html()
}
