package browser

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// Every act that is asked for in a dialog has one that is well made: it says what it is of, the focus goes into it and stays there, it can be left
// with Escape, and then the focus is where it came from.
func TestBrowserEveryDialogIsWellMade(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	s := newScene(t, harness.SQLiteEmbedded).one()
	b := newTab(t, s.Base)
	b.signIn(harness.AdminKey)
	var v verdict
	var asked []string
	b.crawl(func(address, _ string) {
		for _, href := range ask[[]string](b, `[...document.querySelectorAll("main a[data-ask]")].filter((a) => a.checkVisibility()).map((a) => a.getAttribute("href"))`) {
			shape := shapeOf(href)
			if slices.Contains(asked, shape) {
				continue
			}
			asked = append(asked, shape)
			link := fmt.Sprintf(`a[data-ask][href=%q]`, href)
			b.mark()
			b.click(link, "")
			b.see("dialog h1", "")
			if in := ask[bool](b, `!!document.activeElement.closest("dialog")`); !in {
				t.Errorf("%s on %s: the dialog is open, and the focus is at %q", shape, address, b.focused())
			}
			for _, l := range []view{views[0], views[3]} {
				b.put(l)
				v.add(shape+" "+l.name, b.check())
			}
			v.add(shape, b.checkNames())
			v.add(shape, b.checkTrap())
			b.put(views[0])
			b.press("Escape")
			b.seeNot("dialog", "")
			if back := ask[bool](b, js(`return document.activeElement === document.querySelector(args[0])`, link)); !back {
				t.Errorf("%s on %s: the dialog was left, and the focus is at %q", shape, address, b.focused())
			}
			b.marked(shape)
		}
	})
	v.complain(t)
	if len(asked) < 10 {
		t.Errorf("only %d acts were found: %v", len(asked), asked)
	}
	t.Logf("%d dialogs: %v", len(asked), asked)
}
