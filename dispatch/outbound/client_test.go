package outbound

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A recorder is a receiver that keeps what it got.
type recorder struct {
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	rec.mu.Lock()
	rec.requests, rec.bodies = append(rec.requests, r), append(rec.bodies, string(b))
	rec.mu.Unlock()
	w.Header().Set("X-Request-Id", "req-1")
	w.Header().Set("Server", "recorder")
	w.Header().Set("X-Other", "not kept")
	io.WriteString(w, "success")
}

func (rec *recorder) last() (*http.Request, string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.requests[len(rec.requests)-1], rec.bodies[len(rec.bodies)-1]
}

func TestSend(t *testing.T) {
	t.Parallel()
	rec := new(recorder)
	srv := httptest.NewServer(rec)
	defer srv.Close()
	c := newTestClient(t, Options{Version: "1.2.3"})
	r := newRequest(srv.URL + "/a%0d%0ab?token=abc&n=%20")
	r.Number = 7
	r.Secrets = signtest.Secrets(signtest.Shortest(), []byte("the secret before the rotation"))
	r.Headers = []store.Header{{Name: "X-Shop", Value: "7"}, {Name: "x-shop", Value: "8"}, {Name: "Idempotency-Key", Value: "k"}}
	resp := c.Send(t.Context(), r)
	okay().check(t, resp)
	if resp.ResponseBody != "success" || resp.ResponseTruncated || resp.Rule != nil || resp.KeyID != "" {
		t.Errorf("response: %+v", resp)
	}

	got, body := rec.last()
	if body != string(r.Body) || got.Method != "POST" || got.ContentLength != int64(len(body)) || len(got.TransferEncoding) > 0 {
		t.Errorf("got %s %q, length %d, %v", got.Method, body, got.ContentLength, got.TransferEncoding)
	}
	if got.RequestURI != "/a%0d%0ab?token=abc&n=%20" {
		t.Errorf("address was changed: %s", got.RequestURI)
	}
	for name, pattern := range map[string]string{
		"webhook-id": `^cb_01JD0000000000000000000001$`, "webhook-timestamp": `^\d{10}$`, "webhook-attempt": `^7$`,
		"webhook-signature": `^v1,\S{44} v1,\S{44}$`, "traceparent": `^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`,
		"user-agent": `^dispatcher/1\.2\.3$`, "content-type": `^application/json$`, "idempotency-key": "^k$",
	} {
		if v := strings.Join(got.Header[http.CanonicalHeaderKey(name)], "|"); !regexp.MustCompile(pattern).MatchString(v) {
			t.Errorf("%s: %q does not match %s", name, v, pattern)
		}
	}
	if v := got.Header["X-Shop"]; len(v) != 2 || v[0] != "7" || v[1] != "8" {
		t.Errorf("X-Shop: %q", v)
	}
	if v := got.Header.Get("Accept-Encoding"); v != "" {
		t.Errorf("Accept-Encoding %q was sent", v)
	}
	for _, secret := range r.Secrets {
		if err := sign.Verify("", []sign.Secret{secret}, got.Header, nil, []byte(body), 0); err != nil {
			t.Errorf("Verify: %v", err)
		}
	}
	wantHeaders := []string{"content-type", "date", "server", "x-request-id"}
	for i, h := range resp.ResponseHeaders {
		if i >= len(wantHeaders) || h.Name != wantHeaders[i] {
			t.Errorf("response headers: %v", resp.ResponseHeaders)
			break
		}
	}
}

func TestSendMethodsWithoutBody(t *testing.T) {
	t.Parallel()
	rec := new(recorder)
	srv := httptest.NewServer(rec)
	defer srv.Close()
	c := newTestClient(t, Options{})
	for _, method := range []string{"GET", "HEAD", "DELETE", "OPTIONS", "POST", "PUT", "PATCH", "PURGE"} {
		r := newRequest(srv.URL)
		r.Method, r.Body, r.Secrets = method, nil, nil
		r.Headers = []store.Header{{Name: "Idempotency-Key", Value: "k"}}
		okay().check(t, c.Send(t.Context(), r))
		got, body := rec.last()
		if got.Method != method || body != "" || got.ContentLength != 0 || len(got.TransferEncoding) > 0 || got.Header.Get("Content-Type") != "" {
			t.Errorf("%s arrived as %s with length %d, %v, %v", method, got.Method, got.ContentLength, got.TransferEncoding, got.Header)
		}
		if got.Header.Get("Idempotency-Key") != "k" {
			t.Errorf("%s: the caller's header is lost", method)
		}
		if _, signed := got.Header["Webhook-Signature"]; signed || got.Header.Get("webhook-id") == "" {
			t.Errorf("%s without a secret: %v", method, got.Header)
		}
	}
	r := newRequest(srv.URL)
	r.Method = "DELETE"
	c.Send(t.Context(), r)
	if got, body := rec.last(); body != string(r.Body) || got.ContentLength != int64(len(body)) {
		t.Errorf("DELETE with a body arrived with %q, length %d", body, got.ContentLength)
	}
}

func TestSendRefusesWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Request){
		"url":          func(r *Request) { r.URL = "http://shop.example/\r\nX: 1" },
		"scheme":       func(r *Request) { r.URL = "ftp://shop.example/" },
		"user":         func(r *Request) { r.URL = "http://user:hunter22@shop.example/" },
		"method":       func(r *Request) { r.Method = "PO ST" },
		"connect":      func(r *Request) { r.Method = "CONNECT" },
		"header name":  func(r *Request) { r.Headers = []store.Header{{Name: "X A", Value: "1"}} },
		"header value": func(r *Request) { r.Headers = []store.Header{{Name: "X-A", Value: "1\r\nX-B: 2"}} },
		"our header":   func(r *Request) { r.Headers = []store.Header{{Name: "Webhook-Id", Value: "forged"}} },
		"host header":  func(r *Request) { r.Headers = []store.Header{{Name: "Host", Value: "evil.example"}} },
		"content type": func(r *Request) { r.ContentType = "text/plain\r\nX-B: 2" },
		"rule":         func(r *Request) { r.Success.Name = "no such rule" },
		"rule's text":  func(r *Request) { r.Success.Rule = `{"status":[99]}` },
	} {
		r := sendTo(t, roundTrip(func(*http.Request) (*http.Response, error) {
			t.Errorf("%s: a request was sent", name)
			return stubResponse(200, nil, ""), nil
		}), change)
		want{class: store.ClassInvalidRequest}.check(t, r)
		if strings.Contains(r.Error, "hunter22") {
			t.Errorf("%s: %s", name, r.Error)
		}
	}
}

func TestPanicIsAnAttempt(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := newTestClient(t, Options{
		Logger:    slog.New(slog.NewTextHandler(&log, nil)),
		Transport: roundTrip(func(*http.Request) (*http.Response, error) { panic("boom") }),
	})
	r := c.Send(t.Context(), newRequest("https://shop.example/"))
	want{class: store.ClassPanic, outcome: store.AttemptUnknown, uncharged: true}.check(t, r)
	if !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), "client_test.go") {
		t.Errorf("the log does not show the stack: %s", log.String())
	}
}

// TestTimeouts runs on a fake clock: the transport stands still until its context ends.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	hang := roundTrip(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	for _, timeout := range []time.Duration{100 * time.Millisecond, time.Minute, 0} {
		synctest.Test(t, func(t *testing.T) {
			c := newTestClient(t, Options{Transport: hang})
			r := newRequest("https://shop.example/")
			r.Timeout = timeout
			resp := c.Send(t.Context(), r)
			want{class: store.ClassTimeoutHeaders, outcome: store.AttemptUnknown, timedOut: true}.check(t, resp)
			if timeout == 0 {
				timeout = DefaultTimeout
			}
			if took := resp.EndedAt.Sub(resp.StartedAt); took != timeout || resp.Timings.Total != milliseconds(timeout) {
				t.Errorf("took %v (%v ms), want %v", took, resp.Timings.Total, timeout)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		resp := newTestClient(t, Options{Transport: hang}).Send(ctx, newRequest("https://shop.example/"))
		want{class: store.ClassInterrupted, outcome: store.AttemptUnknown, uncharged: true}.check(t, resp)
		// A deadline of the caller's is the attempt's, not a shutdown.
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp = newTestClient(t, Options{Transport: hang}).Send(ctx, newRequest("https://shop.example/"))
		want{class: store.ClassTimeoutHeaders, outcome: store.AttemptUnknown, timedOut: true}.check(t, resp)
	})
}

func TestNewRefusesOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{MaxIdlePerHost: -1}, {Version: "1\r\n2"}} {
		if _, err := New(o); err == nil {
			t.Errorf("New(%+v) is taken", o)
		}
	}
}

func TestContentTypeOfTheCallersHeadersWins(t *testing.T) {
	t.Parallel()
	got, _, resp := signed(t, func(r *Request) {
		r.Headers = []store.Header{{Name: "content-type", Value: "application/xml"}}
	})
	if values := got.Header["Content-Type"]; len(values) != 1 || values[0] != "application/xml" {
		t.Errorf("arrived as %q", values)
	}
	shown := 0
	for _, h := range resp.RequestHeaders {
		if strings.EqualFold(h.Name, "content-type") {
			shown++
		}
	}
	if shown != 1 {
		t.Errorf("shown %d times in %v", shown, resp.RequestHeaders)
	}
}

// TestAFailureLeavesOtherConnectionsAlone: closing idle connections after an error must not reach those of other
// destinations.
func TestAFailureLeavesOtherConnectionsAlone(t *testing.T) {
	t.Parallel()
	srv := serveRequests(t, func(c *net.TCPConn, _, _ int) { io.WriteString(c, answerOK) })
	dead := serveRaw(t, func(c *net.TCPConn, _ int) { reset(c) })
	c := newTestClient(t, Options{})
	for range 5 {
		c.Send(t.Context(), newRequest(srv.URL))
		if r := c.Send(t.Context(), newRequest(dead.URL)); r.Class != store.ClassConnReset {
			t.Errorf("the dead destination: %s", r.Class)
		}
	}
	if n := srv.conns.Load(); n != 1 {
		t.Errorf("%d connections were opened to the healthy destination, want 1", n)
	}
}

func TestFreshUsesANewConnection(t *testing.T) {
	t.Parallel()
	srv := serveRequests(t, func(c *net.TCPConn, _, _ int) { io.WriteString(c, answerOK) })
	c := newTestClient(t, Options{})
	r := newRequest(srv.URL)
	// send makes one attempt, which must be the n-th connection's.
	send := func(n int32, opens bool) {
		t.Helper()
		got := c.Send(t.Context(), r)
		okay().check(t, got)
		if srv.conns.Load() != n || (got.Timings.Connect > 0) != opens {
			t.Errorf("%d connections, want %d; connecting took %v ms", srv.conns.Load(), n, got.Timings.Connect)
		}
	}
	send(1, true)
	send(1, false)
	r.Fresh = true
	send(2, true)
	send(3, true)
	c.CloseIdle()
	r.Fresh = false
	send(4, true)
}

// TestWhatIsCompiledIsKept: rules and rules of polls.
func TestWhatIsCompiledIsKept(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, Options{Transport: answerWith(200, nil, "")})
	s := store.Success{Rule: `{"status":[200]}`}
	first, name := c.ruleOf(&s)
	again, mine := c.ruleOf(&store.Success{Name: "mine", Rule: s.Rule})
	if first == nil || first != again || name != rule.CustomName || mine != "mine" {
		t.Errorf("the rule %q, %q was compiled twice", name, mine)
	}
	s.Rule = `{"until":{"success":[{"status":[200]}]}}`
	poll, name := c.pollRuleOf(&s)
	pollAgain, mine := c.pollRuleOf(&store.Success{Name: "mine", Rule: s.Rule})
	if poll == nil || poll != pollAgain || name != "until" || mine != "mine" {
		t.Errorf("the rule %q, %q of a poll was compiled twice", name, mine)
	}
}
