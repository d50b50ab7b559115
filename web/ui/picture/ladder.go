package picture

import (
	"cmp"
	"html/template"
	"strconv"
)

// A State is how a step of a ladder stands, by its name in the style sheet.
type State string

// The states. The zero value is that of an attempt that follows if those before it do not succeed.
const (
	ToCome State = ""
	// Succeeded and Failed are attempts that were made.
	Succeeded State = "pic-succeeded"
	Failed    State = "pic-failed"
	// Attempting is the one that is being made.
	Attempting State = "pic-attempting"
	// Next is the one that is waited for.
	Next State = "pic-next"
	// Never is one that will not be made any more.
	Never State = "pic-never"
)

// glyphs are drawn into the marks: they differ in shape and not only in colour.
var glyphs = map[State]string{
	Succeeded:  `<path class="pic-glyph" d="M7.5 12.5l3 3 6-6.5"/>`,
	Failed:     `<path class="pic-glyph" d="M8.5 8.5l7 7m0-7l-7 7"/>`,
	Attempting: `<circle class="pic-pulse" cx="12" cy="12" r="4.5"/>`,
	Next:       `<path class="pic-glyph" d="M12 7v5.3l3.4 2"/>`,
	Never:      `<path class="pic-glyph" d="M8 12h8"/>`,
}

// Ladder draws the attempts of one callback in equal steps, whatever the waits between them are, with the
// waits written between the marks. It is an ordered list: it goes from left to right in as many rows as it
// needs, and from top to bottom where it is narrow.
type Ladder struct {
	// Label names the list for those who cannot see it.
	Label string
	Steps []Step
	// More writes what stands for n steps that are not shown. Nil: … and the number.
	More func(n int) string
}

// A Step is one attempt.
type Step struct {
	State State
	// Manual is an attempt that was asked for by hand; its mark is a square.
	Manual bool
	// Number is written before Label: which attempt it is.
	Number string
	// Label says how the step stands, in words: the mark beside it is hidden from those who cannot see it.
	Label string
	// Detail is a second line, for example a moment.
	Detail string
	// Wait is how long it was or will be until the step after this one. That of the last step is not shown.
	Wait string
	// Href makes the label a link. An address that is neither of this site nor of HTTP makes none.
	Href string
}

// maxSteps is how long the list may be: of more steps, the first, the last and those around where the
// callback stands are shown.
const maxSteps = 20

// HTML is the list, or nothing where there is no step.
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
	shown := kept(l.Steps, maxSteps)
	for i := 0; i < len(l.Steps); {
		if shown[i] {
			l.Steps[i].draw(m, i == len(l.Steps)-1)
			i++
			continue
		}
		n := 0
		for ; i < len(l.Steps) && !shown[i]; i++ {
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

// kept says which steps are shown: all, or three at the beginning, two at the end and those around the one
// that the callback stands at. It never leaves out a single step, as its stand-in would be as long.
func kept(steps []Step, most int) []bool {
	shown := make([]bool, len(steps))
	if len(steps) <= most {
		for i := range shown {
			shown[i] = true
		}
		return shown
	}
	now := 0
	for i, s := range steps {
		if s.State == Attempting || s.State == Next {
			now = i
			break
		}
		if s.State == Succeeded || s.State == Failed {
			now = i
		}
	}
	const first, last, standIns = 3, 2, 2
	room := most - first - last - standIns
	from := min(max(now-room/2, first), len(steps)-last-room)
	for i := range shown {
		shown[i] = i < first || i >= len(steps)-last || i >= from && i < from+room
	}
	if from == first+1 {
		shown[first] = true
	}
	if i := from + room; i == len(steps)-last-1 {
		shown[i] = true
	}
	return shown
}

// draw writes one step. What is written comes in the order in which it is read aloud.
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
