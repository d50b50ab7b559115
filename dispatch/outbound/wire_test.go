package outbound

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestStatusTable(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, Options{})
	table := map[int]store.Class{
		99: store.ClassProtocol, 101: store.ClassProtocol, 300: store.ClassRedirect, 304: store.ClassRedirect,
		410: store.ClassGone, 413: store.ClassHTTP413, 429: store.ClassThrottled, 423: store.ClassHTTP4xx,
		600: store.ClassProtocol, 999: store.ClassProtocol,
	}
	for _, s := range []int{301, 302, 303, 307, 308} {
		table[s] = store.ClassRedirect
	}
	for _, s := range []int{400, 401, 402, 403, 404, 405, 408, 409, 415, 422, 425, 451, 499} {
		table[s] = store.ClassHTTP4xx
	}
	for _, s := range []int{500, 501, 502, 503, 504, 505, 599} {
		table[s] = store.ClassHTTP5xx
	}
	for status, class := range table {
		srv := serveAnswer(t, fmt.Sprintf("HTTP/1.1 %03d Some\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno", status))
		r := c.Send(t.Context(), newRequest(srv.URL))
		answeredWith(status, class).check(t, r)
		if r.Rule == nil || r.Rule.Saw != "status "+strconv.Itoa(status) || r.RetryAfter != 0 {
			t.Errorf("%d: rule %+v, retry after %v", status, r.Rule, r.RetryAfter)
		}
		if n := srv.conns.Load(); n != 1 {
			t.Errorf("%d: %d connections", status, n)
		}
	}
	for _, status := range []int{200, 201, 202, 204, 226, 299} {
		srv := serveAnswer(t, fmt.Sprintf("HTTP/1.1 %d Some\r\nContent-Length: 0\r\n\r\n", status))
		r := c.Send(t.Context(), newRequest(srv.URL))
		w := okay()
		w.status = status
		w.check(t, r)
	}
}

func TestRetryAfterOfAnswers(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, Options{})
	for _, x := range []struct {
		status    int
		value     string
		class     store.Class
		uncharged bool
		wait      time.Duration
	}{
		{429, "7", store.ClassThrottled, false, 7 * time.Second},
		{503, "7", store.ClassHTTP5xx, false, 7 * time.Second},
		{423, "7", store.ClassReceiverBusy, true, 7 * time.Second},
		{423, "0", store.ClassReceiverBusy, true, 0}, {423, "soon", store.ClassHTTP4xx, false, 0},
		{423, "-1", store.ClassHTTP4xx, false, 0}, {429, "-1", store.ClassThrottled, false, 0},
		{503, "1.5", store.ClassHTTP5xx, false, 0}, {500, "7", store.ClassHTTP5xx, false, 0},
		{301, "7", store.ClassRedirect, false, 0},
	} {
		srv := serveAnswer(t, fmt.Sprintf("HTTP/1.1 %d Some\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", x.status, x.value))
		r := c.Send(t.Context(), newRequest(srv.URL))
		w := answeredWith(x.status, x.class)
		w.uncharged = x.uncharged
		w.check(t, r)
		if r.RetryAfter != x.wait {
			t.Errorf("%d Retry-After %s: %v, want %v", x.status, x.value, r.RetryAfter, x.wait)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := serveAnswer(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	c := newTestClient(t, Options{})
	for _, status := range []int{301, 302, 303, 307, 308} {
		for location, shown := range map[string]string{
			elsewhere.URL + "x?token=abc": elsewhere.URL + "x?token=***",
			"http://169.254.169.254/":     "http://169.254.169.254/",
			"//user:pw@evil.example/":     "//evil.example/",
			"http://[bad":                 "(unreadable url)",
			"/relative":                   "/relative",
			"":                            "",
		} {
			t.Run(fmt.Sprintf("case 21: %d to %q", status, location), func(t *testing.T) {
				srv := serveAnswer(t, fmt.Sprintf(
					"HTTP/1.1 %d Some\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", status, location))
				r := c.Send(t.Context(), newRequest(srv.URL))
				answeredWith(status, store.ClassRedirect).check(t, r)
				if r.Location != shown {
					t.Errorf("location %q, want %q", r.Location, shown)
				}
				if n := srv.conns.Load(); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
		}
	}
	t.Run("case 22: no signature goes to another host", func(t *testing.T) {
		if n := elsewhere.conns.Load(); n != 0 {
			t.Errorf("the other host got %d connections", n)
		}
	})
}

func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, Options{})
	large := want{class: store.ClassHeadersTooLarge}
	flood := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n", 5000)
	for _, x := range []struct {
		name, answer string
		want         want
	}{
		{"garbage", "SSH-2.0-OpenSSH_9.2\r\n\r\n", want{class: store.ClassProtocol}},
		{"not a status", "HTTP/1.1 abc OK\r\n\r\n", want{class: store.ClassProtocol}},
		{"four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", want{class: store.ClassProtocol}},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", want{class: store.ClassProtocol}},
		{"bad length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", want{class: store.ClassProtocol}},
		{"bad header line", "HTTP/1.1 200 OK\r\nno colon here\r\nContent-Length: 0\r\n\r\n", want{class: store.ClassProtocol}},
		{"a space in a header's name", "HTTP/1.1 200 OK\r\nX Bad: 1\r\nContent-Length: 0\r\n\r\n",
			okay()},
		{"a header on two lines", "HTTP/1.1 200 OK\r\nX-Long: a\r\n b\r\nContent-Length: 0\r\n\r\n",
			okay()},
		{"case 69: large header", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 70<<10) + "\r\n\r\n", large},
		{"case 69: many headers", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: aaaaaaaaaa\r\n", 6000), large},
		{"case 69: flood of early hints", flood + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", large},
		{"nothing", "", want{class: store.ClassConnReset, outcome: store.AttemptUnknown}},
		{"half a status line", "HTTP/1.1 2", want{class: store.ClassProtocol}},
		{"half a header", "HTTP/1.1 200 OK\r\nContent-", want{class: store.ClassProtocol}},
		{"half the headers", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", want{class: store.ClassConnReset, outcome: store.AttemptUnknown}},
		{"a few early hints", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			okay()},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nsuccess", okay()},
	} {
		srv := serveAnswer(t, x.answer)
		r := c.Send(t.Context(), newRequest(srv.URL))
		t.Run(x.name, func(t *testing.T) { x.want.check(t, r) })
		if strings.Contains(r.Error, "OpenSSH") {
			t.Errorf("the error shows the banner: %s", r.Error)
		}
	}
	r := c.Send(t.Context(), newRequest("http://127.0.0.1:1/"))
	want{class: store.ClassConnectRefused}.check(t, r)
	if strings.Contains(r.Error, "127.0.0.1") {
		t.Errorf("the error shows the address: %s", r.Error)
	}
}

// TestSlowAnswers: nothing at all, headers byte by byte, a body byte by byte. It runs on a fake clock.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	const okHead = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"
	headers := want{class: store.ClassTimeoutHeaders, outcome: store.AttemptUnknown, timedOut: true}
	body := want{class: store.ClassTimeoutBody, answered: true, timedOut: true, status: 200}
	decided := okay()
	decided.timedOut = true
	for _, x := range []struct {
		name string
		// head is sent at once, drips byte by byte.
		head, drips string
		// rule is a success rule's name, or the rule of a poll.
		rule    string
		want    want
		verdict rule.Verdict
	}{
		{"silence", "", "", rule.HTTP2xx, headers, ""},
		{"headers drip", "", "HTTP/1.1 200 OK\r\nX-Drip: " + strings.Repeat("a", 200), rule.HTTP2xx, headers, ""},
		{"body drips, status decides", okHead, strings.Repeat("a", 400), rule.HTTP2xx, decided, ""},
		{"body drips, body decides", okHead + "success", strings.Repeat(" ", 400), rule.BodySuccess, body, ""},
		{"body drips on 500", strings.Replace(okHead, "200", "500", 1), strings.Repeat("a", 400), rule.BodySuccess,
			want{class: store.ClassHTTP5xx, answered: true, timedOut: true, status: 500}, ""},
		{"poll, the status would decide", okHead, "{",
			`{"until":{"success":[{"status":[200]}]}}`, body, rule.VerdictError},
		{"poll, the body would decide", okHead + `{"a":1}`, " ",
			`{"until":{"failure":[{"pointer":"/a","eq":1}]}}`, body, rule.VerdictError},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, receiver := newConnectedClient(t)
				var dripping sync.WaitGroup
				dripping.Go(func() { drip(receiver, x.head, x.drips) })
				r := newRequest("http://shop.example/")
				r.Timeout, r.Success.Name = time.Second, x.rule
				if r.Poll = x.verdict != ""; r.Poll {
					r.Success = store.Success{Rule: store.JSONText(x.rule)}
				}
				got := c.Send(t.Context(), r)
				dripping.Wait() // the attempt has closed the connection
				x.want.check(t, got)
				if took := got.EndedAt.Sub(got.StartedAt); took != r.Timeout {
					t.Errorf("took %v with a timeout of %v", took, r.Timeout)
				}
				if got.Verdict != x.verdict || r.Poll && (got.Rule == nil || got.Rule.Saw != "truncated: the body ended early") {
					t.Errorf("verdict %q, %+v", got.Verdict, got.Rule)
				}
			})
		})
	}
}

// drip reads a request, sends the head at once and the text byte by byte, and then waits for the end of the
// connection.
func drip(c net.Conn, head, text string) {
	readRequest(c)
	io.WriteString(c, head)
	for i := range text {
		if _, err := c.Write([]byte{text[i]}); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	io.Copy(io.Discard, c)
}

func TestTruncatedBody(t *testing.T) {
	t.Parallel()
	srv := serveAnswer(t, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsuccess")
	c := newTestClient(t, Options{})
	r := newRequest(srv.URL)
	got := c.Send(t.Context(), r)
	okay().check(t, got)
	if !got.ResponseTruncated || got.ResponseBody != "success" {
		t.Errorf("body %q, truncated %v", got.ResponseBody, got.ResponseTruncated)
	}
	r.Success.Name = rule.BodySuccess
	got = c.Send(t.Context(), r)
	answeredWith(200, store.ClassRuleMismatch).check(t, got)
	if got.Rule == nil || !strings.HasPrefix(got.Rule.Saw, "truncated") {
		t.Errorf("rule %+v", got.Rule)
	}
}

func TestKeptTextIsClean(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"line\n\ttab":             "line\n\ttab",
		"a\x00b\x1b[31mc\x7f\r\n": "ab[31mc\n",
		"\xff\xfe中文\xe4":          "\uFFFD\uFFFD中文\uFFFD",
		"a\u202eb\u2028c\u0085d":  "abcd",
		strings.Repeat("é", 3000): strings.Repeat("é", 2048),
	} {
		r := sendTo(t, roundTrip(func(*http.Request) (*http.Response, error) {
			return stubResponse(500, http.Header{"Server": {body}}, body), nil
		}), func(*Request) {})
		if r.ResponseBody != want {
			t.Errorf("%q is kept as %q, want %q", parse.Cut(body, 40), parse.Cut(r.ResponseBody, 40), parse.Cut(want, 40))
		}
		if r.ResponseTruncated != (len(body) > MaxKeptBytes) {
			t.Errorf("%q: truncated %v", parse.Cut(body, 40), r.ResponseTruncated)
		}
		for _, h := range r.ResponseHeaders {
			if strings.ContainsAny(h.Value, "\x00\r\n\x1b") || len(h.Value) > maxKeptHeader {
				t.Errorf("header %q", parse.Cut(h.Value, 40))
			}
		}
	}
}

// A dyingBody ends the context that it is read under.
type dyingBody struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func (b dyingBody) Read([]byte) (int, error) {
	b.cancel()
	return 0, b.ctx.Err()
}

func (dyingBody) Close() error { return nil }

func TestInterruptedWithinTheBody(t *testing.T) {
	t.Parallel()
	const poll = `{"until":{"success":[{"status":[200]}]},"hold_if":[{"status":[429]}]}`
	interrupted := want{class: store.ClassInterrupted, outcome: store.AttemptUnknown, uncharged: true, answered: true, status: 200}
	for _, x := range []struct {
		status int
		// rule is a success rule's name, or the rule of a poll.
		rule    string
		want    want
		verdict rule.Verdict
	}{
		{200, rule.BodySuccess, interrupted, ""},
		{200, rule.HTTP2xx, okay(), ""},
		{500, rule.BodySuccess, answeredWith(500, store.ClassHTTP5xx), ""},
		{200, poll, interrupted, ""},
		{429, poll, want{class: store.ClassReceiverBusy, uncharged: true, answered: true, status: 429}, rule.VerdictHold},
		{500, poll, answeredWith(500, store.ClassHTTP5xx), rule.VerdictError},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		c := newTestClient(t, Options{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			body := dyingBody{r.Context(), cancel}
			return &http.Response{StatusCode: x.status, Header: http.Header{}, Body: body, ContentLength: 7}, nil
		})})
		r := newRequest("https://shop.example/")
		r.Success.Name = x.rule
		if r.Poll = x.rule == poll; r.Poll {
			r.Success = store.Success{Rule: poll}
		}
		got := c.Send(ctx, r)
		t.Run(fmt.Sprintf("%d %s", x.status, x.rule), func(t *testing.T) { x.want.check(t, got) })
		if got.Verdict != x.verdict || r.Poll && got.MaxErrors != rule.DefaultErrorBudget {
			t.Errorf("%d: verdict %q, budget %d", x.status, got.Verdict, got.MaxErrors)
		}
	}
}
