package app_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// A merchant opens the pages of one link. Like a browser in a frame of another site, it has no cookies.
type merchant struct {
	t    *testing.T
	base string
	// link is the path of the link. language is an Accept-Language header.
	link, language string
}

// A viewed is a response to a merchant.
type viewed struct {
	*http.Response
	body string
}

// do sends a request. It follows no redirect.
func (m *merchant) do(method, path string, pairs ...string) viewed {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), method, m.base+path, http.NoBody)
	if err != nil {
		m.t.Fatal(err)
	}
	req.Header.Set("Accept-Language", m.language)
	for i := 0; i+1 < len(pairs); i += 2 {
		req.Header.Set(pairs[i], pairs[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		m.t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err := firstError(err, res.Body.Close()); err != nil {
		m.t.Fatal(err)
	}
	return viewed{res, string(body)}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// wants checks the status of a page, and that it has the texts.
func (m *merchant) wants(res viewed, status int, texts ...string) {
	m.t.Helper()
	if res.StatusCode != status {
		m.t.Errorf("%s: status %d, want %d", res.Request.Method, res.StatusCode, status)
	}
	for _, text := range texts {
		if !strings.Contains(res.body, text) {
			m.t.Errorf("no %q in %s", text, res.body)
		}
	}
	for name, want := range map[string]string{
		"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"X-Robots-Tag": "noindex, nofollow",
	} {
		if got := res.Header.Get(name); got != want {
			m.t.Errorf("%s: %q", name, got)
		}
	}
	if res.Header.Get("Set-Cookie") != "" || res.Header.Get("X-Frame-Options") != "" {
		m.t.Errorf("headers %v", res.Header)
	}
}

// shop is a server with two endpoints, and a link to one of them.
type shop struct {
	*apptest.Running
	m        *merchant
	endpoint string
	own      string
}

func newShop(t *testing.T, link map[string]any, args ...string) *shop {
	t.Helper()
	receiver := cmdtest.ServeResponse(t, http.StatusOK, "thanks <b>")
	s := &shop{Running: apptest.Start(t, apptest.Settings(t, args...))}
	for _, name := range []string{"other", "tea"} {
		var ep client.Endpoint
		s.Call(t, http.MethodPost, "/v1/endpoints", map[string]any{
			"external_id": name, "name": name + " <shop>", "url": receiver + "/?token=hunter2",
		}, &ep)
		s.endpoint = ep.ID
	}
	s.own = s.accept(t, "tea", "order-1", nil)
	testserver.Until(t, "it is delivered", func() bool { return s.State(t, s.own) == client.Succeeded })
	s.m = s.linked(t, link)
	return s
}

// linked returns a merchant with a new link.
func (s *shop) linked(t *testing.T, link map[string]any) *merchant {
	t.Helper()
	var made client.ViewLink
	s.Call(t, http.MethodPost, "/v1/endpoints/"+s.endpoint+"/view_link", link, &made)
	return &merchant{t: t, base: s.Client.Base, link: made.URL, language: "en"}
}

// accept submits a callback with internals to an endpoint.
func (s *shop) accept(t *testing.T, endpoint, ref string, more map[string]any) string {
	t.Helper()
	request := map[string]any{
		"endpoint": endpoint, "ref": ref, "topic": "payment.<i>", "payload": map[string]any{"paid": "<s>"},
		"lock_key": "hidden-lock", "labels": map[string]any{"channel": "hidden-label"}, "policy": "short",
		"headers": map[string]any{"X-Api-Key": "hunter2"},
	}
	for name, value := range more {
		request[name] = value
	}
	var cb client.Callback
	s.Call(t, http.MethodPost, "/v1/callbacks", request, &cb)
	return cb.ID
}

// pause pauses the endpoint of the link.
func (s *shop) pause(t *testing.T) {
	t.Helper()
	s.Call(t, http.MethodPost, "/v1/endpoints/"+s.endpoint+"/pause", map[string]any{}, nil)
}

var targets = regexp.MustCompile(`(?:href|action)="([^"]+)"`)

// TestViewPages opens every page of a link in both languages. The pages have what the merchant needs, nothing
// of the sender and of others, and no script.
func TestViewPages(t *testing.T) {
	t.Parallel()
	s := newShop(t, map[string]any{"resend": true, "embed": []string{"https://portal.example"}})
	s.pause(t)
	open := s.accept(t, "tea", "order-2", nil)
	other := s.accept(t, "other", "order-other", map[string]any{"delay": "1h"})
	if !strings.HasPrefix(s.m.link, query.ViewRoot+"/") {
		t.Fatalf("the link is %q", s.m.link)
	}
	link := map[string]any{"resend": true, "embed": []string{"https://portal.example"}}
	for language, words := range map[string][]string{
		"en":    {"Delivered", "Search", "Send again", "Send now", "Link not valid"},
		"zh-CN": {"已送达", "查询", "重新发送", "立即发送", "链接无效"},
	} {
		s.m = s.linked(t, link) // one link makes 20 requests at once
		s.m.language = language
		list := s.m.do("GET", s.m.link)
		s.m.wants(list, 200, `lang="`+language+`"`, "order-1", "order-2", "tea &lt;shop&gt;", words[0],
			words[1])
		s.m.wants(s.m.do("GET", s.m.link+"/callbacks/"+s.own), 200, "order-1", "thanks &lt;b&gt;",
			"&lt;s&gt;", s.own, words[2])
		s.m.wants(s.m.do("GET", s.m.link+"/callbacks/"+open), 200, "order-2", words[3])
		s.m.wants(s.m.do("GET", query.ViewRoot+"/x"), 404, words[4])
	}
	s.m = s.linked(t, link)
	own := s.m.link + "/callbacks/" + s.own
	for _, page := range []string{
		s.m.link, s.m.link + "?ref=order-1", s.m.link + "?state=succeeded", own,
		s.m.link + "/callbacks/" + open, own + "?sent=1", own + "?before=2",
		s.m.link + "?lang=zh-CN&zone=Asia/Tokyo", s.m.link + "?ref=order-other", s.m.link + "/callbacks/x",
	} {
		res := s.m.do("GET", page)
		for _, hidden := range []string{
			"hidden-", "hunter2", other, s.endpoint, "<script", "style=", "/ui/callbacks", "/v1/",
			"default", "short", "<shop>", "<b>", "<s>",
		} {
			if strings.Contains(res.body, hidden) {
				t.Errorf("%q is in %s", hidden, res.body)
			}
		}
		policy := res.Header.Get("Content-Security-Policy")
		if !strings.HasSuffix(policy, "frame-ancestors https://portal.example") ||
			strings.Contains(policy, "script") {
			t.Errorf("%s: %s", page, policy)
		}
		for _, link := range targets.FindAllStringSubmatch(res.body, -1) {
			if !strings.HasPrefix(link[1], s.m.link) && !strings.HasPrefix(link[1], "/ui/static/") {
				t.Errorf("%s links to %s", page, link[1])
			}
		}
	}
	s.m.wants(s.m.do("GET", s.m.link+"?ref=order-1"), 200, "order-1")
	if res := s.m.do("GET", s.m.link+"?ref=order-1"); strings.Contains(res.body, "order-2") {
		t.Error("the search finds another order")
	}
	s.m.wants(s.m.do("GET", own+"/payload"), 200, `{"paid":"<s>"}`)
	s.m.wants(s.m.do("GET", own+"/report"), 200, s.own)
	s.m.wants(s.m.do("HEAD", own), 200)
}

// TestViewEnds checks every way in which a link is not valid. All give the same page.
func TestViewEnds(t *testing.T) {
	t.Parallel()
	s := newShop(t, map[string]any{"resend": true})
	other := s.accept(t, "other", "order-other", map[string]any{"delay": "1h"})
	ended := s.m.do("GET", query.ViewRoot+"/AAAA").body
	same := func(what string, res viewed) {
		t.Helper()
		s.m.wants(res, 404)
		if res.body != ended {
			t.Errorf("%s: %s", what, res.body)
		}
		policy := res.Header.Get("Content-Security-Policy")
		if !strings.HasSuffix(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: %s", what, policy)
		}
	}
	same("a changed token", s.m.do("GET", s.m.link[:len(s.m.link)-4]+"AAAA"))
	same("a longer token", s.m.do("GET", s.m.link+"A/callbacks/"+s.own))
	same("a post with a changed token", s.m.do("POST", s.m.link+"A/callbacks/"+s.own+"/send"))
	for _, id := range []string{other, "cb_01JD6QZ0000000000000000001", "x", s.endpoint} {
		s.m = s.linked(t, map[string]any{"resend": true})
		for _, page := range []string{"", "/payload", "/report"} {
			s.m.wants(s.m.do("GET", s.m.link+"/callbacks/"+id+page), 404, "Notification not found")
		}
		s.m.wants(s.m.do("POST", s.m.link+"/callbacks/"+id+"/send"), 404, "Notification not found")
	}
	s.Call(t, http.MethodPost, "/v1/endpoints/"+s.endpoint+"/view_link/revoke", map[string]any{}, nil)
	same("a revoked link", s.m.do("GET", s.m.link))
	same("a revoked link that sends", s.m.do("POST", s.m.link+"/callbacks/"+s.own+"/send"))
	s.m = s.linked(t, nil)
	s.m.wants(s.m.do("GET", s.m.link), 200, "order-1")
	s.m.wants(s.m.do("POST", s.m.link+"/callbacks/"+s.own+"/send"), 403, "only shows")
	s.Call(t, http.MethodDelete, "/v1/endpoints/"+s.endpoint, map[string]any{}, nil)
	same("a link to a deleted endpoint", s.m.do("GET", s.m.link))
}

// TestViewSends sends a callback again, as a form in a frame of another site does: without an origin.
func TestViewSends(t *testing.T) {
	t.Parallel()
	s := newShop(t, map[string]any{"resend": true, "embed": []string{"https://portal.example"}})
	send := func(id string, headers ...string) viewed {
		t.Helper()
		return s.m.do("POST", s.m.link+"/callbacks/"+id+"/send?lang=zh-CN", headers...)
	}
	res := send(s.own, "Origin", "null", "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "iframe")
	s.m.wants(res, 303)
	to := res.Header.Get("Location")
	if !strings.HasPrefix(to, s.m.link+"/callbacks/"+s.own+"?") || !strings.Contains(to, "lang=zh-CN") {
		t.Errorf("it leads to %q", to)
	}
	testserver.Until(t, "it is sent again", func() bool {
		return s.Callback(t, s.own).AttemptCount == 2 && s.State(t, s.own) == client.Succeeded
	})
	s.m.wants(s.m.do("GET", to), 200, "已发送")
	res = send(s.own)
	s.m.wants(res, 429, "一分钟后")
	if wait, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
		t.Errorf("Retry-After: %q", res.Header.Get("Retry-After"))
	}
	planned := s.accept(t, "tea", "order-4", map[string]any{"delay": "1h"})
	s.m.wants(send(planned), 404, "未找到")
	s.pause(t)
	open := s.accept(t, "tea", "order-2", nil)
	s.m.wants(send(open), 303)
	sent := s.m.link + "/callbacks/" + open + "?sent=1"
	waits := func() {
		t.Helper()
		s.m.wants(s.m.do("GET", sent), 200, "has paused sending. This notification is sent when")
		s.m.wants(s.m.do("GET", sent+"&lang=zh-CN"), 200, "支付平台已暂停发送")
	}
	waits()
	s.Call(t, http.MethodPost, "/v1/stop", map[string]any{"reason": "hidden-reason"}, nil)
	s.Call(t, http.MethodPost, "/v1/endpoints/"+s.endpoint+"/resume", map[string]any{}, nil)
	waits()
	s.Call(t, http.MethodPost, "/v1/start", map[string]any{}, nil)
	testserver.Until(t, "it is sent now", func() bool { return s.State(t, open) == client.Succeeded })
	s.pause(t)
	canceled := s.accept(t, "tea", "order-3", nil)
	s.Call(t, http.MethodPost, "/v1/callbacks/"+canceled+"/cancel", map[string]any{}, nil)
	s.m.wants(send(canceled), 409, "已取消")
	var audit struct{ Data []client.AuditEntry }
	s.Call(t, http.MethodGet, "/v1/audit", nil, &audit)
	found := 0
	for _, e := range audit.Data {
		if e.Actor == "merchant link of tea <shop>" && e.Action == "callback.retry" {
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d of the entries are of the link: %+v", found, audit.Data)
	}
}

// TestViewOfAnotherHost: what the sender has sent to a host of its own is neither shown nor sent again.
func TestViewOfAnotherHost(t *testing.T) {
	t.Parallel()
	s := newShop(t, map[string]any{"resend": true})
	const inner = "http://inner.invalid/"
	s.Call(t, http.MethodPatch, "/v1/endpoints/"+s.endpoint, map[string]any{"url_override": "any"}, nil)
	id := s.accept(t, "tea", "order-2", map[string]any{"url": inner})
	for language, words := range map[string][]string{
		"en":    {"Not shown: this notification", "you cannot send it"},
		"zh-CN": {"不显示：该通知发往", "您无法发送"},
	} {
		s.m.language = language
		page := s.m.do("GET", s.m.link+"/callbacks/"+id)
		s.m.wants(page, 200, words[0])
		report := s.m.do("GET", s.m.link+"/callbacks/"+id+"/report")
		s.m.wants(report, 200, words[0])
		for _, hidden := range []string{`id="send"`, "inner", "&lt;s&gt;", "<s>", "SHA-256"} {
			if strings.Contains(page.body+report.body, hidden) {
				t.Errorf("%q is in %s\n%s", hidden, page.body, report.body)
			}
		}
		s.m.wants(s.m.do("GET", s.m.link+"/callbacks/"+id+"/payload"), 409, words[1])
		s.m.wants(s.m.do("POST", s.m.link+"/callbacks/"+id+"/send"), 409, words[1])
	}
	if n := s.Callback(t, id).AttemptCount; n > 1 {
		t.Errorf("%d attempts", n)
	}
}

// TestGuessesOfLinksAreSlowed checks that guesses have a limit, and that a valid link works after guesses
// from its address.
func TestGuessesOfLinksAreSlowed(t *testing.T) {
	t.Parallel()
	s := newShop(t, nil)
	s.m.wants(s.m.do("GET", s.m.link), 200)
	codes := make(map[int]int)
	for i := range 40 {
		res := s.m.do("GET", fmt.Sprintf("%s/guess-%d", query.ViewRoot, i))
		codes[res.StatusCode]++
	}
	if codes[404] < 10 || codes[429] == 0 || codes[404]+codes[429] != 40 {
		t.Errorf("guesses: %v", codes)
	}
	s.m.wants(s.m.do("GET", s.m.link), 200)
}

// TestViewTokensAreInNoLog checks that neither the log nor the metrics have a token.
func TestViewTokensAreInNoLog(t *testing.T) {
	t.Parallel()
	s := newShop(t, nil)
	s.m.wants(s.m.do("GET", s.m.link), 200)
	s.m.wants(s.m.do("GET", s.m.link+"/callbacks/"+s.own), 200)
	if res := s.m.do("GET", s.m.link+"/no/such/page"); res.StatusCode != 404 {
		t.Errorf("status %d", res.StatusCode)
	}
	ops := &merchant{t: t, base: "http://" + s.Web.OpsAddr().String()}
	metrics := ops.do("GET", "/metrics").body
	if !strings.Contains(metrics, `route="GET /view/:token"`) || strings.Contains(metrics, s.m.link) {
		t.Error("the metrics of the pages are wrong")
	}
}
