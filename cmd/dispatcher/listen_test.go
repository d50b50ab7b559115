package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
)

// post sends a request to a receiver and returns its answer.
func post(t *testing.T, r *receiver, body string, header http.Header) (int, string) {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/notify?x=1", strings.NewReader(body))
	req.Header = header
	rec := httptest.NewRecorder()
	r.ServeHTTP(rec, req)
	answer, err := io.ReadAll(rec.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Code, string(answer)
}

func newReceiver(t *testing.T, term *terminal, cmd listenCommand) *receiver {
	t.Helper()
	if cmd.Addr == "" {
		cmd.Addr = "127.0.0.1:0"
	}
	if cmd.Delay == "" {
		cmd.Delay = "0s"
	}
	r, err := cmd.receiver(&term.console)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestListenAnswersInSequencePerID(t *testing.T) {
	t.Parallel()
	term := newTerminal()
	r := newReceiver(t, term, listenCommand{Respond: []string{"500", "503", "200"}, Body: "success"})
	for _, step := range []struct {
		id     string
		status int
		answer string
	}{
		{"a", 500, "Internal Server Error"}, {"b", 500, "Internal Server Error"}, {"a", 503, "Service Unavailable"},
		{"a", 200, "success"}, {"a", 200, "success"}, {"b", 503, "Service Unavailable"}, {"", 500, "Internal Server Error"},
	} {
		status, answer := post(t, r, "{}", http.Header{"Webhook-Id": {step.id}})
		if status != step.status || answer != step.answer {
			t.Errorf("%q was answered with %d %q, not %d %q", step.id, status, answer, step.status, step.answer)
		}
	}
}

func TestListenVerifiesSignatures(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{7}, 32)
	term := newTerminal()
	r := newReceiver(t, term, listenCommand{Respond: []string{"200"}, Body: "ok", Secret: []string{outbound.FormatSecret(secret)}})
	now := time.Now()
	signature, err := outbound.Sign("cb_1", now, []byte("paid"), [][]byte{secret})
	if err != nil {
		t.Fatal(err)
	}
	signed := http.Header{"Webhook-Id": {"cb_1"}, "Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)}, "Webhook-Signature": {signature}}
	if status, _ := post(t, r, "paid", signed); status != 200 {
		t.Errorf("a good signature was answered with %d", status)
	}
	if status, _ := post(t, r, "paid twice", signed); status != http.StatusUnauthorized {
		t.Errorf("a changed body was answered with %d", status)
	}
	if status, _ := post(t, r, "paid", http.Header{}); status != http.StatusUnauthorized {
		t.Errorf("no signature was answered with %d", status)
	}
	shown := term.stdout.String()
	for _, want := range []string{"signature ok", "signature wrong: no signature matches", "signature headers are missing"} {
		if !strings.Contains(shown, want) {
			t.Errorf("does not say %q:\n%s", want, shown)
		}
	}
}

func TestListenIsSafeForTheTerminal(t *testing.T) {
	t.Parallel()
	term := newTerminal()
	r := newReceiver(t, term, listenCommand{Respond: []string{"200"}, Body: "ok", Headers: true})
	post(t, r, "a\x1b[2Jb\nc"+strings.Repeat("x", 3*maxShown), http.Header{"Webhook-Id": {"\x1b]0;t\x07"}, "X-Evil": {"\x1b[31m"}})
	shown := term.stdout.String()
	if strings.ContainsAny(shown, "\x1b\x07") {
		t.Errorf("control characters reach the terminal: %q", shown)
	}
	if !strings.Contains(shown, "bytes more") {
		t.Error("a long body is shown whole")
	}
}

func TestListenForgetsOldIDs(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, newTerminal(), listenCommand{Respond: []string{"500", "200"}})
	for i := range rememberedIDs + 10 {
		r.next(strconv.Itoa(i))
	}
	if len(r.seen) != rememberedIDs || len(r.ids) != rememberedIDs {
		t.Errorf("remembers %d and %d ids", len(r.seen), len(r.ids))
	}
}
