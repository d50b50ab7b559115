package browser

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// A crawl visits every page of a scene and checks it.
type crawl struct {
	*tab
	name, language string
	report         report
	asked          []string // dialogs that were opened
	heaviest       int      // bytes of the largest page
	largest        string   // its address
}

// A check judges the open page, whose address has that shape.
type check func(c *crawl, address, shape string)

// Every page keeps all rules with no data, with one object and with many of each kind, in every view and
// language. The test also takes the pictures.
func TestBrowserEveryPageIsWellMade(t *testing.T) {
	type world struct {
		name, language string
		files          []string
		checks         []check
	}
	worlds := []world{
		{"empty", "en", nil, []check{(*crawl).checkLayout}},
		{"one", "en", []string{"one.txt", "alerts.txt", "relay.txt"},
			[]check{(*crawl).checkLayout, (*crawl).checkLanguage, (*crawl).checkDialogs,
				(*crawl).checkKeys}},
		{"one in Chinese", "zh-CN", []string{"one.txt", "alerts.txt", "relay.txt"},
			[]check{(*crawl).checkLayout, (*crawl).checkLanguage}},
		{"many", "en", []string{"one.txt", "alerts.txt", "relay.txt", "many.txt"},
			[]check{(*crawl).checkWeight, (*crawl).checkLayout}},
	}
	if *screens != "" { // only for their pictures
		worlds = append(worlds,
			world{"empty in Chinese", "zh-CN", nil, []check{(*crawl).checkLayout}},
			world{"many in Chinese", "zh-CN", []string{"one.txt", "alerts.txt", "relay.txt", "many.txt"},
				[]check{(*crawl).checkLayout}})
	}
	for _, c := range worlds {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, b := filledScene(t, c.files...)
			var first []string // the richest callback and order
			if len(c.files) > 0 {
				first = []string{"/ui/orders?ref=order-20261121-0001", "/ui/callbacks/" + s.names["dead"]}
			}
			b.prefer("zone", "Asia%2FShanghai")
			b.prefer("language", c.language)
			l := crawl{tab: b, name: c.name, language: c.language}
			shapes := b.crawl(1, first, func(address, shape string) {
				for _, judged := range c.checks {
					judged(&l, address, shape)
				}
			})
			l.report.fail(t)
			t.Logf("%d pages of at most %d bytes, %s: %s; %d dialogs: %v", len(shapes), l.heaviest, l.largest,
				strings.Join(shapes, " "), len(l.asked), l.asked)
			reached := linesOf(t, "menu.txt")
			if len(c.files) > 0 {
				reached = append(reached, linesOf(t, "forms.txt")...)
			}
			for _, path := range reached {
				if !slices.Contains(shapes, path) {
					t.Errorf("%s was not reached", path)
				}
			}
			if c.name == "one" && len(l.asked) < 10 {
				t.Errorf("only %d dialogs were found", len(l.asked))
			}
		})
	}
}

var noName = regexp.MustCompile(`[^a-z0-9]+`)

// checkLayout checks the page by the rules in every view.
func (c *crawl) checkLayout(_, shape string) {
	// A form does not change with more data.
	if strings.HasPrefix(c.name, "many") && ask[bool](c.tab, `!!document.querySelector("[data-act]")`) {
		return
	}
	for _, l := range views {
		if l.dark && c.language != "en" {
			continue // colours do not depend on the language
		}
		c.setView(l)
		c.report.add(shape+" "+l.name, c.check())
		if !l.dark { // a screen reader does not see colours
			c.report.add(shape+" "+l.name, c.checkNames())
		}
		if l.name != "narrow-dark" {
			name := strings.ToLower(c.name + strings.ReplaceAll(shape, "?", "-filtered"))
			c.picture(strings.Trim(noName.ReplaceAllString(name, "-"), "-") + "-" + l.name)
		}
	}
	c.setView(views[0])
}

// checkKeys goes through the page with Tab. It reloads the page first, because Tab goes on from the link
// of the last dialog.
func (c *crawl) checkKeys(address, shape string) {
	c.open(address)
	c.report.add(shape+" by keys", c.checkFocus())
}

// checkLanguage checks that the page has the chosen language, except for data.
func (c *crawl) checkLanguage(address, shape string) {
	if is := ask[string](c.tab, `document.documentElement.lang`); is != c.language {
		c.Errorf("%s is in %s", address, is)
	}
	alike := strings.Fields(strings.Join(linesOf(c, "alike.txt"), " "))
	for _, stranger := range ask[[]string](c.tab, inPage("strangers("+quoted(alike)+")")) {
		c.report.add(shape, []finding{{"language", c.language, stranger}})
	}
}

// checkDialogs opens each dialog of the page that was not opened before. The dialog must have a heading, take
// the focus and keep it, and close on Escape. Then the focus must be back on its link.
func (c *crawl) checkDialogs(address, _ string) {
	ask[bool](c.tab, `document.querySelectorAll("main .head .drop").forEach((d) => d.open = true) || true`)
	for _, href := range ask[[]string](c.tab, `[...document.querySelectorAll("main a[data-ask]")]
		.filter((a) => a.checkVisibility()).map((a) => a.getAttribute("href"))`) {
		shape := shapeOf(href)
		if slices.Contains(c.asked, shape) {
			continue
		}
		c.asked = append(c.asked, shape)
		link := fmt.Sprintf(`a[data-ask][href=%q]`, href)
		c.mark()
		c.click(link, "")
		c.see("dialog h1", "")
		if in := ask[bool](c.tab, `!!document.activeElement.closest("dialog")`); !in {
			c.Errorf("%s on %s: the dialog is open, and the focus is at %q", shape, address, c.focused())
		}
		for _, l := range []view{views[0], views[3]} {
			c.setView(l)
			c.report.add(shape+" "+l.name, c.check())
		}
		c.report.add(shape, c.checkNames())
		c.report.add(shape, c.checkTrap())
		c.setView(views[0])
		c.press("Escape")
		c.seeNot("dialog", "")
		if back := ask[bool](c.tab, js(`return document.activeElement === document.querySelector(args[0])`,
			link)); !back {
			c.Errorf("%s on %s: the dialog was closed, and the focus is at %q", shape, address, c.focused())
		}
		c.marked(shape)
	}
}

const (
	// pageBytes and pageRequests limit a page at its first visit: the decoded bytes of document, style,
	// script and icon, and the requests including the stream.
	pageBytes    = 100 << 10
	pageRequests = 6
)

// checkWeight checks that the page is small and needs few requests, however much data there is.
func (c *crawl) checkWeight(address, _ string) {
	call(c.tab, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
	c.forget()
	c.open(address)
	if ask[bool](c.tab, `"live" in document.body.dataset`) {
		c.streams()
	}
	// The browser loads the icon once, at any time, so the check adds it to each page.
	n, bytes := 1, ask[int](c.tab, `fetch(document.querySelector("link[rel=icon]").href)
		.then((r) => r.text()).then((t) => t.length)`)
	ours := func() []fetched {
		return slices.DeleteFunc(c.loaded(), func(l fetched) bool { return strings.HasSuffix(l.url, ".svg") })
	}
	c.eventually("the page is loaded", func() error {
		for _, l := range ours() {
			if l.kind != "EventSource" && !l.over {
				return errors.New(l.url)
			}
		}
		return nil
	})
	for _, l := range ours() {
		n++
		if l.kind != "EventSource" {
			bytes += int(l.bytes)
		}
	}
	if bytes > c.heaviest {
		c.heaviest, c.largest = bytes, address
	}
	if bytes > pageBytes || n > pageRequests {
		c.Errorf("%s takes %d bytes, at most %d, and %d requests, at most %d: %+v", address, bytes,
			pageBytes, n, pageRequests, c.loaded())
	}
}

// A hostile text may come from a sender, a receiver or an operator. Pages must treat it as text only.
type hostile struct{ name, text string }

// answerWith responds with a text in every part of a response that can have it, including the reason phrase.
func answerWith(text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return // the dispatcher has closed the connection
		}
		defer conn.Close()
		line := strings.Map(func(r rune) rune {
			if r < ' ' {
				return ' '
			}
			return r
		}, text)
		fmt.Fprintf(buffer, "HTTP/1.1 500 %s\r\nX-Said: %s\r\nServer: %s\r\nContent-Type: text/html; "+
			"x=%s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", line, line, line, line, len(text),
			text)
		buffer.Flush()
	}
}

// plantAll puts one text into every field that users may set.
func (s *scene) plantAll(text string, n int) {
	escaped := func(text string) string { return quoted(text)[1 : len(quoted(text))-1] }
	plain := fmt.Sprintf("%s/say/%d/", s.r.URL, n)
	maps.Copy(s.names, map[string]string{
		"n": fmt.Sprint(n), "plain": plain,
		"address": plain + url.PathEscape(text) + "?token=" + url.QueryEscape(text),
		"TEXT":    escaped(text), "START": escaped(strings.ToValidUTF8(text[:min(len(text), 60)], "")),
	})
	s.refused = nil
	s.play("hostile.txt")
	slices.Sort(s.refused)
	s.refused = slices.Compact(s.refused)
}

// Data from users is only text: no page treats it as markup, as an address or as a part of its stream, and it
// breaks no layout.
func TestBrowserHostileTextsAreText(t *testing.T) {
	t.Parallel()
	var hostiles []hostile
	for _, line := range linesOf(t, "texts.txt") {
		name, text, _ := strings.Cut(line, ": ")
		hostiles = append(hostiles, hostile{name, transcript.Expand(t, text)})
	}
	s := newScene(t, harness.SQLiteEmbedded, func(a *harness.Arrival) harness.Reply {
		var n int
		if _, err := fmt.Sscanf(a.Path, "/say/%d", &n); err != nil {
			return harness.Reply{Body: "success"}
		}
		return harness.Reply{Stream: answerWith(hostiles[n].text)}
	})
	b := s.window("", s.Base)
	var v report
	harmless := func(where string) {
		t.Helper()
		for _, wrong := range ask[[]string](b, inPage("harmful()")) {
			t.Errorf("%s: %s", where, wrong)
		}
	}
	for n, h := range hostiles {
		s.plantAll(h.text, n)
		t.Logf("%s: refused by %s", h.name, strings.Join(s.refused, ", "))
		b.forget()
		b.open("/ui/callbacks/" + s.names["callback"])
		b.streams()
		harmless(h.name + ": a callback")
		for _, place := range []string{"h1", ".timeline pre", "[data-region=banner]", ".facts"} {
			if ask[string](b, `[...document.querySelectorAll(`+"`"+place+"`"+
				`)].map((e) => e.textContent).join(" ")`) == "" {
				t.Errorf("%s: there is no %s", h.name, place)
			}
		}
		if is := ask[string](b, `document.querySelector("h1").textContent`); !strings.Contains(is, h.text) &&
			!slices.Contains(s.refused, "callback.ref") {
			t.Errorf("%s: the reference appears as %q", h.name, is)
		}
	}
	pages, narrow := 0, map[string]bool{}
	// Two pages of each shape, because there are several texts.
	shapes := b.crawl(2, nil, func(address, shape string) {
		pages++
		harmless(address)
		if !narrow[shape] {
			narrow[shape] = true
			b.setView(views[2])
			v.add(shape+" narrow", slices.DeleteFunc(b.check(), func(f finding) bool {
				return !slices.Contains([]string{"wide", "cut", "spill", "overlap", "scheme", "inline"},
					f.Rule)
			}))
		}
	})
	v.fail(t)
	t.Logf("%d pages of %d shapes with %d hostile texts", pages, len(shapes), len(hostiles))

	// Parameters in an address are text, too.
	b.setView(views[0])
	// A time field reports a warning for a value that is no time.
	b.allow(`status of 4\d\d`, `does not conform to the required format`)
	for _, h := range hostiles {
		asked := map[string]string{"q": url.QueryEscape(h.text), "path": url.PathEscape(h.text)}
		for _, line := range linesOf(t, "asked.txt") {
			address := os.Expand(line, func(name string) string { return asked[name] })
			b.open(address)
			harmless(address)
		}
	}
}

// The rules find each error, and find nothing on a correct page. A line of testdata/wrong.txt has the rule
// that must find the error, or "-" for a correct page, then a tab and the page.
func TestBrowserRulesFindWhatIsWrong(t *testing.T) {
	t.Parallel()
	pages := linesOf(t, "wrong.txt")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &i); err != nil {
			w.WriteHeader(http.StatusNoContent) // the browser requests an icon
			return
		}
		_, html, _ := strings.Cut(pages[i], "\t")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>t</title><main><h1>Page</h1>%s</main>`, html)
	}))
	t.Cleanup(server.Close)
	b := newTab(t, server.URL)
	b.allow("FormLabel", "form field", "FormInput", "FormEmptyIdAndNameAttributes", "Blocked aria-hidden")
	for i, page := range pages {
		b.open(fmt.Sprint("/", i))
		var rules []string
		for _, f := range slices.Concat(b.check(), b.checkNames(), b.checkFocus()) {
			rules = append(rules, f.Rule)
		}
		switch rule, html, _ := strings.Cut(page, "\t"); {
		case strings.Trim(rule, "-") == "" && len(rules) > 0:
			t.Errorf("%s: found %s", html, strings.Join(rules, ", "))
		case strings.Trim(rule, "-") != "" && !slices.Contains(rules, rule):
			t.Errorf("%s: rule %q did not find it, only %q", html, rule, rules)
		}
	}
}

// The test fails for problems that the browser reports.
func TestBrowserProblemsFailTheTest(t *testing.T) {
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
		"/exception": "nothing is not defined", "/console": "so it says",
		"/policy": "Content Security Policy", "/dialog": "a dialog", "/missing": "nothing.js",
	} {
		b := newTab(t, server.URL)
		b.open(path)
		b.eventually(path+" is reported", func() error {
			b.mu.Lock()
			reported := strings.Join(b.wrong, "\n")
			b.mu.Unlock()
			if !strings.Contains(reported, want) {
				return fmt.Errorf("only: %s", reported)
			}
			return nil
		})
		b.problems() // expected in this test
	}
}
