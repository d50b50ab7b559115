package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web"
)

// TestResponses runs testdata/answers.txt. It sends requests to both listeners, for existing and missing
// paths, and writes the headers of every response. "public URL" starts a server with that public_url. "health
// JSON" and "drain" change the state of the server. "ops" sends a request to the ops listener.
func TestResponses(t *testing.T) {
	t.Parallel()
	b, ids := &backend{}, make(map[string]bool)
	s, _ := newServer(t, b, web.Options{})
	transcript.Run(t, "testdata/answers.txt", func(line string) string {
		method, path, _ := strings.Cut(line, " ")
		handler := s.Handler()
		switch method {
		case "public":
			s, _ = newServer(t, b, web.Options{PublicURL: path})
			return ""
		case "health":
			b.health = dispatch.Health{}
			if err := json.Unmarshal([]byte(path), &b.health); err != nil {
				t.Fatal(err)
			}
			return ""
		case "drain":
			s.BeginDrain()
			return ""
		case "ops":
			handler = s.OpsHandler()
			method, path, _ = strings.Cut(path, " ")
		}
		rec := send(handler, httptest.NewRequest(method, path, nil))
		h := rec.Header()
		if id := h.Get("X-Request-Id"); handler == s.Handler() && (id == "" || ids[id]) {
			t.Errorf("%s: the request's id is %q", line, id)
		} else {
			ids[id] = true
		}
		answer := fmt.Sprintln(rec.Code, h.Get("Content-Type"))
		for _, name := range []string{
			"Allow", "Strict-Transport-Security", "X-Content-Type-Options", "Content-Security-Policy",
			"Referrer-Policy", "Cache-Control",
		} {
			if value := h.Get(name); value != "" {
				answer += name + ": " + value + "\n"
			}
		}
		if rec.Body.Len() < 1000 {
			answer += rec.Body.String()
		}
		return answer
	})
}

// TestPanic (case 79) checks that a panic ends only its request, and that neither the response nor the log
// leaks secrets.
func TestPanic(t *testing.T) {
	t.Parallel()
	b := &backend{accept: func(context.Context, []accept.Submission) ([]store.Accepted, error) {
		panic("out of cheese")
	}}
	s, log := newServer(t, b, web.Options{})
	r := httptest.NewRequest("POST", "/v1/callbacks?token=query-value",
		strings.NewReader(`{"url":"https://shop.example/?token=body-value"}`))
	for _, name := range []string{"Cookie", "X-Api-Key", "X-Secret"} {
		r.Header.Set(name, "header-value")
	}
	rec := send(s.Handler(), r)
	isProblem := rec.Code == 500 && rec.Header().Get("Content-Type") == client.ProblemType
	if !isProblem || strings.Contains(rec.Body.String(), "cheese") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	text := log.String()
	for _, want := range []string{
		"out of cheese", rec.Header().Get("X-Request-Id"), "middleware_test.go",
		`"route":"POST /v1/callbacks"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q: %s", want, text)
		}
	}
	for _, secret := range []string{"header-value", "query-value", "body-value", adminKey} {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %q: %s", secret, text)
		}
	}
	if rec := send(s.Handler(), httptest.NewRequest("GET", "/v1/callbacks", nil)); rec.Code != 200 {
		t.Errorf("the next request: %d", rec.Code)
	}
}

// TestAccessLog checks which requests are logged, and that a line contains no query value and no control
// character.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	s, log := newServer(t, &backend{}, web.Options{})
	send(s.Handler(), httptest.NewRequest("POST", "/v1/callbacks", strings.NewReader(`{"url":"u"}`)))
	if text := log.String(); text != "" {
		t.Errorf("a successful accept is logged at the info level: %s", text)
	}
	r := httptest.NewRequest("GET", "/v1/callbacks?ref=query-value", nil)
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	send(s.Handler(), r)
	send(s.Handler(), httptest.NewRequest("GET", "/%0ax%1b[31m"+strings.Repeat("y", 500), nil))
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
		t.Errorf("the log has a query value, or the address of an untrusted header: %s", text)
	}
}

// TestRefusalsDoNotFillTheLog checks that refused requests get only a few log lines per second: callers
// repeat requests while the database is down, and guessers of keys never stop.
// TestRefusalsOfAlternatingSeconds checks that the lines have the number of refusals without a line.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	const requests = 500
	unavailable := func(context.Context, []accept.Submission) ([]store.Accepted, error) {
		return nil, store.ErrUnavailable
	}
	s, log := newServer(t, &backend{accept: unavailable}, web.Options{})
	began := time.Now()
	for range requests {
		r := httptest.NewRequest("POST", "/v1/callbacks", strings.NewReader(`{"url":"u"}`))
		if rec := send(s.Handler(), r); rec.Code != 503 {
			t.Fatalf("status %d", rec.Code)
		}
		r = httptest.NewRequest("GET", "/v1/callbacks", nil)
		r.Header.Set("Authorization", "Bearer guess")
		s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	lines := strings.Count(log.String(), "\n") - strings.Count(log.String(), `"status":401`)
	if lines == 0 || lines > 5*(2+int(time.Since(began).Seconds())) {
		t.Errorf("%d lines for %d refusals in %s", lines, 2*requests, time.Since(began))
	}
}

// TestTrustedProxies checks that the log has the client's address from the header of a trusted proxy.
func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	s, log := newServer(t, &backend{}, web.Options{TrustedProxies: []string{"192.0.2.0/24"}})
	r := httptest.NewRequest("GET", "/v1/callbacks", nil) // httptest sends from 192.0.2.1
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	send(s.Handler(), r)
	if text := log.String(); !strings.Contains(text, `"remote":"203.0.113.9"`) {
		t.Errorf("the header of a trusted proxy is ignored: %s", text)
	}
	a, err := newAPI(&backend{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := web.Options{API: a, Health: &backend{}, TrustedProxies: []string{"nonsense"}}
	if _, err := web.New(o); err == nil {
		t.Error("an invalid address of a proxy is accepted")
	}
}

// TestInvalidKeysCountByAddress (case 62) checks that invalid keys count by the address of the connection. A
// header can only change the address if a trusted proxy has set it.
func TestInvalidKeysCountByAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trusted, headers []string
		slow             bool
	}{
		{nil, []string{"X-Forwarded-For", "X-Real-Ip"}, true},
		{[]string{"192.0.2.0/24"}, []string{"X-Forwarded-For"}, false},
		// A proxy may have forwarded the client's value of X-Real-Ip.
		{[]string{"192.0.2.0/24"}, []string{"X-Real-Ip"}, true},
	} {
		s, _ := newServer(t, &backend{}, web.Options{TrustedProxies: c.trusted})
		slow := false
		for i := range 40 {
			r := httptest.NewRequest("GET", "/v1/callbacks", nil) // httptest sends from 192.0.2.1
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

// TestMetrics checks the metrics of requests. The path of an unknown route must not become a label.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, &backend{}, web.Options{})
	send(s.Handler(), httptest.NewRequest("POST", "/v1/callbacks", strings.NewReader(`{"url":"u"}`)))
	send(s.Handler(), httptest.NewRequest("GET", "/any-path-of-a-stranger", nil))
	rec := httptest.NewRecorder()
	s.OpsHandler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	text := rec.Body.String()
	for _, want := range []string{
		`dispatcher_http_requests_total{code="202",route="POST /v1/callbacks"} 1`,
		`dispatcher_http_requests_total{code="404",route="unmatched"} 1`,
		`dispatcher_http_request_duration_seconds_count{route="POST /v1/callbacks"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(text, "stranger") {
		t.Error("a path became a label")
	}
}

// TestTokensOfLinksAreNotLogged checks that the log hides the token in the path of a merchant's link.
func TestTokensOfLinksAreNotLogged(t *testing.T) {
	t.Parallel()
	s, log := newServer(t, &backend{}, web.Options{})
	for _, path := range []string{
		"/view/t0ken", "/view/t0ken/", "/view/t0ken/callbacks/cb_1", "/view/t0ken?lang=en", "/view/%74oken",
		"/view/" + strings.Repeat("t0ken", 100),
	} {
		send(s.Handler(), httptest.NewRequest("GET", path, nil))
	}
	text := log.String()
	if strings.Contains(text, "t0ken") || !strings.Contains(text, `"/view/***/callbacks/cb_1"`) {
		t.Errorf("the log:\n%s", text)
	}
}

// declare opens a connection and sends a request that declares a body, but not the body. It returns after the
// server has begun to wait for the body.
func declare(t *testing.T, s *web.Server, path string, bytes int64) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	const head = "POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n" +
		"Expect: 100-continue\r\n\r\n"
	if _, err := fmt.Fprintf(conn, head, path, adminKey, bytes); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	// net/http sends this when a handler first reads the body.
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
		if line, err := r.ReadString('\n'); err != nil || line != want {
			t.Fatalf("%s: %q, %v, want %q", path, line, err, want)
		}
	}
	return conn, r
}

// TestDeclaredBodiesNeedNoMemory (case 65) checks that memory for a declared body is not allocated before the
// body arrives, and that other requests are served meanwhile.
func TestDeclaredBodiesNeedNoMemory(t *testing.T) {
	s, _ := newServer(t, &backend{}, web.Options{})
	run(t, s)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const silent, declared = 60, 16 << 20
	for i := range silent {
		declare(t, s, []string{"/v1/callbacks/batch", "/v1/reconcile/compare"}[i%2], declared)
	}
	if grown := heap() - before; grown > silent*declared/10 {
		t.Errorf("%d requests without a body use %d MiB", silent, grown>>20)
	}
	if status := post(s, "/v1/callbacks", `{"url":"u"}`); status != 202 {
		t.Errorf("another request: %d", status)
	}
}
