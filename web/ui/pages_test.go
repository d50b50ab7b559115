package ui

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestPages runs the scripts of testdata/pages. It renders each page in every language and for every key,
// with hostile rows and URLs, and with an error of each call that the page makes.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, s := range scripts(t, "pages/*.txt") {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t)
			w := s.world(t)
			b := signedIn(t, w)
			w.lastCall = make(map[string]string)
			want := b.get(s.path())
			for _, code := range []string{"en", "zh-CN"} {
				b.cookies[languageCookie] = code
				res := b.get(s.path())
				if res.status != want.status {
					t.Fatalf("%s: status %d, want %d\n%s", code, res.status, want.status, res.text())
				}
				if res.status != http.StatusSeeOther {
					checkPage(t, res)
					checkSize(t, res)
					if code == "zh-CN" {
						checkChinese(t, res)
					}
				}
				// A reload would lose the typed values.
				if strings.HasPrefix(s.name, "form-") {
					res.hasNot("body[data-live]")
				}
			}
			calls := slices.Collect(maps.Keys(w.lastCall))
			checkOwnTexts(t, w, s.path())
			checkHostile(t, s)
			if !s.refused() {
				checkOffers(t, w, s.path())
				checkFaults(t, s, calls)
			}
		})
	}
}

// TestEveryPageHasACase finds pages without a script.
func TestEveryPageHasACase(t *testing.T) {
	t.Parallel()
	var paths []string
	for _, s := range scripts(t, "pages/*.txt") {
		path, _, _ := strings.Cut(s.path(), "?")
		paths = append(paths, path)
	}
	for _, route := range allRoutes() {
		if route.Method != http.MethodGet || route.Scope == "" || strings.HasSuffix(route.Path, "/payload") {
			continue
		}
		shows := func(path string) bool {
			_, fits := route.params(path)
			return fits
		}
		if !slices.ContainsFunc(paths, shows) {
			t.Errorf("no script gets %s", route.Path)
		}
	}
}

// checkHostile renders the page with hostile texts in all rows, then also in each parameter of its URL.
func checkHostile(t *testing.T, s script) {
	t.Helper()
	w := s.world(t)
	makeHostile(reflect.ValueOf(&w.has).Elem())
	b := signedIn(t, w)
	address, err := url.Parse(s.path())
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{s.path()}
	for name := range address.Query() {
		q := address.Query()
		q.Set(name, hostile)
		paths = append(paths, address.Path+"?"+q.Encode())
	}
	for _, path := range paths {
		res := b.get(path)
		if res.status >= http.StatusInternalServerError {
			t.Errorf("%s with hostile texts: status %d\n%s", path, res.status, res.text())
		}
		if res.status != http.StatusSeeOther {
			checkPage(t, res)
		}
	}
}

// checkFaults renders the page with an error of each call that the page makes. Only Stats may fail without an
// error page.
func checkFaults(t *testing.T, s script, calls []string) {
	t.Helper()
	for _, method := range calls {
		w := s.world(t)
		b := signedIn(t, w)
		w.fails[method] = errBroken
		res := b.get(s.path())
		want := http.StatusInternalServerError
		if method == "Stats" {
			want = http.StatusOK
		}
		if res.status != want {
			t.Errorf("%s fails: status %d, want %d", method, res.status, want)
		}
		checkPage(t, res)
	}
}

// checkOwnTexts renders the page with a catalogue that has brackets around each text. Letters outside of
// brackets are a text that no catalogue has, unless they are marked as data.
func checkOwnTexts(t *testing.T, w *world, path string) {
	t.Helper()
	b := newBrowser(t, w)
	marked := make(languages, len(b.ui.languages))
	for i, l := range b.ui.languages {
		marked[i] = &language{code: l.code, name: l.name, texts: make(map[string]string, len(l.texts))}
		for key, text := range l.texts {
			marked[i].texts[key] = "⟦" + text + "⟧"
		}
	}
	b.ui.languages = marked
	b.signIn(testKey)
	depth := 0
	var stray strings.Builder
	for _, char := range ownText(b.get(path).doc) {
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
			t.Errorf("%q is in no catalogue and not marked as data", word)
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

// namedTexts returns the keys that are built from the names of states and classes.
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
	for _, b := range []schedule.BreakerState{schedule.BreakerClosed, schedule.BreakerOpen,
		schedule.BreakerProbing} {
		keys = append(keys, "lanes.breaker."+b.String())
	}
	return keys
}

// TestEveryTextIsUsed finds texts that no page uses. A key is used if the code or a template contains it, or
// contains a prefix of it that ends with a dot.
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
	ending := regexp.MustCompile(`"(?:%s)?(\.[a-z]+)"`) // the end of a key that begins with a page's name
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
			t.Errorf("no page uses the text %q", key)
		}
	}
}
