package ui

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed texts
var textFiles embed.FS

// A language is a catalogue of texts by key. It is immutable after readLanguages.
type language struct {
	// code is the BCP 47 code. name is the language's name in the language itself.
	code, name string
	texts      map[string]string
	// engine translates texts of the engine. It is nil for English, the language that they are in.
	engine *engineTexts
}

// languages are the available languages. The first is the default.
type languages []*language

// embeddedLanguages reads the embedded catalogues once. The pages and the API's delivery reports share them.
var embeddedLanguages = sync.OnceValues(func() (languages, error) { return readLanguages(textFiles) })

// readLanguages reads the catalogues: texts/CODE/*.json, each an object of texts by key. All catalogues have
// the same keys, except for additional forms for one (oneForm); TestCatalogues checks that.
func readLanguages(from fs.FS) (languages, error) {
	all := languages{
		{code: "en", name: "English", texts: make(map[string]string)},
		{code: "zh-CN", name: "中文", texts: make(map[string]string)},
	}
	for _, l := range all {
		folder, _, _ := strings.Cut(l.code, "-")
		files, err := fs.Glob(from, path.Join("texts", folder, "*.json"))
		if err != nil {
			return nil, fmt.Errorf("read the catalogue of %s: %w", l.code, err)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("read the catalogue of %s: no files", l.code)
		}
		for _, name := range files {
			if err := l.read(from, name); err != nil {
				return nil, err
			}
		}
		if l != all[0] {
			l.engine, err = readEngineTexts(from, folder)
			if err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (l *language) read(from fs.FS, name string) error {
	raw, err := fs.ReadFile(from, name)
	if err != nil {
		return fmt.Errorf("read the catalogue %s: %w", name, err)
	}
	var texts map[string]string
	if err := json.Unmarshal(raw, &texts); err != nil {
		return fmt.Errorf("read the catalogue %s: %w", name, err)
	}
	for key, text := range texts {
		if _, duplicate := l.texts[key]; duplicate {
			return fmt.Errorf("read the catalogue %s: another file of the language has the key %q", name, key)
		}
		l.texts[key] = text
	}
	return nil
}

// oneForm is the suffix of the key of a singular form.
const oneForm = ".one"

// text returns the text of a key. params are pairs of a name and a value: {name} in the text becomes the
// value. If n is 1 and the language has a singular form, text returns that form. It returns an unknown key
// itself; the page tests find such keys.
func (l *language) text(key string, params ...any) string {
	text, ok := l.texts[key]
	if len(params) == 0 {
		if !ok {
			return key
		}
		return text
	}
	pairs := make([]string, 0, len(params))
	for i := 0; i+1 < len(params); i += 2 {
		name := fmt.Sprint(params[i])
		value := l.value(params[i+1])
		if name == "n" && value == "1" {
			if one, has := l.texts[key+oneForm]; has {
				text, ok = one, true
			}
		}
		pairs = append(pairs, "{"+name+"}", value)
	}
	if !ok {
		return key
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// has reports whether the language has a text for the key.
func (l *language) has(key string) bool { _, ok := l.texts[key]; return ok }

// value formats a parameter, integers with thousands separators.
func (l *language) value(v any) string {
	switch v := v.(type) {
	case int:
		return grouped(int64(v))
	case int64:
		return grouped(v)
	case string:
		return v
	}
	return fmt.Sprint(v)
}

// grouped formats an integer with thousands separators.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// choose returns the language with the code picked, from the cookie. Without one it returns the best match
// for accept, the Accept-Language header (RFC 9110 §12.5.4), or the default. It ignores what it cannot parse
// and everything after the 20th language of the header.
func (all languages) choose(picked, accept string) *language {
	for _, l := range all {
		if l.code == picked {
			return l
		}
	}
	best, bestQ := all[0], 0.0
	for i, part := range strings.Split(accept, ",") {
		if i == 20 {
			break
		}
		tag, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		q := 1.0
		if text, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
			var err error
			q, err = strconv.ParseFloat(text, 64)
			if err != nil {
				continue
			}
		}
		primary, _, _ := strings.Cut(strings.ToLower(tag), "-")
		for _, l := range all {
			if own, _, _ := strings.Cut(l.code, "-"); own == primary && q > bestQ {
				best, bestQ = l, q
			}
		}
	}
	return best
}
