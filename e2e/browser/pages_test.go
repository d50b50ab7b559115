package browser

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

var screens = flag.String("screens", "", "where pictures of every page are put; empty: with the artifacts of the test, where -artifacts keeps them, or nowhere")

// A view is in which form a page is looked at.
type view struct {
	name  string
	width int64
	dark  bool
}

// views are those of every page.
var views = []view{{"light", 1280, false}, {"dark", 1280, true}, {"narrow", 400, false}, {"narrow-dark", 400, true}}

// put makes the tab look so.
func (t *tab) put(l view) {
	t.Helper()
	t.size(l.width, 900)
	t.dark(l.dark)
	// What depends on the size of its container is drawn anew with the next frame.
	ask[bool](t, `new Promise((done) => requestAnimationFrame(() => done(true)))`)
}

// picture takes a picture of the whole page, if anybody wants to see it.
func (t *tab) picture(name string) {
	t.Helper()
	dir := *screens
	if dir == "" {
		if kept := flag.Lookup("test.artifacts"); kept == nil || kept.Value.String() != "true" {
			return
		}
		dir = t.ArtifactDir()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	fast, beyond := true, true
	shot := call(t, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond, OptimizeForSpeed: &fast})
	if err := os.WriteFile(filepath.Join(dir, name+".png"), shot.Data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// links are the addresses of ours that a page leads to, without those that are no pages.
func (t *tab) links() []string {
	t.Helper()
	return ask[[]string](t, `[...new Set([...document.querySelectorAll("a[href]")].filter((a) => a.origin === location.origin && a.pathname.startsWith("/ui/") &&
		!a.pathname.endsWith("/payload") && a.search !== "?as=text").map((a) => a.pathname + a.search))]`)
}

// crawl goes wherever pages lead, and visits one page of each shape, so that none is forgotten. It starts with what
// the menu leads to.
func (t *tab) crawl(visit func(address, shape string)) []string {
	t.Helper()
	var shapes []string
	if status := t.open("/ui/"); status != 200 {
		t.Fatalf("/ui/ is answered with %d", status)
	}
	waiting := ask[[]string](t, `[...document.querySelectorAll("nav.menu a")].map((a) => a.getAttribute("href"))`)
	for len(waiting) > 0 {
		address := waiting[0]
		waiting = waiting[1:]
		shape := shapeOf(address)
		if slices.Contains(shapes, shape) {
			continue
		}
		shapes = append(shapes, shape)
		if status := t.open(address); status != 200 {
			t.Errorf("%s is answered with %d", address, status)
			continue
		}
		waiting = append(waiting, t.links()...)
		visit(address, shape)
	}
	return shapes
}

var noName = regexp.MustCompile(`[^a-z0-9]+`)

// Every page, with nothing, with one and with many of each to show, is well made in every view; pictures of all are taken by the way.
func TestBrowserEveryPageIsWellMade(t *testing.T) {
	harness.BlackBox(t)
	for _, c := range []struct {
		name string
		fill func(*scene) *scene
	}{{"empty", func(s *scene) *scene { return s }}, {"one", (*scene).one}, {"many", (*scene).many}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := c.fill(newScene(t, harness.SQLiteEmbedded))
			b := newTab(t, s.Base)
			b.prefer("zone", "Asia%2FShanghai")
			b.signIn(harness.AdminKey)
			var v verdict
			shapes := b.crawl(func(address, shape string) {
				name := c.name + "-" + strings.Trim(noName.ReplaceAllString(strings.ToLower(shape), "-"), "-")
				// Forms have no more to show where there is more of everything.
				if c.name == "many" && ask[bool](b, `!!document.querySelector("[data-act]")`) {
					return
				}
				for _, l := range views {
					b.put(l)
					v.add(shape+" "+l.name, b.check())
					if !l.dark { // what a screen reader is told has no colours
						v.add(shape+" "+l.name, b.checkNames())
					}
					if l.name != "narrow-dark" {
						b.picture(name + "-" + l.name)
					}
				}
				b.put(views[0])
				if c.name == "one" {
					v.add(shape+" by keys", b.checkFocus())
				}
			})
			v.complain(t)
			t.Logf("%s: %d pages: %s", c.name, len(shapes), strings.Join(shapes, " "))
			for _, path := range menu {
				if !slices.Contains(shapes, path) {
					t.Errorf("%s was not reached", path)
				}
			}
		})
	}
}
