package picture

import (
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// markup builds HTML. Untrusted text must be added with text or tag, which escape it.
type markup struct{ b []byte }

// put appends trusted markup.
func (m *markup) put(parts ...string) {
	for _, part := range parts {
		m.b = append(m.b, part...)
	}
}

// text appends an escaped text, cut to at most that many characters.
func (m *markup) text(s string, limit int) { m.put(template.HTMLEscapeString(clean(s, limit))) }

// tag appends an escaped text between trusted markup.
func (m *markup) tag(open, text string, limit int, end string) {
	m.put(open)
	m.text(text, limit)
	m.put(end)
}

// path appends a path element, unless the path is empty.
func (m *markup) path(class string, p pathData) {
	if len(p.d) > 0 {
		m.put(`<path class="`, class, `" d="`, string(p.d), `"/>`)
	}
}

// number appends an attribute with a length. unit is "" (user units or pixels) or "%".
func (m *markup) number(name string, tenths int, unit string) {
	m.put(" ", name, `="`)
	m.b = appendTenths(m.b, tenths)
	m.put(unit, `"`)
}

// name completes an open tag with its role, title and description. Without a title it hides the element from
// screen readers.
func (m *markup) name(f Frame, end string) {
	if f.Title == "" {
		m.put(` aria-hidden="true"`, end)
		return
	}
	id := ident(f.ID)
	m.put(` role="img" aria-labelledby="`, id, "-t")
	if f.Desc != "" {
		m.put(" ", id, "-d")
	}
	m.tag(`"`+end+`<title id="`+id+`-t">`, f.Title, maxText, "</title>")
	if f.Desc != "" {
		m.tag(`<desc id="`+id+`-d">`, f.Desc, maxText, "</desc>")
	}
}

func (m *markup) html() template.HTML { return template.HTML(m.b) }

// clean cuts a text to at most that many characters. It removes control characters, which XML forbids, and
// bidirectional controls, which would change the direction of the text after it.
func clean(s string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			continue
		case r == '\uFFFE' || r == '\uFFFF':
			r = unicode.ReplacementChar
		}
		if n == limit {
			b.WriteRune('…')
			break
		}
		n++
		b.WriteRune(r)
	}
	return b.String()
}

// fit cuts a text to about that many pixels at the size of labels.
func fit(s string, limit int) string {
	s = clean(s, maxName)
	if width(s) <= limit {
		return s
	}
	room := limit - width("…")
	for i, r := range s {
		room -= runeWidth(r)
		if room < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// width estimates the width of a text in pixels at the size of labels.
func width(s string) int {
	w := 0
	for _, r := range s {
		w += runeWidth(r)
	}
	return w
}

func runeWidth(r rune) int {
	if r >= 0x1100 { // Hangul, Han, kana, full-width forms
		return 12
	}
	return 7
}

// ident returns a text as an HTML id of ASCII letters, digits, hyphens and underscores.
func ident(s string) string {
	if s == "" {
		return "picture"
	}
	id := []byte(clean(s, maxName))
	for i, c := range id {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			id[i] = '_'
		}
	}
	return string(id)
}

// link returns a URL if it is relative or an HTTP URL, else "".
func link(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 2000 || strings.ContainsFunc(s, unicode.IsControl) {
		return ""
	}
	if s == "" {
		return ""
	}
	scheme, _, hasScheme := strings.Cut(s, ":")
	switch {
	case !hasScheme, scheme == "http", scheme == "https", strings.ContainsRune("/?#", rune(s[0])):
		return s
	}
	return ""
}

// tenths returns a length in tenths, rounded. NaN is 0, and the range is ±1e6.
func tenths(v float64) int {
	if math.IsNaN(v) {
		return 0
	}
	return int(math.Round(min(max(v, -1e6), 1e6) * 10))
}

// appendTenths appends a length with at most one decimal in the shortest form that SVG accepts.
func appendTenths(b []byte, n int) []byte {
	if n < 0 {
		b = append(b, '-')
		n = -n
	}
	whole, part := n/10, n%10
	if whole != 0 || part == 0 {
		b = strconv.AppendInt(b, int64(whole), 10)
	}
	if part != 0 {
		b = append(b, '.', byte('0'+part))
	}
	return b
}

// pathData builds the data of an SVG path from coordinates in tenths. Moves are absolute; lines are relative,
// which is shorter. The coordinates are already rounded, so relative steps add up no rounding error.
type pathData struct {
	d    []byte
	x, y int
	last byte
	// flat is the x coordinate at which a horizontal line begins, and flatAt its place in d.
	flat, flatAt int
}

func (p *pathData) move(x, y int) {
	p.d = append(p.d, 'M')
	p.pair(x, y)
	p.x, p.y, p.last = x, y, 'M'
}

func (p *pathData) line(x, y int) {
	if y == p.y {
		p.across(x)
		return
	}
	if p.last != 'l' {
		p.d = append(p.d, 'l')
	} else if x >= p.x {
		p.d = append(p.d, ' ')
	}
	p.pair(x-p.x, y-p.y)
	p.x, p.y, p.last = x, y, 'l'
}

// across draws a horizontal line to x. Several in a row become one.
func (p *pathData) across(x int) {
	if p.last != 'h' {
		p.flat, p.flatAt = p.x, len(p.d)
	}
	p.d = append(p.d[:p.flatAt], 'h')
	p.d = appendTenths(p.d, x-p.flat)
	p.x, p.last = x, 'h'
}

// down draws a vertical line to y.
func (p *pathData) down(y int) {
	p.d = append(p.d, 'v')
	p.d = appendTenths(p.d, y-p.y)
	p.y, p.last = y, 'v'
}

// close draws a horizontal line to x and closes the shape.
func (p *pathData) close(x int) {
	p.d = append(p.d, 'H')
	p.d = appendTenths(p.d, x)
	p.d = append(p.d, 'z')
	p.x, p.last = x, 'z'
}

func (p *pathData) pair(x, y int) {
	p.d = appendTenths(p.d, x)
	if y >= 0 {
		p.d = append(p.d, ' ')
	}
	p.d = appendTenths(p.d, y)
}
