package outbound

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestAnswers sends a request for each answer of the transcript. The transcript includes the table of
// statuses.
func TestAnswers(t *testing.T) {
	t.Parallel()
	elsewhere := serveAnswer(t, answerOK)
	var answer atomic.Value
	srv := serveRaw(t, func(c *net.TCPConn, _ int) {
		if _, err := readRequest(c); err == nil {
			io.WriteString(c, answer.Load().(string))
		}
	})
	client := newTestClient(t, Options{})
	r := newRequest(srv.URL)
	transcript.Run(t, "testdata/answers.txt", func(line string) string {
		command, rest, _ := strings.Cut(line, " ")
		switch command {
		case "rule", "poll":
			r.Poll, r.Success = command == "poll", store.Success{Name: rest}
			if r.Poll || strings.HasPrefix(rest, "{") {
				r.Success = store.Success{Rule: store.JSONText(rest)}
			}
			return ""
		case "url":
			r.URL = rest
			return ""
		case "query":
			r.URL = srv.URL + "?" + rest
			return ""
		case "header":
			name, value, _ := strings.Cut(rest, ": ")
			r.Headers = append(r.Headers, store.Header{Name: name, Value: value})
			return ""
		}
		answer.Store(rawAnswer(t, strings.ReplaceAll(line, "http://elsewhere/", elsewhere.URL)))
		before := srv.conns.Load()
		resp := client.Send(t.Context(), r)
		client.CloseIdle()
		sent := srv.conns.Load() - before
		isValid := resp.Class != store.ClassInvalidRequest
		if isValid != (sent == 1) || elsewhere.conns.Load() != 0 {
			t.Errorf("%s: %d connections, and %d to elsewhere", line, sent, elsewhere.conns.Load())
		}
		return strings.ReplaceAll(describe(t, resp), elsewhere.URL, "http://elsewhere/")
	})
}

var answerHeader = regexp.MustCompile(`^ \[([A-Za-z-]+: .*?)\]( |$)`)

// rawAnswer returns the bytes that the receiver sends for a line of the transcript.
func rawAnswer(t *testing.T, line string) string {
	if raw, ok := strings.CutPrefix(line, "raw "); ok {
		return raw
	}
	how, short := "", 0
	if line[0] > '9' {
		how, line, _ = strings.Cut(line, " ")
	}
	head, rest := "HTTP/1.1 "+line[:3]+" Some\r\n", line[3:]
	for m := answerHeader.FindStringSubmatch(rest); m != nil; m = answerHeader.FindStringSubmatch(rest) {
		head, rest = head+m[1]+"\r\n", " "+strings.TrimPrefix(rest, m[0])
	}
	body := strings.TrimPrefix(rest, " ")
	switch how {
	case "cut":
		short = 100
	case "gzip", "half":
		head += "Content-Encoding: gzip\r\n"
		body = string(gzipped(t, []byte(body)))
		if how == "half" {
			body = body[:len(body)-6]
		}
	}
	return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body)+short, body)
}

// describe returns the result of an attempt as text: class, flags and values, then the rule, the body and the
// headers.
func describe(t *testing.T, r Response) string {
	t.Helper()
	checkSound(t, r)
	text := fmt.Sprintf("%s %s", r.Class, r.Outcome)
	for _, flag := range []struct {
		is   bool
		name string
	}{
		{!r.Charged, "uncharged"}, {r.TimedOut, "timed out"}, {r.Stale, "stale"},
		{r.LocalFailure, "local failure"}, {r.Permanent, "permanent"}, {r.ResponseTruncated, "truncated"},
	} {
		if flag.is {
			text += ", " + flag.name
		}
	}
	for _, value := range []struct {
		name  string
		value any
	}{
		{"status", r.Status}, {"retry after", r.RetryAfter},
		{"defer after", r.DeferAfter}, {"max defers", r.MaxDefers},
		{"poll state", r.PollState}, {"max errors", r.MaxErrors},
		{"location", r.Location}, {"error", r.Error},
	} {
		if v := fmt.Sprint(value.value); v != "" && v != "0" && v != "0s" {
			text += fmt.Sprintf(", %s %s", value.name, v)
		}
	}
	if r.Rule != nil {
		text += fmt.Sprintf("\n%s: %s | %s", r.Rule.Name, r.Rule.Expected, r.Rule.Saw)
	}
	if r.ResponseBody != "" {
		text += fmt.Sprintf("\n%q, %d bytes", parse.Cut(r.ResponseBody, 110), len(r.ResponseBody))
	}
	for _, h := range r.ResponseHeaders {
		text += fmt.Sprintf("\n[%s: %q, %d bytes]", h.Name, parse.Cut(h.Value, 60), len(h.Value))
	}
	return text
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
