package ui

import (
	"cmp"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// allCases are the cases of every page. Each page's stand in its own test file.
func allCases() []pageCase {
	all := slices.Concat(overviewCases(), callbackCases(), endpointCases(), laneCases(), scheduleCases(), redriveCases(), deadCases(), bookCases(), auditCases(), systemCases())
	for i := range all {
		c := &all[i]
		page, state, _ := strings.Cut(c.name, "/")
		c.path = cmp.Or(c.path, "/ui/"+page)
		if c.status == 0 && strings.HasPrefix(state, "error") {
			c.status = http.StatusInternalServerError
		}
	}
	return all
}

func TestPages(t *testing.T) {
	t.Parallel()
	for _, c := range allCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := parts()
			c.set(&o)
			b := signedIn(t, o)
			for _, code := range []string{"en", "zh-CN"} {
				b.cookies[languageCookie] = code
				res := b.get(c.path)
				want := c.status
				if want == 0 {
					want = http.StatusOK
				}
				if res.status != want {
					t.Fatalf("%s: status %d, want %d\n%s", code, res.status, want, res.text())
				}
				checkPage(t, res)
				if strings.Contains(res.body, "hunter2") {
					t.Error("the page says what only the log may")
				}
				if code == "en" {
					for _, w := range c.want {
						res.has(w[0], w[1])
					}
					for _, selector := range c.unwanted {
						res.lacks(selector)
					}
				}
				if strings.HasPrefix(c.name, "form-") { // it must not be loaded anew while somebody types in it
					res.lacks("body[data-live]")
				}
			}
			checkOwnTexts(t, o, c)
			if c.status == 0 && !strings.Contains(c.name, "hostile") {
				checkOffers(t, o, c)
			}
		})
	}
}

// TestEveryPageHasItsStates: a page without an empty state or an error is found here.
func TestEveryPageHasItsStates(t *testing.T) {
	t.Parallel()
	states := make(map[string][]string)
	var paths []string
	for _, c := range allCases() {
		page, state, _ := strings.Cut(c.name, "/")
		states[page] = append(states[page], state)
		path, _, _ := strings.Cut(c.path, "?")
		paths = append(paths, path)
	}
	for page, have := range states {
		for _, want := range []string{"one", "hostile", "error"} {
			if !slices.ContainsFunc(have, func(s string) bool { return strings.HasPrefix(s, want) }) {
				t.Errorf("page %s has no case %q", page, want)
			}
		}
	}
	u, err := newPages()
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for _, route := range u.Routes() {
		if route.Method != http.MethodGet || route.Scope == "" || strings.HasSuffix(route.Path, "/payload") {
			continue
		}
		pattern := regexp.MustCompile("^" + regexp.MustCompile(`:[a-z_]+`).ReplaceAllString(route.Path, "[^/]+") + "$")
		if !slices.ContainsFunc(paths, pattern.MatchString) {
			t.Errorf("no case shows %s", route.Path)
		}
	}
}

// checkOwnTexts renders the page in a language in which every text of the catalogue stands in brackets: letters outside of them, and
// outside of what is marked as data, are a text that no catalogue has.
func checkOwnTexts(t *testing.T, o fakes, c pageCase) {
	t.Helper()
	b := open(t, o)
	marked := make(languages, len(b.ui.languages))
	for i, l := range b.ui.languages {
		marked[i] = &language{code: l.code, name: l.name, texts: make(map[string]string, len(l.texts))}
		for key, text := range l.texts {
			marked[i].texts[key] = "⟦" + text + "⟧"
		}
	}
	b.ui.languages = marked
	b.signIn(testKey)
	res := b.get(c.path)
	depth := 0
	var stray strings.Builder
	for _, char := range ownText(res.doc) {
		switch {
		case char == '⟦':
			depth++
		case char == '⟧':
			depth--
		case depth == 0 && (unicode.IsLetter(char) || char == '\n'):
			stray.WriteRune(char)
		}
	}
	for _, word := range strings.Fields(stray.String()) {
		if !slices.Contains([]string{"Dispatcher", "ms", "s", "m", "h", "d", "KiB", "MiB"}, word) {
			t.Errorf("%q is in no catalogue, and not marked as data", word)
		}
	}
}

func TestCatalogues(t *testing.T) {
	t.Parallel()
	all, err := readLanguages(textFiles)
	if err != nil {
		t.Fatal(err)
	}
	parameters := regexp.MustCompile(`\{[a-z_]+\}`)
	first := all[0]
	for _, l := range all[1:] {
		for key, text := range first.texts {
			other, ok := l.texts[key]
			if !ok && !strings.HasSuffix(key, oneForm) {
				t.Errorf("%s lacks %q", l.code, key)
				continue
			}
			if !ok {
				continue
			}
			want, got := parameters.FindAllString(text, -1), parameters.FindAllString(other, -1)
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(slices.Compact(want), slices.Compact(got)) {
				t.Errorf("%s: the parameters of %q are %q, in %s %q", l.code, key, got, first.code, want)
			}
		}
		for key := range l.texts {
			if _, ok := first.texts[key]; !ok {
				t.Errorf("%s has %q, which %s lacks", l.code, key, first.code)
			}
		}
	}
	halfWidth := regexp.MustCompile(`\p{Han}[,;:]|\p{Han} ?\(`)
	for key, text := range all[1].texts {
		if halfWidth.MatchString(text) {
			t.Errorf("%q has a half-width sign after a Chinese character: %s", key, text)
		}
	}
	for _, l := range all {
		for _, key := range namedTexts() {
			if !l.has(key) {
				t.Errorf("%s has no %q", l.code, key)
			}
		}
	}
}

// namedTexts are the keys of texts that are put together from the names of states, classes and the like.
func namedTexts() (keys []string) {
	for _, s := range store.States {
		keys = append(keys, "state."+string(s))
	}
	for _, c := range store.Classes {
		keys = append(keys, "class."+string(c))
		if c != store.ClassOK {
			keys = append(keys, "dead.cure."+string(c))
		}
	}
	for _, b := range []schedule.BreakerState{schedule.BreakerClosed, schedule.BreakerOpen, schedule.BreakerProbing} {
		keys = append(keys, "lanes.breaker."+b.String())
	}
	return keys
}

// TestEveryTextIsUsed: a key is used where it stands in the code or in a template, or where one begins with what stands there with a dot at
// its end.
func TestEveryTextIsUsed(t *testing.T) {
	t.Parallel()
	all, err := readLanguages(textFiles)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("templates/*.html")
	if err != nil {
		t.Fatal(err)
	}
	literal := regexp.MustCompile(`"([a-z_]+(?:\.[a-z0-9_]+)*\.?)(?:%s[^"]*)?"`)
	ending := regexp.MustCompile(`"(?:%s)?(\.[a-z]+)"`) // of keys that begin with the name of a page
	used := make(map[string]bool)
	for _, name := range append(files, pages...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllSubmatch(src, -1) {
			used[string(m[1])] = true
		}
		for _, m := range ending.FindAllSubmatch(src, -1) {
			used[string(m[1])] = true
		}
	}
	for key := range all[0].texts {
		found := used[strings.TrimSuffix(key, oneForm)]
		if page, end, ok := strings.Cut(key, "."); ok && (page == "callbacks" || page == "polls") {
			found = found || used["."+end]
		}
		for i := range key {
			found = found || key[i] == '.' && used[key[:i+1]]
		}
		if !found {
			t.Errorf("nothing shows the text %q", key)
		}
	}
}
