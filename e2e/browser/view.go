package browser

import (
	"flag"
	"os"
	"path/filepath"

	"github.com/chromedp/cdproto/page"
)

var screens = flag.String("screens", "", "where pictures of every page are put; empty: with the artifacts of "+
	"the test, where -artifacts keeps them, or nowhere")

// A view is in which form a page is looked at.
type view struct {
	name  string
	width int64
	dark  bool
}

// views are those of every page.
var views = []view{
	{"light", 1280, false}, {"dark", 1280, true}, {"narrow", 400, false}, {"narrow-dark", 400, true},
}

// put makes the tab look so.
func (t *tab) put(l view) {
	t.Helper()
	t.size(l.width)
	t.dark(l.dark)
	// What depends on the size of its container is drawn again in the next frame.
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
	shot := call(t, page.CaptureScreenshot,
		page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond, OptimizeForSpeed: &fast})
	if err := os.WriteFile(filepath.Join(dir, name+".png"), shot.Data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// links are the addresses of ours that a page leads to, without those that are no pages.
func (t *tab) links() []string {
	t.Helper()
	return ask[[]string](t, `[...new Set([...document.querySelectorAll("a[href]")].filter((a) =>
		a.origin === location.origin && a.pathname.startsWith("/ui/") &&
		!a.pathname.endsWith("/payload") && a.search !== "?as=text").map((a) => a.pathname + a.search))]`)
}

// crawl goes wherever pages lead, and visits up to so many pages of each shape, so that none is forgotten. It starts
// with what the menu leads to, and returns the shapes.
func (t *tab) crawl(most int, visit func(address, shape string)) (shapes []string) {
	t.Helper()
	if status := t.open("/ui/"); status != 200 {
		t.Fatalf("/ui/ is answered with %d", status)
	}
	waiting := ask[[]string](t,
		`[...document.querySelectorAll("nav.menu a")].map((a) => a.getAttribute("href"))`)
	visited, seen := map[string]int{}, map[string]bool{}
	for ; len(waiting) > 0; waiting = waiting[1:] {
		address, shape := waiting[0], shapeOf(waiting[0])
		if seen[address] || visited[shape] == most {
			continue
		}
		if seen[address] = true; visited[shape] == 0 {
			shapes = append(shapes, shape)
		}
		visited[shape]++
		t.put(views[0])
		t.forget()
		if status := t.open(address); status != 200 {
			t.Errorf("%s is answered with %d", address, status)
			continue
		}
		waiting = append(waiting, t.links()...)
		visit(address, shape)
	}
	return shapes
}
