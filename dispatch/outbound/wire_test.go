package outbound

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

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
