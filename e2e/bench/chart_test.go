package bench

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
)

const chartTitle = "Callbacks delivered per second, and CPU seconds per 1,000, by system"

// Measures of the chart, in its units.
const (
	chartWidth  = 960
	labelWidth  = 246
	panelWidth  = 290
	panelGap    = 64
	barHeight   = 15
	groupGap    = 14
	groupLeast  = 2 * barHeight // a group is as high as its two lines of text
	chartTop    = 92
	chartBottom = 34
	valueGap    = 6
	quarters    = 4 // the parts of an axis
)

// chartStyle has two sets of colours: a reader's own preference picks one. Bars differ in lightness too, and each carries its
// number.
const chartStyle = `
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
  .title { font-size: 17px; font-weight: 600; } .head { font-weight: 600; } .small { font-size: 11.5px; fill: #59636e; }
  .paper { fill: #ffffff; } .grid { stroke: #d1d9e0; } .range { stroke: #1f2328; stroke-width: 1.5; } .halo { stroke: #ffffff; stroke-width: 4; }
  .ours0 { fill: #0550ae; } .ours1 { fill: #4c8fdd; } .peer0 { fill: #59636e; } .peer1 { fill: #8c959f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; } .small { fill: #9198a1; } .paper { fill: #0d1117; } .grid { stroke: #3d444d; } .range { stroke: #f0f6fc; } .halo { stroke: #0d1117; }
    .ours0 { fill: #58a6ff; } .ours1 { fill: #316dca; } .peer0 { fill: #9198a1; } .peer1 { fill: #656c76; }
  }
`

// A panel is one of the two halves of the chart.
type panel struct {
	head, figure, format string
	x                    float64
	top                  float64 // the end of the axis
}

// A drawing collects the elements of the chart.
type drawing struct{ bytes.Buffer }

func (d *drawing) put(format string, args ...any) { fmt.Fprintf(&d.Buffer, format+"\n", args...) }

func (d *drawing) text(x, y float64, class, anchor, content string) {
	d.put(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, escaped(content))
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}

// chart draws, for each system, a bar a concurrency: what it delivers a second on the left, what CPU time that takes on the
// right. A thin line shows the least and the most of the rounds.
func (r *report) chart() []byte {
	panels := []panel{
		{head: "delivered/s (more is better)", figure: delivered, format: "%.0f", x: labelWidth},
		{head: "CPU s per 1,000 (less is better)", figure: deliverCPU, format: "%.3f", x: labelWidth + panelWidth + panelGap},
	}
	rows := r.chartRows()
	concurrencies := concurrenciesOf(rows)
	for i := range panels {
		most := 0.0
		for _, at := range rows {
			most = max(most, r.of(at, panels[i].figure).most)
		}
		panels[i].top = roundTop(most)
	}
	var d drawing
	height := chartTop + chartBottom + r.groupsHeight(rows)
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t d">`,
		chartWidth, height, chartWidth, height)
	d.put(`<title id="t">%s</title>`, escaped(chartTitle))
	d.put(`<desc id="d">%s</desc>`, escaped(r.described(rows)))
	d.put(`<style>%s</style>`, chartStyle)
	d.put(`<rect class="paper" width="%d" height="%d"/>`, chartWidth, height)
	d.text(16, 28, "title", "start", chartTitle)
	r.legend(&d, concurrencies)
	for _, p := range panels {
		p.axis(&d, float64(height-chartBottom))
	}
	y := float64(chartTop)
	for _, s := range r.systems {
		of := slices.DeleteFunc(slices.Clone(rows), func(at row) bool { return at.system != s.key })
		if len(of) == 0 {
			continue
		}
		d.text(labelWidth-10, y+12, "name", "end", s.name)
		d.text(labelWidth-10, y+27, "small", "end", s.on)
		for i, at := range of {
			for _, p := range panels {
				p.bar(&d, y+float64(i*barHeight), classOf(s, slices.Index(concurrencies, at.concurrency)), r.of(at, p.figure))
			}
		}
		y += float64(max(len(of)*barHeight, groupLeast) + groupGap)
	}
	d.put("</svg>")
	return d.Bytes()
}

// chartRows are those that were measured, system by system.
func (r *report) chartRows() []row {
	var rows []row
	for _, s := range r.systems {
		first := len(rows)
		for at := range r.book {
			if at.system == s.key && r.of(at, delivered).rounds > 0 {
				rows = append(rows, at)
			}
		}
		slices.SortFunc(rows[first:], func(a, b row) int { return a.concurrency - b.concurrency })
	}
	return rows
}

// groupsHeight is that of all bars with the gaps below each system's.
func (r *report) groupsHeight(rows []row) int {
	height := 0
	for _, s := range r.systems {
		n := 0
		for _, at := range rows {
			if at.system == s.key {
				n++
			}
		}
		if n > 0 {
			height += max(n*barHeight, groupLeast) + groupGap
		}
	}
	return height
}

func concurrenciesOf(rows []row) []int {
	var all []int
	for _, at := range rows {
		all = append(all, at.concurrency)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// classOf picks a colour: the dispatcher's or another's, dark for the first concurrency and lighter for the others.
func classOf(s system, concurrency int) string {
	kind := "peer"
	if s.counted[0] == roleDispatcher {
		kind = "ours"
	}
	return fmt.Sprintf("%s%d", kind, min(concurrency, 1))
}

func (r *report) legend(d *drawing, concurrencies []int) {
	x := 16.0
	for i, c := range concurrencies {
		for _, kind := range []string{"ours", "peer"} {
			d.put(`<rect x="%.1f" y="41" width="12" height="12" class="%s%d"/>`, x, kind, min(i, 1))
			x += 15
		}
		label := fmt.Sprintf("%d at once", c)
		d.text(x+3, 51.5, "small", "start", label)
		x += float64(len(label))*6.5 + 20
	}
	d.text(x, 51.5, "small", "start", "thin line: least to most of the rounds")
}

// axis draws the head of a panel and its grid.
func (p panel) axis(d *drawing, bottom float64) {
	d.text(p.x, 76, "head", "start", p.head)
	for i := range quarters + 1 {
		share := float64(i) / quarters
		x := p.x + share*panelWidth
		d.put(`<line x1="%.1f" x2="%.1f" y1="%d" y2="%.1f" class="grid"/>`, x, x, chartTop-6, bottom-4)
		d.text(x, bottom+12, "small", "middle", trimmed(share*p.top))
	}
}

// bar draws one, with its range and its number.
func (p panel) bar(d *drawing, y float64, class string, s spread) {
	scale := panelWidth / p.top
	d.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%d" class="%s"/>`, p.x, y+1, s.median*scale, barHeight-2, class)
	end := s.median
	if s.rounds > 1 {
		middle := y + barHeight/2
		for _, class := range []string{"halo", "range"} { // the halo parts the line from its bar
			d.put(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="%s"/>`, p.x+s.least*scale, p.x+s.most*scale, middle, middle, class)
		}
		end = s.most
	}
	d.text(p.x+end*scale+valueGap, y+12, "small", "start", fmt.Sprintf(p.format, s.median))
}

// roundTop is a number above the largest whose quarters are round too.
func roundTop(most float64) float64 {
	if most <= 0 {
		return 1
	}
	need := most * 1.05
	power := math.Pow(10, math.Floor(math.Log10(need)))
	for _, step := range []float64{1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8} {
		if step*power >= need {
			return step * power
		}
	}
	return 10 * power
}

// described says in words what the chart shows, for who cannot see it.
func (r *report) described(rows []row) string {
	var all []string
	for _, at := range rows {
		i := slices.IndexFunc(r.systems, func(s system) bool { return s.key == at.system })
		all = append(all, fmt.Sprintf("%s (%s), %d at once: %.0f per second, %.3f CPU seconds per 1,000",
			r.systems[i].name, r.systems[i].on, at.concurrency, r.of(at, delivered).median, r.of(at, deliverCPU).median))
	}
	return strings.Join(all, "; ") + "."
}
