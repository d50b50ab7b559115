package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, &backend{}, web.Options{})
	for _, c := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/", 404, "no_route"}, {"GET", "/v1", 404, "no_route"}, {"GET", "/v1/callbacks/", 404, "no_route"}, {"GET", "/v1/endpoints/", 404, "no_route"},
		// Case 64: what the ops listener has; case 94: files.
		{"GET", "/metrics", 404, "no_route"}, {"GET", "/debug/pprof/", 404, "no_route"},
		{"GET", "/debug/pprof", 404, "no_route"}, {"GET", "/debug/pprof/cmdline", 404, "no_route"},
		{"GET", "/v1/%2e%2e/%2e%2e/etc/passwd", 404, "no_route"},
		{"GET", "/ui/static/../../etc/passwd", 404, "no_route"},
		{"GET", "/healthz", 404, "no_route"}, {"GET", "/readyz", 404, "no_route"},
		{"GET", "/v1/../../etc/passwd", 404, "no_route"}, {"GET", "/v1/callbacks/cb_x/why", 404, "no_route"},
		{"POST", "/v1/lanes/https:%2F%2Fshop.example:443/stop", 404, "no_route"}, {"PUT", "/v1/lanes/https:%2F%2Fshop.example:443/pause", 405, "method_not_allowed"},
		{"DELETE", "/v1/callbacks", 405, "method_not_allowed"}, {"PUT", "/v1/callbacks/cb_x", 405, "method_not_allowed"}, {"GET", "/v1/index/verify", 405, "method_not_allowed"},
		{"POST", "/openapi.yaml", 405, "method_not_allowed"},
	} {
		rec := ask(s.Handler(), httptest.NewRequest(c.method, c.path, nil))
		var p httperr.Problem
		if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil {
			t.Fatalf("%s %s: %d %s", c.method, c.path, rec.Code, rec.Body)
		}
		if rec.Code != c.status || p.Code != c.code || rec.Header().Get("Content-Type") != client.ProblemType {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, rec.Code, rec.Body, c.status, c.code)
		}
		if c.status == 405 && rec.Header().Get("Allow") == "" {
			t.Errorf("%s %s: 405 without Allow", c.method, c.path)
		}
	}
}

func TestHeadersOfEveryAnswer(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, &backend{}, web.Options{})
	ids := map[string]bool{}
	for _, path := range []string{"/v1/callbacks", "/v1/callbacks?limit=x", "/openapi.yaml", "/nowhere"} {
		h := ask(s.Handler(), httptest.NewRequest("GET", path, nil)).Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		ids[h.Get("X-Request-Id")] = true
	}
	if len(ids) != 4 || ids[""] {
		t.Errorf("request ids: %v", ids)
	}
}

// An https public_url has browsers come over https from then on, and no other one may.
func TestStrictTransport(t *testing.T) {
	t.Parallel()
	for public, want := range map[string]string{
		"": "", "http://pay.example": "",
		"https://pay.example/": "max-age=63072000", "HTTPS://pay.example": "max-age=63072000",
	} {
		s, _ := newServer(t, &backend{}, web.Options{PublicURL: public})
		for _, path := range []string{"/v1/callbacks", "/openapi.yaml", "/nowhere"} {
			h := ask(s.Handler(), httptest.NewRequest("GET", path, nil)).Header()
			if got := h.Get("Strict-Transport-Security"); got != want {
				t.Errorf("%q: %s has %q, want %q", public, path, got, want)
			}
		}
		rec := httptest.NewRecorder()
		s.OpsHandler().ServeHTTP(rec, httptest.NewRequest("GET", "/healthz", nil))
		if got := rec.Header().Get("Strict-Transport-Security"); got != "" {
			t.Errorf("%q: the ops listener has %q", public, got)
		}
	}
}

// Case 79.
func TestPanicEndsOneRequestAndLeaksNothing(t *testing.T) {
	t.Parallel()
	b := &backend{accept: func(context.Context, []accept.Submission) ([]accept.Receipt, error) { panic("out of cheese") }}
	s, log := newServer(t, b, web.Options{})
	r := httptest.NewRequest("POST", "/v1/callbacks?token=query-value", strings.NewReader(`{"url":"https://shop.example/?token=body-value"}`))
	for _, name := range []string{"Cookie", "X-Api-Key", "X-Secret"} {
		r.Header.Set(name, "header-value")
	}
	rec := ask(s.Handler(), r)
	if rec.Code != 500 || rec.Header().Get("Content-Type") != client.ProblemType || strings.Contains(rec.Body.String(), "cheese") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	text := log.String()
	for _, want := range []string{"out of cheese", rec.Header().Get("X-Request-Id"), "middleware_test.go", `"route":"POST /v1/callbacks"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q: %s", want, text)
		}
	}
	for _, secret := range []string{"header-value", "query-value", "body-value", adminKey} {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %q: %s", secret, text)
		}
	}
	if rec := ask(s.Handler(), httptest.NewRequest("GET", "/v1/callbacks", nil)); rec.Code != 200 {
		t.Errorf("the next request: %d", rec.Code)
	}
}

func TestAccessLines(t *testing.T) {
	t.Parallel()
	s, log := newServer(t, &backend{}, web.Options{})
	ask(s.Handler(), httptest.NewRequest("POST", "/v1/callbacks", strings.NewReader(`{"url":"u"}`)))
	if text := log.String(); text != "" {
		t.Errorf("an accept that went well is in the usual log: %s", text)
	}
	r := httptest.NewRequest("GET", "/v1/callbacks?ref=query-value", nil)
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	ask(s.Handler(), r)
	ask(s.Handler(), httptest.NewRequest("GET", "/%0ax%1b[31m"+strings.Repeat("y", 500), nil))
	text := strings.TrimSuffix(log.String(), "\n")
	if n := strings.Count(text, "\n"); n != 1 {
		t.Fatalf("%d lines for two requests: %s", n+1, text)
	}
	for _, line := range strings.Split(text, "\n") {
		if !json.Valid([]byte(line)) || len(line) > 600 {
			t.Errorf("line: %s", line)
		}
	}
	if strings.Contains(text, "query-value") || strings.Contains(text, "203.0.113.9") {
		t.Errorf("the log has a query value, or believes a stranger's header: %s", text)
	}
}

// TestRefusalsDoNotFillTheLog: while the database is away every caller asks again and again, and who guesses
// keys always does. A few lines a second say so. TestRefusalsOfTwoSecondsByTurns shows that they say how many
// more there were.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	const asked = 500
	s, log := newServer(t, &backend{accept: func(context.Context, []accept.Submission) ([]accept.Receipt, error) {
		return nil, store.ErrUnavailable
	}}, web.Options{})
	began := time.Now()
	for range asked {
		r := httptest.NewRequest("POST", "/v1/callbacks", strings.NewReader(`{"url":"u"}`))
		if rec := ask(s.Handler(), r); rec.Code != 503 {
			t.Fatalf("status %d", rec.Code)
		}
		r = httptest.NewRequest("GET", "/v1/callbacks", nil)
		r.Header.Set("Authorization", "Bearer guess")
		s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	lines := strings.Count(log.String(), "\n") - strings.Count(log.String(), `"status":401`)
	if lines == 0 || lines > 5*(2+int(time.Since(began).Seconds())) {
		t.Errorf("%d lines of %d refusals in %s", lines, 2*asked, time.Since(began))
	}
}

func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	s, log := newServer(t, &backend{}, web.Options{TrustedProxies: []string{"192.0.2.0/24"}})
	r := httptest.NewRequest("GET", "/v1/callbacks", nil) // httptest asks from 192.0.2.1
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	ask(s.Handler(), r)
	if text := log.String(); !strings.Contains(text, `"remote":"203.0.113.9"`) {
		t.Errorf("a trusted proxy is not believed: %s", text)
	}
	a, err := newAPI(&backend{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := web.New(web.Options{API: a, Health: &backend{}, TrustedProxies: []string{"nonsense"}}); err == nil {
		t.Error("nonsense is taken for a proxy")
	}
}

// Case 62. Wrong keys are counted by the connection's address, whatever a header says, unless a trusted proxy
// says it.
func TestWrongKeysAreCountedByAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trusted, headers []string
		slow             bool
	}{
		{nil, []string{"X-Forwarded-For", "X-Real-Ip"}, true},
		{[]string{"192.0.2.0/24"}, []string{"X-Forwarded-For"}, false},
		{[]string{"192.0.2.0/24"}, []string{"X-Real-Ip"}, true}, // which the proxy may have let through
	} {
		s, _ := newServer(t, &backend{}, web.Options{TrustedProxies: c.trusted})
		slow := false
		for i := range 40 {
			r := httptest.NewRequest("GET", "/v1/callbacks", nil) // httptest asks from 192.0.2.1
			for _, name := range c.headers {
				r.Header.Set(name, fmt.Sprintf("203.0.113.%d", i))
			}
			r.Header.Set("Authorization", fmt.Sprintf("Bearer %d guess", i))
			rec := httptest.NewRecorder()
			s.Handler().ServeHTTP(rec, r)
			slow = slow || rec.Code == 429
		}
		if slow != c.slow {
			t.Errorf("proxies %q, headers %q: slowed down: %v", c.trusted, c.headers, slow)
		}
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, &backend{}, web.Options{})
	ask(s.Handler(), httptest.NewRequest("POST", "/v1/callbacks", strings.NewReader(`{"url":"u"}`)))
	ask(s.Handler(), httptest.NewRequest("GET", "/a-strangers-choice", nil))
	rec := httptest.NewRecorder()
	s.OpsHandler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	text := rec.Body.String()
	for _, want := range []string{
		`dispatcher_http_requests_total{code="202",route="POST /v1/callbacks"} 1`,
		`dispatcher_http_requests_total{code="404",route="unmatched"} 1`,
		`dispatcher_http_request_seconds_count{route="POST /v1/callbacks"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(text, "strangers") {
		t.Error("a path became a label")
	}
}
