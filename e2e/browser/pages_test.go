package browser

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A crawl goes through every page of a scene and has each checked.
type crawl struct {
	*tab
	name, language string
	verdict        verdict
	asked          []string // dialogs that were opened
	heaviest       int      // bytes of a page
}

// A check judges the page that is open, whose address has that shape.
type check func(c *crawl, address, shape string)

// Every page, with nothing, with one and with many of each to show, is well made in every view and in each language;
// pictures of all are taken by the way.
func TestBrowserEveryPageIsWellMade(t *testing.T) {
	harness.BlackBox(t)
	for _, c := range []struct {
		name, language string
		fill           func(*scene)
		checks         []check
	}{
		{"empty", "en", func(*scene) {}, []check{(*crawl).looksWell}},
		{"one", "en", (*scene).one,
			[]check{(*crawl).looksWell, (*crawl).speaks, (*crawl).asksWell, (*crawl).isUsedByKeys}},
		{"one in Chinese", "zh-CN", (*scene).one, []check{(*crawl).looksWell, (*crawl).speaks}},
		{"many", "en", (*scene).many, []check{(*crawl).isLight, (*crawl).looksWell}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, b := lit(t, c.fill)
			b.prefer("zone", "Asia%2FShanghai")
			b.prefer("language", c.language)
			l := crawl{tab: b, name: c.name, language: c.language}
			shapes := b.crawl(1, func(address, shape string) {
				for _, judged := range c.checks {
					judged(&l, address, shape)
				}
			})
			l.verdict.complain(t)
			t.Logf("%d pages of at most %d bytes: %s; %d dialogs: %v", len(shapes), l.heaviest, strings.Join(shapes, " "),
				len(l.asked), l.asked)
			for _, path := range linesOf(t, "menu.txt") {
				if !slices.Contains(shapes, path) {
					t.Errorf("%s was not reached", path)
				}
			}
			if c.name == "one" && len(l.asked) < 10 {
				t.Errorf("only %d acts were found", len(l.asked))
			}
		})
	}
}

var noName = regexp.MustCompile(`[^a-z0-9]+`)

// looksWell has the page keep the rules in every view.
func (c *crawl) looksWell(_, shape string) {
	// Forms have no more to show where there is more of everything.
	if c.name == "many" && ask[bool](c.tab, `!!document.querySelector("[data-act]")`) {
		return
	}
	for _, l := range views {
		if l.dark && c.language != "en" {
			continue // colours have no language
		}
		c.put(l)
		c.verdict.add(shape+" "+l.name, c.check())
		if !l.dark { // what a screen reader is told has no colours
			c.verdict.add(shape+" "+l.name, c.checkNames())
		}
		if l.name != "narrow-dark" && c.language == "en" {
			name := c.name + "-" + strings.Trim(noName.ReplaceAllString(strings.ToLower(shape), "-"), "-")
			c.picture(name + "-" + l.name)
		}
	}
	c.put(views[0])
}

// isUsedByKeys goes through the page with Tab, from a page that was not used yet: Tab goes on where the last dialog was
// asked for.
func (c *crawl) isUsedByKeys(address, shape string) {
	c.open(address)
	c.verdict.add(shape+" by keys", c.checkFocus())
}

// speaks has the page be in the language that was asked for, all of it but data.
func (c *crawl) speaks(address, shape string) {
	if is := ask[string](c.tab, `document.documentElement.lang`); is != c.language {
		c.Errorf("%s is in %s", address, is)
	}
	alike := strings.Fields(strings.Join(linesOf(c, "alike.txt"), " "))
	for _, stranger := range ask[[]string](c.tab, inPage("strangers("+quoted(alike)+")")) {
		c.verdict.add(shape, []finding{{"language", c.language, stranger}})
	}
}

// asksWell opens each dialog of the page that was not opened before: it says what it is of, the focus goes into it and stays there, it can be left
// with Escape, and then the focus is where it came from.
func (c *crawl) asksWell(address, _ string) {
	for _, href := range ask[[]string](c.tab, `[...document.querySelectorAll("main a[data-ask]")].filter((a) => a.checkVisibility()).map((a) => a.getAttribute("href"))`) {
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
			c.put(l)
			c.verdict.add(shape+" "+l.name, c.check())
		}
		c.verdict.add(shape, c.checkNames())
		c.verdict.add(shape, c.checkTrap())
		c.put(views[0])
		c.press("Escape")
		c.seeNot("dialog", "")
		if back := ask[bool](c.tab, js(`return document.activeElement === document.querySelector(args[0])`, link)); !back {
			c.Errorf("%s on %s: the dialog was left, and the focus is at %q", shape, address, c.focused())
		}
		c.marked(shape)
	}
}

const (
	// pageBytes and pageRequests are what a page may take at its first visit: what is unpacked of document, style, script and icon; and with
	// them the stream.
	pageBytes    = 100 << 10
	pageRequests = 6
)

// isLight has the page take little and ask for little, however much there is to show.
func (c *crawl) isLight(address, _ string) {
	call(c.tab, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
	c.forget()
	c.open(address)
	if ask[bool](c.tab, `"live" in document.body.dataset`) {
		c.streams()
	}
	// The icon is asked for once, when a browser likes to.
	n, bytes := 1, ask[int](c.tab, `fetch(document.querySelector("link[rel=icon]").href).then((r) => r.text()).then((t) => t.length)`)
	harness.Eventually(c, pageTime, "the page is loaded", func() error {
		for _, l := range c.loaded() {
			if l.kind != "EventSource" && !l.over {
				return errors.New(l.url)
			}
		}
		return nil
	})
	for _, l := range c.loaded() {
		if strings.HasSuffix(l.url, ".svg") {
			continue
		}
		n++
		if l.kind != "EventSource" {
			bytes += int(l.bytes)
		}
	}
	c.heaviest = max(c.heaviest, bytes)
	if bytes > pageBytes || n > pageRequests {
		c.Errorf("%s takes %d bytes, at most %d, and asks %d times, at most %d: %+v", address, bytes, pageBytes, n,
			pageRequests, c.loaded())
	}
}
