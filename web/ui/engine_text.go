package ui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// engineTexts translates texts of the engine: why a callback waits, what is wrong with a field, what a rule
// expected. They are English because they are part of the API, and some are stored in SQL. The key of a
// translation is the format that the engine gives to fmt.Sprintf; the arguments are read back from the text.
// TestEngineTextsAreTranslated finds formats of the engine without a translation.
type engineTexts struct {
	exact    map[string]string
	patterns []enginePattern
}

// An enginePattern is a format with arguments. The translation has {1} for the first argument.
type enginePattern struct {
	prefix, suffix string                // the literal ends of the format
	match          func() *regexp.Regexp // compiled at the first use
	format         string
	translation    string
	literals       int // the bytes of the format that are no arguments
}

const (
	// maxEngineText bounds the bytes of a text to translate, and maxNesting how deep texts contain others.
	maxEngineText = 8 << 10
	maxNesting    = 5
)

// quotedText is a text as strconv.Quote writes it, with the mark of a cut.
const quotedText = `"(?:[^"\\]|\\.)*"…?`

// onlyQuoted is the description of a body that is shorter than a sentence: what a receiver has sent.
var onlyQuoted = regexp.MustCompile(`^` + quotedText + `$`)

// engineVerbs are the patterns of the arguments. %p is the place that a predicate looks at, %o a value
// in JSON.
var engineVerbs = map[string]string{
	"%d": `(-?[\d,.]+)`, "%q": `(` + quotedText + `)`, "%s": `(.+?)`, "%p": `(the body|[^\s:]+)`,
	"%o": `(` + quotedText + `|-?\d[\d.eE+-]*…?|true|false|null)`, "%%": `%`,
}

var engineVerb = regexp.MustCompile(`%[dqspo%]`)

// readEngineTexts reads the translations of a language. A language without the file shows the English texts.
func readEngineTexts(from fs.FS, code string) (*engineTexts, error) {
	name := "texts/engine/" + code + ".json"
	raw, err := fs.ReadFile(from, name)
	if err != nil {
		return nil, fmt.Errorf("read the catalogue %s: %w", name, err)
	}
	var texts map[string]string
	if err := json.Unmarshal(raw, &texts); err != nil {
		return nil, fmt.Errorf("read the catalogue %s: %w", name, err)
	}
	e := &engineTexts{exact: make(map[string]string)}
	for format, translation := range texts {
		if p, ok := newEnginePattern(format, translation); ok {
			e.patterns = append(e.patterns, p)
		} else {
			e.exact[format] = translation
		}
	}
	slices.SortFunc(e.patterns, func(a, b enginePattern) int { // the most specific first
		return cmp.Or(b.literals-a.literals, cmp.Compare(a.format, b.format))
	})
	return e, nil
}

// newEnginePattern parses a format. ok is false for a format without arguments.
func newEnginePattern(format, translation string) (p enginePattern, ok bool) {
	verbs := engineVerb.FindAllStringIndex(format, -1)
	if len(verbs) == 0 {
		return p, false
	}
	var pattern strings.Builder
	pattern.WriteString(`(?s)^`)
	end := 0
	for _, v := range verbs {
		pattern.WriteString(regexp.QuoteMeta(format[end:v[0]]) + engineVerbs[format[v[0]:v[1]]])
		p.literals += v[0] - end
		end = v[1]
	}
	pattern.WriteString(regexp.QuoteMeta(format[end:]) + `$`)
	p.prefix, p.suffix = format[:verbs[0][0]], format[end:]
	p.literals += len(p.suffix)
	p.match = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern.String()) })
	p.format, p.translation = format, translation
	return p, true
}

// arguments returns the arguments of a text of this format, or nil.
func (p *enginePattern) arguments(text string) []string {
	if !strings.HasPrefix(text, p.prefix) || !strings.HasSuffix(text, p.suffix) {
		return nil
	}
	if found := p.match().FindStringSubmatch(text); found != nil {
		return found[1:]
	}
	return nil
}

// Engine shows a text of the engine in the viewer's language. Times in it are in the viewer's zone. A text
// without a translation is shown as a quotation, after words that say so.
func (b *base) Engine(text string) template.HTML {
	switch {
	case text == "":
		return ""
	case b.lang.engine == nil, onlyQuoted.MatchString(text):
		return asData(text)
	}
	if len(text) <= maxEngineText {
		if html, ok := b.translated(text, 0); ok {
			return html
		}
		if strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) }) {
			return escaped(text) // a message of this package
		}
	}
	return escaped(b.T("engine.original")) + untranslated(text)
}

// untranslated marks a text of the program that has no translation. No page of the tests may have one.
func untranslated(text string) template.HTML {
	return `<samp class="untranslated" lang="en" translate="no">` + escaped(text) + `</samp>`
}

func escaped(text string) template.HTML { return template.HTML(template.HTMLEscapeString(text)) }

func asData(text string) template.HTML {
	return `<span translate="no">` + escaped(text) + `</span>`
}

// fieldMessage is the name of a field and what is wrong with it, as store.InvalidError writes them.
var fieldMessage = regexp.MustCompile(`^([a-z][a-zA-Z0-9_.\[\]-]*): (.+)$`)

// engineLists separate texts of the engine that stand in one line. Each has the key of its translation.
var engineLists = []struct{ between, key string }{
	{"; ", "engine.list"}, {" or ", "engine.or"}, {" and ", "engine.and"}, {", ", "engine.comma"},
}

// translated translates a text of the engine. ok is false if there is no translation.
func (b *base) translated(text string, depth int) (html template.HTML, ok bool) {
	e := b.lang.engine
	if depth > maxNesting {
		return "", false
	}
	if translation, ok := e.exact[text]; ok {
		return escaped(translation), true
	}
	if html, ok := b.translatedParts(text, depth); ok {
		return html, true
	}
	for i := range e.patterns {
		if arguments := e.patterns[i].arguments(text); arguments != nil {
			return b.filled(e.patterns[i].translation, arguments, depth), true
		}
	}
	if m := fieldMessage.FindStringSubmatch(text); m != nil {
		if html, ok := b.translated(m[2], depth+1); ok {
			return `<code translate="no">` + escaped(m[1]) + `</code> ` + html, true
		}
	}
	return "", false
}

// translatedParts translates a list of texts, if each of them has a translation. A text may itself contain
// the separator.
func (b *base) translatedParts(text string, depth int) (template.HTML, bool) {
	for _, list := range engineLists {
		parts := splitUnquoted(text, list.between)
		if len(parts) < 2 {
			continue
		}
		var all template.HTML
		for i := 0; i < len(parts); {
			html, taken := b.firstTranslated(parts[i:], list.between, i == 0, depth)
			if taken == 0 {
				all = ""
				break
			}
			if i > 0 {
				all += escaped(b.T(list.key))
			}
			all += html
			i += taken
		}
		if all != "" {
			return all, true
		}
	}
	return "", false
}

// firstTranslated translates the shortest text at the beginning of parts that has a translation, and returns
// the number of its parts. If first is true, the text has not all of them.
func (b *base) firstTranslated(
	parts []string, between string, first bool, depth int,
) (html template.HTML, taken int) {
	const most = 3 // parts of one text
	for n := 1; n <= min(most, len(parts)); n++ {
		if first && n == len(parts) {
			break
		}
		if html, ok := b.translated(strings.Join(parts[:n], between), depth+1); ok {
			return html, n
		}
	}
	return "", 0
}

// filled puts the arguments into a translation.
func (b *base) filled(translation string, arguments []string, depth int) template.HTML {
	html := template.HTMLEscapeString(translation)
	pairs := make([]string, 0, 2*len(arguments))
	for i, a := range arguments {
		pairs = append(pairs, "{"+strconv.Itoa(i+1)+"}", string(b.argument(a, depth+1)))
	}
	return template.HTML(strings.NewReplacer(pairs...).Replace(html))
}

// argument shows an argument: a text of the engine, the name of a class or a reason, a time, a duration, or
// data.
func (b *base) argument(text string, depth int) template.HTML {
	if html, ok := b.translated(text, depth); ok {
		return html
	}
	for _, names := range []string{"class.", "reason."} {
		if b.Has(names + text) {
			return escaped(b.T(names + text))
		}
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return b.Exact(at.UnixMilli())
	}
	// A number without a unit is a value, such as a code of a response.
	if d, err := schedule.ParseDuration(text); err == nil && strings.ContainsAny(text, "smhd") {
		return escaped(b.duration(d))
	}
	return asData(text)
}

// splitUnquoted splits a text at a separator that is not within quotes.
func splitUnquoted(text, between string) []string {
	var parts []string
	begin, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case !quoted && strings.HasPrefix(text[i:], between):
			parts = append(parts, text[begin:i])
			i += len(between) - 1
			begin = i + 1
		}
	}
	return append(parts, text[begin:])
}
