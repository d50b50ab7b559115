package browser

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

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
