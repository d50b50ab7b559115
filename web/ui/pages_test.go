package ui

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"golang.org/x/net/html"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A pageCase is a page in one of its states. Every page has at least empty, one, many, hostile and error.
type pageCase struct {
	// name is PAGE/STATE.
	name, path string
	set        func(o *Options)
	// status is what is answered; zero: 200.
	status int
	// want are selectors with a text that must be in what matches; unwanted, selectors of which nothing may match.
	want     [][2]string
	unwanted []string
}

// threeStates are the cases of a page with one thing, with what an enemy wrote, and with a database that fails.
func threeStates(name, path string, one, evil, broken func(*Options), want ...[2]string) []pageCase {
	return []pageCase{
		{name: name + "/one", path: path, set: one, want: want},
		{name: name + "/hostile", path: path, set: evil},
		{name: name + "/error", path: path, set: broken, status: http.StatusInternalServerError},
	}
}

// errBroken is a database that fails in a way that nobody has foreseen.
var errBroken = errors.New("connect to postgres://bob:hunter2@db: it is on fire")

// allCases are the cases of every page. Each page's stand in its own test file.
func allCases() []pageCase {
	return slices.Concat(overviewCases(), callbackCases(), endpointCases(), laneCases(), scheduleCases(), redriveCases(), deadCases(), bookCases(), auditCases(), systemCases())
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
	u, err := New(parts())
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

// staticBytes is how much a page takes beside itself: its style, script and icon, unpacked.
var staticBytes = sync.OnceValues(func() (n int, err error) {
	all, err := readAssets()
	for _, a := range all.files {
		n += len(a.plain)
	}
	return n, err
})

// checkPage is what must hold for every page, whatever it shows.
func checkPage(t *testing.T, res result) {
	t.Helper()
	static, err := staticBytes()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(res.body) + static; n > 100<<10 {
		t.Errorf("the page has %d bytes with its style, script and icon, more than the 100 KiB that it may", n)
	}
	if policy := res.header.Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("the content policy is %q", policy)
	}
	ids := make(map[string]bool)
	level := 0
	for n := range res.doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "script":
			if attr(n, "src") == "" || n.FirstChild != nil {
				t.Errorf("a script stands in the page: %q", textOf(n))
			}
		case "style", "iframe", "object", "embed", "base":
			t.Errorf("the page has a %s", n.Data)
		case "img":
			t.Errorf("the page has an image from %q", attr(n, "src"))
		case "a", "form", "button":
			for _, name := range []string{"href", "action", "formaction"} {
				if value := attr(n, name); value != "" && !strings.HasPrefix(value, "/ui/") && !strings.HasPrefix(value, "#") {
					t.Errorf("a %s leads to %q", n.Data, value)
				}
			}
			if n.Data != "form" && strings.TrimSpace(textOf(n)) == "" && attr(n, "aria-label") == "" {
				t.Errorf("a %s has no name: %v", n.Data, n.Attr)
			}
		case "input", "select", "textarea":
			checkLabel(t, res, n)
		case "h1", "h2", "h3", "h4":
			next := int(n.Data[1] - '0')
			if next > level+1 {
				t.Errorf("heading %q of level %d after one of level %d", textOf(n), next, level)
			}
			level = next
		case "table":
			if len(find(n, "caption")) == 0 {
				t.Errorf("a table has no caption: %.60q", textOf(n))
			}
		}
		for _, a := range n.Attr {
			switch {
			case strings.HasPrefix(a.Key, "on"):
				t.Errorf("a %s has a handler %s", n.Data, a.Key)
			case a.Key == "style":
				t.Errorf("a %s has a style of its own, which the policy forbids: %q", n.Data, a.Val)
			case a.Key == "id":
				if ids[a.Val] {
					t.Errorf("the id %q is there twice", a.Val)
				}
				ids[a.Val] = true
			}
		}
	}
	for n := range res.doc.Descendants() {
		for _, a := range n.Attr {
			if a.Key == "for" || a.Key == "aria-labelledby" || a.Key == "aria-describedby" {
				for _, id := range strings.Fields(a.Val) {
					if !ids[id] {
						t.Errorf("%s of a %s names %q, which is not there", a.Key, n.Data, id)
					}
				}
			}
		}
	}
	if n := res.count("h1"); n != 1 {
		t.Errorf("the page has %d headings of the first level", n)
	}
	if missing := regexp.MustCompile(`\b[a-z_]+(\.[a-z_]+)+\b`).FindAllString(ownText(res.doc), -1); len(missing) > 0 {
		t.Errorf("keys of the catalogue are shown: %q", missing)
	}
}

func checkLabel(t *testing.T, res result, n *html.Node) {
	t.Helper()
	if attr(n, "type") == "hidden" || attr(n, "aria-label") != "" {
		return
	}
	for p := n.Parent; p != nil; p = p.Parent {
		if p.Data == "label" {
			return
		}
	}
	for _, label := range find(res.doc, "label") {
		if attr(label, "for") == attr(n, "id") && strings.TrimSpace(textOf(label)) != "" {
			return
		}
	}
	t.Errorf("a field has no label: %v", n.Attr)
}

// ownText is the text of a page that is ours: what is marked as data is left out.
func ownText(n *html.Node) string {
	var out strings.Builder
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.ElementNode && (attr(n, "translate") == "no" || n.Data == "script") {
			return
		}
		if n.Type == html.TextNode {
			out.WriteString(n.Data + "\n")
		}
		for _, name := range []string{"title", "aria-label", "placeholder", "data-name"} {
			if hasAttr(n, name) && n.Data != "input" && n.Data != "textarea" {
				out.WriteString(attr(n, name) + "\n")
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(n)
	return out.String()
}

// checkOwnTexts renders the page in a language in which every text of the catalogue stands in brackets: letters outside of them, and
// outside of what is marked as data, are a text that no catalogue has.
func checkOwnTexts(t *testing.T, o Options, c pageCase) {
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
