package picture

import (
	"cmp"
	"html/template"
	"strconv"
)

// A State is the state of a step. It is the class name in the style sheet.
type State string

// The states. The zero value is an attempt that follows if the attempts before it fail.
const (
	ToCome State = ""
	// Succeeded and Failed are past attempts.
	Succeeded State = "pic-succeeded"
	Failed    State = "pic-failed"
	// Pending is a past attempt whose answer is not final yet.
	Pending State = "pic-pending"
	// Attempting is the attempt in flight.
	Attempting State = "pic-attempting"
	// Next is the next scheduled attempt.
	Next State = "pic-next"
	// Never is an attempt that will not happen.
	Never State = "pic-never"
)

// glyphs are the signs inside the marks. They distinguish states without colours.
var glyphs = map[State]string{
	Succeeded:  `<path class="pic-glyph" d="M7.5 12.5l3 3 6-6.5"/>`,
	Failed:     `<path class="pic-glyph" d="M8.5 8.5l7 7m0-7l-7 7"/>`,
	Attempting: `<circle class="pic-pulse" cx="12" cy="12" r="4.5"/>`,
	Pending:    `<path class="pic-glyph" d="M7.5 12h.01m4.49 0h.01m4.49 0h.01"/>`,
	Next:       `<path class="pic-glyph" d="M12 7v5.3l3.4 2"/>`,
	Never:      `<path class="pic-glyph" d="M8 12h8"/>`,
}

// Ladder draws the attempts of a callback in equal steps, with the waits between the marks. It is an ordered
// list. It runs from left to right in as many rows as needed, or from top to bottom on a narrow page.
type Ladder struct {
	// Label names the list for screen readers.
	Label string
	Steps []Step
	// More returns the text for n hidden steps. Nil means "…" and the number.
	More func(n int) string
}

// A Step is one attempt.
type Step struct {
	State State
	// Manual marks a manual attempt. Its mark is a square.
	Manual bool
	// Number is the number of the attempt. It precedes Label.
	Number string
	// Label is the text of the state. Screen readers read it in place of the mark.
	Label string
	// Detail is a second line, such as a time.
	Detail string
	// Wait is the wait before the next step. It is ignored in the last step.
	Wait string
	// Href makes the label a link. It must be a URL of this site or an HTTP URL; other values are ignored.
	Href string
}

// maxSteps bounds the list. A longer ladder shows its first and last steps and those around the current one.
const maxSteps = 20

// HTML returns the list, or "" without steps.
func (l Ladder) HTML() template.HTML {
	if len(l.Steps) == 0 {
		return ""
	}
	m := &markup{}
	m.put(`<div class="pic pic-ladder"><ol role="list"`)
	if l.Label != "" {
		m.tag(` aria-label="`, l.Label, maxText, `"`)
	}
	m.put(`>`)
	visible := visibleSteps(l.Steps, maxSteps)
	for i := 0; i < len(l.Steps); {
		if visible[i] {
			l.Steps[i].draw(m, i == len(l.Steps)-1)
			i++
			continue
		}
		n := 0
		for ; i < len(l.Steps) && !visible[i]; i++ {
			n++
		}
		text := "… " + strconv.Itoa(n)
		if l.More != nil {
			text = l.More(n)
		}
		m.tag(`<li class="pic-step pic-more"><span class="pic-what">`, text, maxName, `</span></li>`)
	}
	m.put(`</ol></div>`)
	return m.html()
}

// visibleSteps reports which of the steps are visible. A list of more than limit steps shows three at the
// beginning, two at the end and those around the current step. A gap is never a single step: the text for the
// gap would take as much room.
func visibleSteps(steps []Step, limit int) []bool {
	visible := make([]bool, len(steps))
	if len(steps) <= limit {
		for i := range visible {
			visible[i] = true
		}
		return visible
	}
	current := 0
	for i, s := range steps {
		if s.State == Attempting || s.State == Next {
			current = i
			break
		}
		if s.State == Succeeded || s.State == Failed || s.State == Pending {
			current = i
		}
	}
	const first, last, gaps = 3, 2, 2
	room := limit - first - last - gaps
	from := min(max(current-room/2, first), len(steps)-last-room)
	for i := range visible {
		visible[i] = i < first || i >= len(steps)-last || i >= from && i < from+room
	}
	if from == first+1 {
		visible[first] = true
	}
	if i := from + room; i == len(steps)-last-1 {
		visible[i] = true
	}
	return visible
}

// draw draws one step. The order of the texts is the order in which a screen reader reads them.
func (s Step) draw(m *markup, last bool) {
	class := cmp.Or(string(s.State), "pic-tocome")
	m.put(`<li class="pic-step `, class, `"`)
	if s.State == Attempting || s.State == Next {
		m.put(` aria-current="step"`)
	}
	m.put(`><svg class="pic pic-sign `, class,
		`" aria-hidden="true" width="24" height="24" viewBox="0 0 24 24" fill="none">`)
	if s.Manual {
		m.put(`<rect class="pic-body" x="2.5" y="2.5" width="19" height="19" rx="4"/>`)
	} else {
		m.put(`<circle class="pic-body" cx="12" cy="12" r="10"/>`)
	}
	m.put(glyphs[s.State], `</svg><span class="pic-what">`)
	if s.Number != "" {
		m.tag(`<span class="pic-number">`, s.Number, 8, `</span> `)
	}
	end := `</span>`
	if href := link(s.Href); href != "" {
		m.tag(`<a href="`, href, 2000, `">`)
		end = `</a></span>`
	}
	m.tag("", s.Label, maxName, end)
	if s.Detail != "" {
		m.tag(` <span class="pic-detail">`, s.Detail, maxName, `</span>`)
	}
	if !last {
		m.tag(` <span class="pic-wait">`, s.Wait, maxName, `</span>`)
	}
	m.put(`</li>`)
}
