package outbound

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestPollsWithoutAnswer: nothing is judged, and the budget is told all the same.
func TestPollsWithoutAnswer(t *testing.T) {
	t.Parallel()
	reached := want{class: store.ClassConnReset, outcome: store.AttemptUnknown}
	closed := serveRaw(t, func(c *net.TCPConn, _ int) {
		readRequest(c)
		reset(c)
	})
	panics := roundTrip(func(*http.Request) (*http.Response, error) { panic("boom") })
	for _, c := range []struct {
		url  string
		rt   http.RoundTripper
		want want
	}{
		{"https://shop.example/", panics, want{class: store.ClassPanic, outcome: store.AttemptUnknown, uncharged: true}},
		{closed.URL, nil, reached},
		{"ftp://shop.example/", nil, want{class: store.ClassInvalidRequest}},
	} {
		r := newRequest(c.url)
		r.Poll, r.Success.Rule = true, `{"until":{"success":[{"status":[200]}]},"error_budget":5}`
		got := newTestClient(t, Options{Transport: c.rt}).Send(t.Context(), r)
		c.want.check(t, got)
		if got.Verdict != "" || got.MaxErrors != 5 || got.MaxDefers != 0 || got.Rule != nil {
			t.Errorf("verdict %q, budget %d, %+v", got.Verdict, got.MaxErrors, got.Rule)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	transcript.Run(t, "testdata/retryafter.txt", func(line string) string {
		value, date, _ := strings.Cut(line, " | ")
		wait, ok := retryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, now)
		return fmt.Sprintf("%v, heeded %v", wait, ok)
	})
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "Fri, 31 Dec 9999 23:59:59 GMT")
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", "")
	f.Fuzz(func(t *testing.T, value, date string) {
		got, ok := retryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, time.Unix(1763700000, 0))
		if got < 0 || got > maxRetryAfter || !ok && got != 0 {
			t.Fatalf("%q %q: %v, %v", value, date, got, ok)
		}
	})
}
