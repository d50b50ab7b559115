package browser

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// What a key may not do is not offered on any page, and refused where its address is known. Whatever is offered can be opened.
func TestBrowserOffersWhatAKeyMayDo(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	s := newScene(t, harness.SQLiteEmbedded).one()
	for _, c := range []struct {
		name   string
		scopes []string
		// acts says whether anything may be changed; refused are addresses that must be.
		acts    bool
		refused []string
	}{
		{"read", []string{"read"}, false, []string{
			"/ui/callbacks/" + s.hung + "/retry", "/ui/callbacks/" + s.hung + "/cancel", "/ui/endpoints/new", "/ui/endpoints/" + s.endpoint + "/pause",
			"/ui/endpoints/" + s.endpoint + "/secret", "/ui/lanes/pause?key=merchant-9", "/ui/redrives/new?action=retry&state=dead", "/ui/schedules/new",
			"/ui/system/pause", "/ui/system/keys", "/ui/system/rebuild", "/ui/audit",
		}},
		{"operate", []string{"read", "operate"}, true, []string{"/ui/endpoints/" + s.endpoint + "/secret", "/ui/system/keys", "/ui/system/rebuild", "/ui/audit"}},
	} {
		b := newTab(t, s.Base)
		b.signIn(madeKey(t, s.Process, c.scopes...).Key)
		offered := 0
		b.crawl(func(address, shape string) {
			n := ask[int](b, `document.querySelectorAll("main form[method=post], main a[data-ask]").length`)
			offered += n
			if !c.acts && n > 0 && !strings.HasPrefix(shape, "/ui/books/compare") { // which changes nothing: it is sent because it is long
				t.Errorf("%s: %s offers %d things to do, such as %s", c.name, address, n,
					ask[string](b, `document.querySelector("main form[method=post], main a[data-ask]").outerHTML.slice(0, 200)`))
			}
		})
		if c.acts && offered == 0 {
			t.Errorf("%s: nothing at all is offered", c.name)
		}
		b.forgive(`status of 403`)
		for _, address := range c.refused {
			if status := b.open(address); status != 403 {
				t.Errorf("%s: %s is answered with %d", c.name, address, status)
			}
			b.see("main", "Your key may not do this")
		}
	}
}
