package browser

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"strings"
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
		s.Post("/v1/endpoints/"+ep.ID+"/view_link", harness.Submission{"resend": true, "lang": language,
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

	b.allow("status of 4(04|29)")
	b.open(b.where())
	b.click("button", "重新发送")
	b.see("[role=alert]", "请一分钟后")
	b.see("[role=alert] a[href*=cb_]", "返回该通知")
	for _, v := range views {
		b.setView(v)
		found.add("limited "+v.name, b.check())
		b.picture("view-limited-" + v.name)
	}

	frame = s.Base + link("en") + "/callbacks/" + ids[1]
	b = newTab(t, portal.URL)
	b.open("/")
	b.press("Tab") // into the frame, to the link back
	b.press("Tab")
	b.press("Enter")
	attempts(ids[1], 2)
	checkNotFramed(t, s.Base+link("en"))

	ended := link("zh-CN")
	s.Post("/v1/endpoints/"+ep.ID+"/view_link/revoke", harness.Submission{}, nil)
	b = newTab(t, s.Base)
	b.allow("status of 404")
	b.open(ended + "?lang=zh-CN")
	b.see("h1", "链接无效")
	for _, v := range views {
		b.setView(v)
		found.add("revoked "+v.name, b.check())
		b.picture("view-revoked-" + v.name)
	}
	found.fail(t)
}

// checkNotFramed checks that the browser shows a link in no frame of a site that the link does not name.
func checkNotFramed(t *testing.T, link string) {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Another site</title>
			<link rel="icon" href="data:,"><iframe title="Notifications" src="%s"></iframe>`,
			html.EscapeString(link))
	}))
	t.Cleanup(site.Close)
	b := newTab(t, site.URL)
	b.open("/")
	b.eventually("the browser refuses the frame", func() error {
		reported := strings.Join(b.problems(), "\n")
		if !strings.Contains(reported, "frame-ancestors") {
			return fmt.Errorf("only: %s", reported)
		}
		return nil
	})
	b.allow("frame-ancestors", "BLOCKED_BY_CSP", "ERR_BLOCKED_BY_RESPONSE")
}

// An operator makes a link and a key for a merchant on the endpoint's page, sees each once, and ends the
// link.
func TestBrowserOperatorServesAMerchant(t *testing.T) {
	t.Parallel()
	s := newScene(t, harness.SQLiteEmbedded, nil)
	var ep client.Endpoint
	s.Post("/v1/endpoints", harness.Submission{"external_id": "tea", "name": "Tea shop", "url": s.r.URL}, &ep)
	b, found := s.window("", s.Base), &report{}
	shows := func(name string) {
		t.Helper()
		for _, v := range views {
			b.setView(v)
			found.add(name+" "+v.name, b.check())
			b.picture("merchant-" + name + "-" + v.name)
		}
		b.setView(views[0])
	}
	page := "/ui/endpoints/" + ep.ID
	b.prefer("language", "zh-CN")
	b.open(page)
	b.click("main a", "创建商户链接…")
	b.see("dialog h1", "创建商户链接")
	shows("link-form")
	b.fill("#f-expires_in", "7d")
	b.click("dialog button", "创建链接")
	b.see("#link", "/view/")
	shows("link")
	link := ask[string](b, `document.querySelector("#link").textContent.trim()`)
	merchant := newTab(t, "")
	merchant.open(link)
	merchant.see("h1", "Tea shop")
	b.open(page)
	b.seeNot("main", "/view/")
	b.click("main a", "吊销商户链接…")
	b.see("dialog h1", "吊销商户链接")
	shows("revoke-form")
	b.click("dialog button", "吊销链接")
	b.see(".flash, .toast", "已全部吊销")
	merchant.allow("status of 404")
	merchant.open(link)
	merchant.see("h1", "Link not valid")

	b.prefer("language", "en")
	b.open(page)
	b.click("main a", "Create merchant key…")
	b.see("dialog h1", "New API key")
	shows("key-form")
	b.fill("#f-name", "tea service")
	b.click("dialog button", "Create key")
	b.see("main dd", "Tea shop")
	shows("key")
	b.click("main a", "Done")
	b.see("td a", "Tea shop")
	shows("keys")
	b.prefer("language", "zh-CN")
	b.open("/ui/system/keys")
	shows("keys-zh")
	found.fail(t)
}
