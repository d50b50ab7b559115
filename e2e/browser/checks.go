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

// A finding is one thing that a page does wrong.
type finding struct{ Rule, At, Say string }

func (f finding) String() string { return f.Rule + ": " + f.At + ": " + f.Say }

// check judges the page that is open by the rules.
func (t *tab) check() []finding {
	t.Helper()
	return ask[[]finding](t, inPage("rules()"))
}

// named are the roles that must have a name. What the browser itself tells a screen reader is asked for, by
// its own rules.
var named = []string{
	"button", "link", "textbox", "searchbox", "combobox", "listbox", "checkbox", "radio", "switch", "slider",
	"spinbutton", "DisclosureTriangle",
	"Date", "DateTime", "InputTime", "image", "img", "dialog", "navigation", "table", "columnheader",
	"heading", "PopUpButton",
}

// checkNames says what a screen reader would find nameless.
func (t *tab) checkNames() (found []finding) {
	t.Helper()
	var tree accessibility.GetFullAXTreeResult
	var want int
	t.eventually("the page holds still while it is read", func() error {
		want = t.tables()
		tree = call(t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		if now := t.tables(); now != want {
			return fmt.Errorf("it had %d tables and has %d", want, now)
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
	// A table that is laid out as blocks must stay one for those who listen.
	if tables < want {
		found = append(found, finding{"table", "page",
			fmt.Sprintf("%d of %d tables are none to a screen reader", want-tables, want)})
	}
	return found
}

// tables is how many tables the page shows. What is under an open dialog is not told to a screen reader.
func (t *tab) tables() int {
	t.Helper()
	return ask[int](t, `document.querySelector("dialog[open]") ? 0 :
		[...document.querySelectorAll("table")].filter((e) => e.checkVisibility()).length`)
}

// text is a word of the accessibility tree.
func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}

// describe is the tag of a node with its attributes.
func (t *tab) describe(id cdp.BackendNodeID) string {
	if id == 0 {
		return "?"
	}
	html := call(t, dom.GetOuterHTML, dom.GetOuterHTMLParams{BackendNodeID: id}).OuterHTML
	return html[:min(len(html), 160)]
}

// walk is what happens while Tab is pressed again and again.
type walk struct {
	Want, Went []string
	Unseen     []string
	Hidden     []string
}

// checkFocus goes through the page with Tab: everything that can be used is reached once, in the order in
// which it stands, and is seen to have the focus; from the last one the way leads out again.
func (t *tab) checkFocus() (found []finding) {
	t.Helper()
	n := ask[int](t, inPage("watchFocus()"))
	// which Tab goes through too
	parts := ask[int](t, `document.querySelectorAll("input[type^=date], input[type=time]").length * 8`)
	for range n + parts + 2 {
		t.press("Tab")
		if went := ask[int](t, `window.__walk.went.length`); went > n {
			break // it begins anew
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

// checkTrap goes through an open dialog: Tab does not lead out of it into the page.
func (t *tab) checkTrap() (found []finding) {
	n := ask[int](t,
		`document.querySelectorAll("dialog[open] :is(a[href], button, input:not([type=hidden]), select, textarea, summary)").length`)
	for i := range n + 4 {
		key := "Tab"
		if i%2 == 1 && i >= n {
			key = "Shift+Tab"
		}
		t.press(key)
		if out := ask[bool](t,
			`document.activeElement !== document.body && !document.activeElement.closest("dialog[open]")`); out {
			return []finding{{"trap", t.focused(), "Tab leads out of the dialog into what lies under it"}}
		}
	}
	return nil
}

// A verdict collects what was found on many pages in many views, so that each thing is said once.
type verdict struct {
	order  []string
	places map[string][]string
}

// add notes what was found somewhere. What is told apart by data alone is the same thing.
func (v *verdict) add(where string, found []finding) {
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

// complain fails the test for all that was found.
func (v *verdict) complain(tb testing.TB) {
	tb.Helper()
	for _, key := range v.order {
		places := v.places[key]
		tb.Errorf("%s: %s\n    at %s", key, places[0], strings.Join(places[1:], ", "))
	}
}

// rulesScript has what is asked of every page, as functions that are evaluated in it.
//
//go:embed rules.js
var rulesScript string

// inPage is an expression of the functions of rules.js.
func inPage(expression string) string {
	return "(() => {" + rulesScript + "\nreturn " + expression + ";\n})()"
}

var screens = flag.String("screens", "",
	"where pictures of every page are put; empty: with the artifacts of "+
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
	scheme := "light"
	if l.dark { // the system asks for dark colours
		scheme = "dark"
	}
	call(t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	// What depends on the size of its container is drawn again in the next frame.
	ask[bool](t, `new Promise((done) => requestAnimationFrame(() => done(true)))`)
}

// picture takes a picture of the whole page, if anybody wants to see it.
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

// links are the addresses of ours that a page leads to, without those that are no pages.
func (t *tab) links() []string {
	return ask[[]string](t, `[...new Set([...document.querySelectorAll("a[href]")].filter((a) =>
		a.origin === location.origin && a.pathname.startsWith("/ui/") &&
		!a.pathname.endsWith("/payload") && a.search !== "?as=text").map((a) => a.pathname + a.search))]`)
}

// crawl goes wherever pages lead, and visits up to so many pages of each shape, so that none is forgotten. It
// starts with what the menu leads to, and returns the shapes.
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
		seen[address] = true
		if visited[shape] == 0 {
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
