package browser

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A finding is one rule that a page breaks.
type finding struct{ Rule, At, Say string }

func (f finding) String() string { return f.Rule + ": " + f.At + ": " + f.Say }

// check applies the rules of rules.js to the open page.
func (t *tab) check() []finding {
	t.Helper()
	return ask[[]finding](t, inPage("rules()"))
}

// named are the roles that must have a name. They come from the accessibility tree of the browser.
var named = []string{
	"button", "link", "textbox", "searchbox", "combobox", "listbox", "checkbox", "radio", "switch", "slider",
	"spinbutton", "DisclosureTriangle",
	"Date", "DateTime", "InputTime", "image", "img", "dialog", "navigation", "table", "columnheader",
	"heading", "PopUpButton",
}

// checkNames finds the elements that have no name for a screen reader.
func (t *tab) checkNames() (found []finding) {
	t.Helper()
	var tree accessibility.GetFullAXTreeResult
	var want int
	t.eventually("the page does not change during the check", func() error {
		want = t.tables()
		tree = call(t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		if now := t.tables(); now != want {
			return fmt.Errorf("the page had %d tables and has %d", want, now)
		}
		return nil
	})
	tables := 0
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := text(node.Role)
		if role == "table" {
			tables++
		}
		if !slices.Contains(named, role) || strings.TrimSpace(text(node.Name)) != "" {
			continue
		}
		found = append(found, finding{"name", t.describe(node.BackendDOMNodeID),
			"a " + role + " without a name"})
	}
	// A table with a block layout must stay a table in the accessibility tree.
	if tables < want {
		found = append(found, finding{"table", "page",
			fmt.Sprintf("%d of %d tables are not tables for a screen reader", want-tables, want)})
	}
	return found
}

// tables counts the visible tables of the page. A screen reader does not get those under an open dialog.
func (t *tab) tables() int {
	t.Helper()
	return ask[int](t, `document.querySelector("dialog[open]") ? 0 :
		[...document.querySelectorAll("table")].filter((e) => e.checkVisibility()).length`)
}

// text returns a value of the accessibility tree.
func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}

// describe returns the HTML of a node, up to 160 bytes.
func (t *tab) describe(id cdp.BackendNodeID) string {
	if id == 0 {
		return "?"
	}
	html := call(t, dom.GetOuterHTML, dom.GetOuterHTMLParams{BackendNodeID: id}).OuterHTML
	return html[:min(len(html), 160)]
}

// A walk is the path of the focus while Tab is pressed again and again.
type walk struct {
	Want, Went []string
	Unseen     []string
	Hidden     []string
}

// checkFocus goes through the page with Tab. It must reach every control once, in document order, with a
// visible focus, and leave the page after the last one.
func (t *tab) checkFocus() (found []finding) {
	t.Helper()
	n := ask[int](t, inPage("watchFocus()"))
	// Tab also stops at each part of a date or time field.
	parts := ask[int](t, `document.querySelectorAll("input[type^=date], input[type=time]").length * 8`)
	for range n + parts + 2 {
		t.press("Tab")
		if went := ask[int](t, `window.__walk.went.length`); went > n {
			break // Tab has started over
		}
	}
	w := ask[walk](t, inPage("walked()"))
	went := w.Went[:min(len(w.Went), len(w.Want))]
	for i, want := range w.Want {
		is := "nothing"
		if i < len(went) {
			is = went[i]
		}
		if is != want {
			found = append(found, finding{"order", want, "Tab does not lead there: it leads to " + is})
			break
		}
	}
	for _, text := range w.Unseen {
		found = append(found, finding{"focus", text, ""})
	}
	for _, text := range w.Hidden {
		found = append(found, finding{"obscured", text, ""})
	}
	return found
}

// checkTrap goes through an open dialog: Tab must not leave it.
func (t *tab) checkTrap() (found []finding) {
	n := ask[int](t, `document.querySelectorAll("dialog[open] :is(a[href], button, "
		+ "input:not([type=hidden]), select, textarea, summary)").length`)
	for i := range n + 4 {
		key := "Tab"
		if i%2 == 1 && i >= n {
			key = "Shift+Tab"
		}
		t.press(key)
		if out := ask[bool](t, `document.activeElement !== document.body &&
			!document.activeElement.closest("dialog[open]")`); out {
			return []finding{{"trap", t.focused(), "Tab leads out of the dialog into the page"}}
		}
	}
	return nil
}

// A report collects the findings of many pages and views, and reports each one once.
type report struct {
	order  []string
	places map[string][]string
}

// add adds the findings of one place. Findings that differ only in data count as the same.
func (v *report) add(where string, found []finding) {
	if v.places == nil {
		v.places = map[string][]string{}
	}
	seen := map[string]bool{}
	for _, f := range found {
		place, example, _ := strings.Cut(f.At, " “")
		key := f.Rule + ": " + place
		if f.Rule == "language" {
			key += ": " + f.Say
		}
		if v.places[key] == nil {
			v.order = append(v.order, key)
			v.places[key] = []string{"“" + example + " " + f.Say}
		}
		if !seen[key] {
			v.places[key] = append(v.places[key], where)
		}
		seen[key] = true
	}
}

// fail fails the test for all findings.
func (v *report) fail(tb testing.TB) {
	tb.Helper()
	for _, key := range v.order {
		places := v.places[key]
		tb.Errorf("%s: %s\n    at %s", key, places[0], strings.Join(places[1:], ", "))
	}
}

// rulesScript has the rules for every page, as functions that run in it.
//
//go:embed rules.js
var rulesScript string

// inPage returns an expression that can use the functions of rules.js.
func inPage(expression string) string {
	return "(() => {" + rulesScript + "\nreturn " + expression + ";\n})()"
}

var screens = flag.String("screens", "",
	"directory of the pictures of every page; empty: with -artifacts, the artifacts of the test; else none")

// A view is a window size and a colour scheme.
type view struct {
	name  string
	width int64
	dark  bool
}

// views are the views in which every page is checked.
var views = []view{
	{"light", 1280, false}, {"dark", 1280, true}, {"narrow", 400, false}, {"narrow-dark", 400, true},
	{"wide", 1920, false},
}

// setView sets the view of the tab.
func (t *tab) setView(l view) {
	t.Helper()
	t.size(l.width)
	scheme := "light"
	if l.dark { // the system's preference for dark colours
		scheme = "dark"
	}
	call(t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	// The browser redraws elements that depend on their container's size in the next frame.
	ask[bool](t, `new Promise((done) => requestAnimationFrame(() => done(true)))`)
}

// picture stores a picture of the whole page, if -screens or -artifacts is set.
func (t *tab) picture(name string) {
	dir := *screens
	if dir == "" {
		if kept := flag.Lookup("test.artifacts"); kept == nil || kept.Value.String() != "true" {
			return
		}
		dir = t.ArtifactDir()
	}
	harness.Check(t, os.MkdirAll(dir, 0o755))
	fast, beyond := true, true
	shot := call(t, page.CaptureScreenshot,
		page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond, OptimizeForSpeed: &fast})
	harness.Check(t, os.WriteFile(filepath.Join(dir, name+".png"), shot.Data, 0o644))
}

// links returns the links of a page to other pages of the server.
func (t *tab) links() []string {
	return ask[[]string](t, `[...new Set([...document.querySelectorAll("a[href]")].filter((a) =>
		a.origin === location.origin && a.pathname.startsWith("/ui/") &&
		!a.pathname.endsWith("/payload") && !new URLSearchParams(a.search).has("as")
		).map((a) => a.pathname + a.search))]`)
}

// crawl follows the links from the first addresses and the menu on and visits up to `most` pages of each
// shape. It returns the shapes.
func (t *tab) crawl(most int, first []string, visit func(address, shape string)) (shapes []string) {
	t.Helper()
	if status := t.open("/ui/"); status != 200 {
		t.Fatalf("/ui/ returned %d", status)
	}
	waiting := slices.Concat(first, ask[[]string](t,
		`[...document.querySelectorAll("nav.menu a")].map((a) => a.getAttribute("href"))`))
	visited, seen := map[string]int{}, map[string]bool{}
	for ; len(waiting) > 0; waiting = waiting[1:] {
		address, shape := waiting[0], shapeOf(waiting[0])
		if seen[address] || visited[shape] == most {
			continue
		}
		seen[address] = true
		if visited[shape] == 0 {
			shapes = append(shapes, shape)
		}
		visited[shape]++
		t.setView(views[0])
		t.forget()
		if status := t.open(address); status != 200 {
			t.Errorf("%s returned %d", address, status)
			continue
		}
		waiting = append(waiting, t.links()...)
		visit(address, shape)
	}
	return shapes
}
