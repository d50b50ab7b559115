package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// item is the result of one callback of a batch, with a status.
func item(status int) string {
	if status < 300 {
		return fmt.Sprintf(`{"status":%d,"callback":{"id":"cb_1"}}`, status)
	}
	return fmt.Sprintf(`{"status":%d,"problem":{"status":%d,"code":"c%d"}}`, status, status, status)
}

// TestBatchUnknown checks that SendBatch never reports a callback whose result is unknown as refused.
// A try is "lost", the status of a refused batch, or the statuses of its results.
func TestBatchUnknown(t *testing.T) {
	for _, tc := range []struct {
		name, tries, want string
		ambiguous, err    bool
	}{
		{"a response is lost after a busy result", "202,503; lost", "202 0", true, true},
		{"a busy result after a lost response", "lost; 202,503; 503", "202 0", true, true},
		{"a refusal after a lost response", "lost; 202,422", "202 0", true, true},
		{"all accepted after a lost response", "lost; 202,200", "202 200", false, false},
		{"a busy result to the end", "202,503; 503", "202 503", false, false},
		{"a busy result, then a limit", "202,503; 429", "202 503", false, true},
		{"an unavailable server after a busy result", "202,503; 503!", "202 0", true, true},
		{"nothing arrives", "lost", "", true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries, keys := strings.Split(tc.tries, "; "), map[string]string{}
			n := 0
			c := newClient(t, client.Options{URL: "http://d.example", Retries: 2, HTTPClient: &http.Client{
				Transport: transport(func(r *http.Request) (*http.Response, error) {
					var in struct {
						Callbacks []client.CallbackRequest `json:"callbacks"`
					}
					if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
						return nil, err
					}
					for _, cb := range in.Callbacks {
						keys[cb.Ref] = cb.IdempotencyKey
					}
					try := tries[min(n, len(tries)-1)]
					n++
					if try == "lost" {
						return nil, io.ErrUnexpectedEOF
					}
					status, results := 207, []string{}
					for word := range strings.SplitSeq(try, ",") {
						whole := ""
						_, err := fmt.Sscanf(word, "%d%s", &status, &whole)
						if whole == "!" || status == 429 {
							break
						} else if err != nil && err != io.EOF && status == 0 {
							return nil, err
						}
						results, status = append(results, item(status)), 207
					}
					text := `{"results":[` + strings.Join(results, ",") + `]}`
					return &http.Response{StatusCode: status, Header: http.Header{},
						Body: io.NopCloser(strings.NewReader(text))}, nil
				}),
			}})
			got, err := c.SendBatch(t.Context(), []client.CallbackRequest{{Ref: "a"}, {Ref: "b"}})
			statuses := []string{}
			for _, r := range got {
				statuses = append(statuses, fmt.Sprint(r.Status))
				if r.Status == 0 && (r.Callback != nil || r.Problem != nil) {
					t.Errorf("%s: an unknown result has a value: %+v", tc.name, r)
				}
			}
			if s := strings.Join(statuses, " "); s != tc.want || (err != nil) != tc.err ||
				client.Ambiguous(err) != tc.ambiguous {
				t.Errorf("%s: %s, %v; ambiguous: %t", tc.name, s, err, client.Ambiguous(err))
			}
			if lost, ok := errors.AsType[*client.NoAnswerError](err); tc.ambiguous && (!ok ||
				len(lost.IdempotencyKeys) != 2 || lost.IdempotencyKeys[0] != keys["a"] ||
				lost.IdempotencyKeys[1] != keys["b"]) {
				t.Errorf("%s: the keys %v are not in %#v", tc.name, keys, err)
			}
		})
	}
}

// TestBatchCanceled checks that the end of the context is an error although a response has arrived.
func TestBatchCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &batches{}
		c := newClient(t, client.Options{
			URL: "http://d.example", HTTPClient: &http.Client{Transport: server}})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		got, err := c.SendBatch(ctx, []client.CallbackRequest{{Ref: "never", IdempotencyKey: "1"}})
		if !errors.Is(err, context.Canceled) || len(got) != 1 || got[0].Status != 503 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestUnknownHasItsKey sends again with the key of the error. The key is the one that was sent.
func TestUnknownHasItsKey(t *testing.T) {
	for _, answer := range []string{"lost", "503", "500 internal", "endless", "refused"} {
		for name, send := range map[string]func(*client.Client) error{
			"Send": func(c *client.Client) error {
				_, err := c.Send(t.Context(), client.CallbackRequest{})
				return err
			},
			"SendEvent": func(c *client.Client) error {
				_, err := c.SendEvent(t.Context(), client.CallbackRequest{})
				return err
			},
			"CreatePoll": func(c *client.Client) error {
				_, err := c.CreatePoll(t.Context(), client.PollRequest{})
				return err
			},
		} {
			s := &script{answers: []string{answer}}
			err := send(s.client(t, client.Options{Retries: -1}))
			lost, ok := errors.AsType[*client.NoAnswerError](err)
			if !ok || lost.IdempotencyKey == "" ||
				!strings.Contains(s.bodies[0], `"idempotency_key":"`+lost.IdempotencyKey+`"`) {
				t.Errorf("%s, %s: %#v; sent %s", name, answer, err, s.bodies)
			}
			if client.Ambiguous(err) != (answer != "refused") {
				t.Errorf("%s, %s: ambiguous: %t", name, answer, client.Ambiguous(err))
			}
		}
	}
}

// TestLocalErrorsHaveNoEffect checks that an error before the request is sent is not ambiguous, and is not
// tried again.
func TestLocalErrorsHaveNoEffect(t *testing.T) {
	s := &script{answers: []string{"202"}}
	c := s.client(t, client.Options{})
	_, one := c.Send(t.Context(), client.CallbackRequest{Payload: json.RawMessage("{bad")})
	_, batch := c.SendBatch(t.Context(), []client.CallbackRequest{{Payload: json.RawMessage("{bad")}})
	_, method := c.Call(t.Context(), "BAD METHOD", "/v1/stats", nil, nil)
	for _, err := range []error{one, batch, method} {
		if err == nil || client.Ambiguous(err) || len(s.at) > 0 {
			t.Errorf("%v, ambiguous: %t, after %d requests", err, client.Ambiguous(err), len(s.at))
		}
	}
}

// TestWrongCertificate checks that a certificate that is refused ends a call and a feed at once.
func TestWrongCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := newClient(t, client.Options{URL: "https://d.example", HTTPClient: &http.Client{
			Transport: transport(func(*http.Request) (*http.Response, error) {
				tries++
				return nil, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
			}),
		}})
		_, err := c.Send(t.Context(), client.CallbackRequest{})
		if err == nil || client.Ambiguous(err) || tries != 1 {
			t.Errorf("%v, ambiguous: %t, after %d tries", err, client.Ambiguous(err), tries)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, err := range c.FollowOutcomes(ctx, "") {
			if ctx.Err() != nil || err == nil {
				t.Errorf("the feed ends with %v", err)
			}
		}
	})
}

// TestKeyIsNotPrinted prints a client and its options in every form.
func TestKeyIsNotPrinted(t *testing.T) {
	o := client.Options{URL: "http://d.example", Key: "top-secret", Project: "shop"}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, v := range []any{o, &o, *c, c, struct{ O client.Options }{o}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			fmt.Fprintf(&b, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&b, nil)).Info("a", "v", v)
	}
	slog.New(slog.NewJSONHandler(&b, nil)).Info("a", "v", o, "in", struct{ O client.Options }{o})
	for _, encode := range []func(any) ([]byte, error){json.Marshal, xml.Marshal} {
		text, err := encode(o)
		if err != nil || !bytes.Contains(text, []byte("shop")) {
			t.Errorf("%s, %v", text, err)
		}
		b.Write(text)
	}
	if text := b.String(); strings.Contains(text, "top-secret") || !strings.Contains(text, "shop") ||
		strings.Contains(text, fmt.Sprintf("%x", "top-secret")) {
		t.Errorf("printed:\n%s", text)
	}
}

// TestFollowOutcomesLogs checks that a feed without a Logger reports a failure, so that it is not silent.
func TestFollowOutcomesLogs(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := &script{answers: []string{"refused"}}
		for range s.client(t, client.Options{}).FollowOutcomes(ctx, "") {
		}
	})
	if text := log.String(); !strings.Contains(text, "level=WARN") ||
		!strings.Contains(text, "cannot reach") {
		t.Errorf("log: %q", text)
	}
}
