package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// wrongPages are pages that do one thing wrong each, and the rule that must find it; empty: nothing is wrong.
func wrongPages(t *testing.T) (pages []struct{ rule, html string }) {
	t.Helper()
	text, err := os.ReadFile("testdata/wrong.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rule, html, found := strings.Cut(strings.TrimSpace(line), "\t"); found {
			pages = append(pages, struct{ rule, html string }{strings.Trim(rule, "-"), html})
		}
	}
	return pages
}

// What judges the pages finds what is wrong, and finds nothing where nothing is.
func TestBrowserRulesFindWhatIsWrong(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	pages := wrongPages(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &i); err != nil {
			w.WriteHeader(http.StatusNoContent) // the icon that a browser asks for
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>t</title><main><h1>Page</h1>%s</main>`, pages[i].html)
	}))
	t.Cleanup(server.Close)
	b := newTab(t, server.URL)
	b.forgive("FormLabel", "form field", "FormInput", "FormEmptyIdAndNameAttributes", "Blocked aria-hidden")
	for i, page := range pages {
		b.open(fmt.Sprint("/", i))
		var rules []string
		for _, f := range slices.Concat(b.check(), b.checkNames(), b.checkFocus()) {
			rules = append(rules, f.Rule)
		}
		switch {
		case page.rule == "" && len(rules) > 0:
			t.Errorf("%s: found %s", page.html, strings.Join(rules, ", "))
		case page.rule != "" && !slices.Contains(rules, page.rule):
			t.Errorf("%s: not found to be wrong by %q, only by %q", page.html, page.rule, rules)
		}
	}
}

// A page that breaks what it promised is not passed over in silence.
func TestBrowserComplaintsAreHeard(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'")
		fmt.Fprint(w, map[string]string{
			"/exception": `<script>nothing.at.all()</script>`,
			"/console":   `<script>console.error("so it says")</script>`,
			"/policy":    `<style>p { color: red }</style><p>a`,
			"/dialog":    `<script>alert("a dialog")</script>`,
			"/missing":   `<script src="/nothing.js"></script>`,
		}[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	for path, want := range map[string]string{
		"/exception": "nothing is not defined", "/console": "so it says", "/policy": "Content Security Policy", "/dialog": "a dialog", "/missing": "nothing.js",
	} {
		b := newTab(t, server.URL)
		b.open(path)
		harness.Eventually(t, pageTime, path+" is complained of", func() error {
			b.mu.Lock()
			heard := strings.Join(b.wrong, "\n")
			b.mu.Unlock()
			if !strings.Contains(heard, want) {
				return fmt.Errorf("only: %s", heard)
			}
			return nil
		})
		b.complaints() // which are no failure here
	}
}
