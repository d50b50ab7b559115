package picture

import (
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// markup collects HTML. What comes from outside goes through text or attr and nowhere else.
type markup struct{ b []byte }

// put adds markup of our own.
func (m *markup) put(parts ...string) {
	for _, part := range parts {
		m.b = append(m.b, part...)
	}
}

// text adds a text from outside, at most so many characters of it.
func (m *markup) text(s string, most int) { m.put(template.HTMLEscapeString(clean(s, most))) }

// tag adds a text from outside between markup of our own.
func (m *markup) tag(open, text string, most int, end string) {
	m.put(open)
	m.text(text, most)
	m.put(end)
}

// path adds a path of a class, unless there is nothing of it.
func (m *markup) path(class string, p pen) {
	if len(p.d) > 0 {
		m.put(`<path class="`, class, `" d="`, string(p.d), `"/>`)
	}
}

// number adds an attribute in user units or pixels; unit is "" or "%".
func (m *markup) number(name string, tenths int, unit string) {
	m.put(" ", name, `="`)
	m.b = appendTenths(m.b, tenths)
	m.put(unit, `"`)
}

// name ends the tag that was begun with role, title and description. Without a title the element is
// decoration.
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

// clean cuts a text to so many characters, and takes from it what XML cannot hold and what would turn the
// direction of the text after it.
func clean(s string, most int) string {
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
		if n == most {
			b.WriteRune('…')
			break
		}
		n++
		b.WriteRune(r)
	}
	return b.String()
}

// fit cuts a text to about so many pixels of the labels' size.
func fit(s string, most int) string {
	s = clean(s, maxName)
	if width(s) <= most {
		return s
	}
	room := most - width("…")
	for i, r := range s {
		room -= runeWidth(r)
		if room < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// width is about how many pixels a text takes at the size of the labels.
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

// ident makes a text an id that no other text needs to quote.
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

// link is an address that may stand in an href: one of this site, or of HTTP. Others are none.
func link(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 2000 || strings.ContainsFunc(s, unicode.IsControl) {
		return ""
	}
	scheme, _, found := strings.Cut(s, ":")
	switch {
	case s == "":
	case strings.ContainsRune("/?#", rune(s[0])), found && (scheme == "http" || scheme == "https"),
		!strings.ContainsRune(s, ':'):
		return s
	}
	return ""
}

// tenths rounds a length to tenths, and makes a finite one of every number.
func tenths(v float64) int {
	if math.IsNaN(v) {
		return 0
	}
	return int(math.Round(min(max(v, -1e6), 1e6) * 10))
}

// appendTenths writes a length with at most one decimal, as short as SVG reads it.
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

// A pen writes the data of a path, in tenths: absolute where it is set down and relative where it moves on,
// because that is shorter. As it moves between rounded points, no error adds up.
type pen struct {
	d    []byte
	x, y int
	last byte
}

func (p *pen) move(x, y int) {
	p.d = append(p.d, 'M')
	p.pair(x, y)
	p.x, p.y, p.last = x, y, 'M'
}

func (p *pen) line(x, y int) {
	if p.last != 'l' {
		p.d = append(p.d, 'l')
	} else if x >= p.x {
		p.d = append(p.d, ' ')
	}
	p.pair(x-p.x, y-p.y)
	p.x, p.y, p.last = x, y, 'l'
}

// down draws straight down, or up where y is smaller.
func (p *pen) down(y int) {
	p.d = append(p.d, 'v')
	p.d = appendTenths(p.d, y-p.y)
	p.y, p.last = y, 'v'
}

// close goes back to a place on the same height and ends the shape.
func (p *pen) close(x int) {
	p.d = append(p.d, 'H')
	p.d = appendTenths(p.d, x)
	p.d = append(p.d, 'z')
	p.x, p.last = x, 'z'
}

func (p *pen) pair(x, y int) {
	p.d = appendTenths(p.d, x)
	if y >= 0 {
		p.d = append(p.d, ' ')
	}
	p.d = appendTenths(p.d, y)
}
