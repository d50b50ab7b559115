package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// wrongPages are pages that do one thing wrong each, and the rule that must find it.
var wrongPages = []struct{ rule, html string }{
	{"contrast", `<p style="color: #999">pale</p>`},
	{"contrast", `<div style="background: #000"><p style="color: #666">dark on dark</p></div>`},
	{"contrast", `<div style="background: rgb(0 0 0 / 60%)"><p>black on what is nearly black</p></div>`},
	{"contrast", `<p style="opacity: .4">half there</p>`},
	{"contrast", `<input aria-label="a" placeholder="what to type"><style>::placeholder { color: #bbb; opacity: 1 }</style>`},
	{"contrast", `<svg role="img" aria-label="a" width="100" height="40"><rect width="100" height="40" fill="#222"/><text x="4" y="20" fill="#000">in a bar</text></svg>`},
	{"contrast", `<p class="b">b</p><style>.b::before { content: "before: "; color: #ccc }</style>`},
	{"edge", `<label>a <input style="border: 1px solid #eee; background: #fff"></label>`},
	{"small", `<p style="font-size: 8px">small</p>`},
	{"cut", `<p style="width: 40px; overflow: hidden; white-space: nowrap">more than there is room for</p>`},
	{"spill", `<div style="width: 60px; border: 1px solid #000">incomprehensibilities</div>`},
	{"variable", `<p class="v">a</p><style>.v { border: 1px solid var(--nothing) }</style>`},
	{"overlap", `<p style="margin-bottom: -2.2em">one line of text</p><p>another line of text</p>`},
	{"wide", `<p style="width: 1600px">wide</p>`},
	{"id", `<p id="x">a</p><p id="x">b</p>`},
	{"reference", `<input aria-label="a" aria-describedby="nothing">`},
	{"label", `<label>of nothing</label>`},
	{"main", `<main><p>another</p></main>`},
	{"landmark", `<nav><a href="/">a link</a></nav>`},
	{"heading", `<h3>too deep</h3>`},
	{"heading", `<h1>another</h1>`},
	{"role", `<p role="knob">a</p>`},
	{"role", `<div role="list"><p>a</p></div>`},
	{"aria", `<p aria-labeled="x">a</p>`},
	{"inline", `<p onclick="x()">a</p>`},
	{"tabindex", `<button tabindex="3">a button</button>`},
	{"scheme", `<a href="javascript:x()">a link</a>`},
	{"hidden", `<div aria-hidden="true"><button>a button</button></div>`},
	{"nested", `<button>a <a href="/">link</a></button>`},
	{"list", `<ul><p>a</p></ul>`},
	{"list", `<dl><p>a</p></dl>`},
	{"table", `<table><tr><th scope="col">a</th></tr></table>`},
	{"table", `<table><caption>c</caption><tr><td>a</td></tr></table>`},
	{"table", `<table><caption>c</caption><tr><th>a</th></tr></table>`},
	{"image", `<svg width="9" height="9"><path d="M0 0h9v9z"/></svg>`},
	{"image", `<img src="data:,">`},
	{"time", `<time datetime="soon">soon</time>`},
	{"target", `<p><button style="all: unset; width: 10px; height: 10px">a</button><button style="all: unset; width: 10px; height: 10px">b</button></p>`},
	{"name", `<button></button>`},
	{"name", `<input>`},
	{"name", `<a href="/"><svg aria-hidden="true" width="40" height="40"></svg></a>`},
	{"focus", `<button style="outline: none">a button</button>`},
	{"focus", `<button style="outline: 2px solid #eee">a button</button>`},
	{"order", `<button tabindex="2">b</button><button tabindex="1">a</button>`},
	{"order", `<button>a</button><input aria-label="a" onkeydown="event.preventDefault()"><button>b</button>`},
	{"obscured", `<div style="position: fixed; top: 0; left: 0; width: 100%; height: 300px; background: #fff"></div><button>below it</button>`},
	{"", `<h2>All is well</h2><p>with <a href="/">a link</a>, <label>a <input></label> and <button>a button</button></p>`},
}

// What judges the pages finds what is wrong, and finds nothing where nothing is.
func TestBrowserRulesFindWhatIsWrong(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &i); err != nil {
			w.WriteHeader(http.StatusNoContent) // the icon that a browser asks for
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>t</title><main><h1>Page</h1>%s</main>`, wrongPages[i].html)
	}))
	t.Cleanup(server.Close)
	b := newTab(t, server.URL)
	b.forgive("FormLabel", "form field", "FormInput", "FormEmptyIdAndNameAttributes", "Blocked aria-hidden")
	for i, page := range wrongPages {
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
