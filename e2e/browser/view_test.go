package browser

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A merchant opens its link on a phone, finds its order and sends it again. Then it does so in a frame of a
// portal on another origin, with the keyboard.
func TestBrowserMerchantsView(t *testing.T) {
	t.Parallel()
	s := newScene(t, harness.SQLiteEmbedded, func(*harness.Arrival) harness.Reply {
		return harness.Reply{Body: "success"}
	})
	frame := ""
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Portal</title><link rel="icon" href="data:,">
			<iframe title="Notifications" width="380" height="700" src="%s"></iframe>`,
			html.EscapeString(frame))
	}))
	t.Cleanup(portal.Close)
	var ep client.Endpoint
	s.Post("/v1/endpoints", harness.Submission{"external_id": "tea", "name": "Tea shop", "url": s.r.URL}, &ep)
	ids := make([]string, 2)
	for i := range ids {
		var cb client.Callback
		s.Post("/v1/callbacks", harness.Submission{"endpoint": "tea", "ref": fmt.Sprint("order-", i),
			"topic": "payment.succeeded", "payload": harness.Submission{"paid": 10000}}, &cb)
		ids[i] = cb.ID
	}
	attempts := func(id string, n int) {
		t.Helper()
		harness.Eventually(t, time.Minute, fmt.Sprintf("%s has %d attempts", id, n), func() error {
			var cb client.Callback
			if _, err := s.Call(t.Context(), http.MethodGet, "/v1/callbacks/"+id, nil, &cb); err != nil {
				return err
			}
			if cb.State != client.Succeeded || cb.AttemptCount != n {
				return fmt.Errorf("%s, %d", cb.State, cb.AttemptCount)
			}
			return nil
		})
	}
	attempts(ids[0], 1)
	attempts(ids[1], 1)
	link := func(language string) string {
		var made client.ViewLink
		s.Post("/v1/endpoints/"+ep.ID+"/view_link", harness.Submission{"resend": true, "language": language,
			"embed": []string{portal.URL}}, &made)
		return made.URL
	}
	found := &report{}
	for _, language := range []string{"en", "zh-CN"} {
		for _, v := range views {
			b := newTab(t, s.Base)
			b.setView(v)
			list := link(language)
			for name, path := range map[string]string{"list": list, "callback": list + "/callbacks/" + ids[0],
				"nothing": list + "?ref=none"} {
				b.open(path)
				found.add(name+" "+language+" "+v.name, b.check())
				b.picture("view-" + name + "-" + language + "-" + v.name)
			}
		}
	}
	found.fail(t)

	b := newTab(t, s.Base)
	b.size(400)
	b.open(link("zh-CN"))
	b.fill("#ref", "order-0")
	b.click(".filters button", "查询")
	b.seeNot("td a", "order-1")
	b.click("td a", "order-0")
	b.click("button", "重新发送")
	b.see(".flash", "发送")
	attempts(ids[0], 2)

	frame = s.Base + link("en") + "/callbacks/" + ids[1]
	b = newTab(t, portal.URL)
	b.open("/")
	b.press("Tab") // into the frame, to the link back
	b.press("Tab")
	b.press("Enter")
	attempts(ids[1], 2)
}
