package ui

import (
	"net/url"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestAlertLinksShowTheCause opens the page that the messages of each kind link to, for no firing, for one
// and for several. A condition in a link must be one that the page knows and applies.
func TestAlertLinksShowTheCause(t *testing.T) {
	t.Parallel()
	w := newWorld("callbacks {}", "endpoints {} {} {}", `lanes {"Key":"shop"} {"Key":"tea"}`,
		"schedules {} {} {}", "dead {}", "sources {} {}")
	w.has.Endpoints[0].FailingSince, w.has.Schedules[0].NextAt = testNow-1000, testNow-60_000
	b := signedIn(t, w)
	firings := []store.AlertFiring{{Instance: testID(1)}, {Instance: testID(2)}}
	for _, kind := range store.AlertKinds() {
		for _, lane := range []string{"", "shop"} {
			for n := range len(firings) + 1 {
				found := firings[:n]
				switch kind {
				case store.AlertBreakerOpen:
					found = []store.AlertFiring{{Instance: "shop"}, {Instance: "tea"}}[:n]
				case store.AlertRelayLag, store.AlertRelayRefused:
					found = []store.AlertFiring{{Instance: "pay-001"}, {Instance: "pay-002"}}[:n]
				}
				page := alert.Page(&store.AlertWhen{Kind: kind, Lane: lane}, found)
				res := b.get(page).ok()
				res.hasNot("main .banner.bad") // a condition that the page does not know
				address, err := url.Parse(page)
				if err != nil {
					t.Fatal(err)
				}
				q := address.Query()
				if len(q) > 0 && !q.Has("key") && res.count("form.filters a.quiet") == 0 {
					t.Errorf("%s: %s is not filtered", kind, page)
				}
				if q.Has("why") && res.count("p.small .badge") == 0 {
					t.Errorf("%s: %s names an unknown block", kind, page)
				}
				if (q.Has("failing") || q.Has("enabled")) && res.count("tbody tr") != 1 {
					t.Errorf("%s: %s has %d rows, want 1", kind, page, res.count("tbody tr"))
				}
			}
		}
	}
	if page := alert.Page(&store.AlertWhen{Kind: "odd"}, nil); page != Root+"/alerts" {
		t.Errorf("the page of an unknown kind is %s", page)
	}
}
