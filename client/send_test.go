package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// A script is a transport that answers one request after the other, and repeats its last answer. It records
// the requests. An answer is a status, with Retry-After and a code, or "lost", "refused", "hangs" or
// "endless".
type script struct {
	answers []string
	bodies  []string
	headers []http.Header
	at      []time.Duration
	began   time.Time
}

// RoundTrip answers a request.
func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(text)
	}
	words := strings.Fields(s.answers[min(len(s.at), len(s.answers)-1)])
	s.bodies, s.headers = append(s.bodies, body), append(s.headers, r.Header)
	s.at = append(s.at, time.Since(s.began))
	res := &http.Response{Header: http.Header{}, Body: http.NoBody}
	switch words[0] {
	case "refused":
		return nil, &net.OpError{Op: "dial", Err: io.EOF}
	case "lost":
		return nil, io.ErrUnexpectedEOF
	case "hangs":
		<-r.Context().Done()
		return nil, r.Context().Err()
	case "endless":
		res.StatusCode = 200
		res.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", 2000)))
		return res, nil
	}
	if _, err := fmt.Sscan(words[0], &res.StatusCode); err != nil {
		return nil, err
	}
	text := "{}"
	for _, word := range words[1:] {
		if after, ok := strings.CutPrefix(word, "after="); ok {
			res.Header.Set("Retry-After", after)
		} else {
			text = fmt.Sprintf(`{"status":%d,"code":%q}`, res.StatusCode, word)
		}
	}
	res.Body = io.NopCloser(strings.NewReader(text))
	return res, nil
}

// client returns a client that uses the script.
func (s *script) client(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	o.URL, o.Key, o.HTTPClient, o.MaxAnswer = "http://d.example", "k", &http.Client{Transport: s}, 1000
	s.began = time.Now()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWhatIsSentAgain checks how often each kind of call is sent, and when.
func TestWhatIsSentAgain(t *testing.T) {
	send := func(ctx context.Context, c *client.Client) error {
		_, err := c.Send(ctx, client.CallbackRequest{URL: "https://a.example/"})
		return err
	}
	get := func(ctx context.Context, c *client.Client) error {
		_, err := c.Callback(ctx, "cb_1")
		return err
	}
	change := func(ctx context.Context, c *client.Client) error {
		_, err := c.CancelCallback(ctx, "cb_1", "")
		return err
	}
	call := func(ctx context.Context, c *client.Client) error {
		_, err := c.Call(ctx, "GET", "/v1/stats", nil, nil)
		return err
	}
	event := func(ctx context.Context, c *client.Client) error {
		_, err := c.SendEvent(ctx, client.CallbackRequest{Topic: "a"})
		return err
	}
	poll := func(ctx context.Context, c *client.Client) error {
		_, err := c.CreatePoll(ctx, client.PollRequest{Ref: "a"})
		return err
	}
	for _, tc := range []struct {
		name      string
		call      func(context.Context, *client.Client) error
		answers   string
		retries   int
		tries     int
		ambiguous bool
		err       string // "" for success
	}{
		{"a lost response", send, "lost, 202", 0, 2, false, ""},
		{"each temporary status", send, "429, 502, 503, 504, 202", 0, 5, false, ""},
		{"still in progress", send, "lost, 409 idempotency_in_progress, 200", 0, 3, false, ""},
		{"an event", event, "lost, 202", 0, 2, false, ""},
		{"a poll", poll, "lost, 202", 0, 2, false, ""},
		{"a read", get, "503, lost, 200", 0, 3, false, ""},
		{"the last try", get, "503", 0, 5, true, "503"},
		{"fewer tries", send, "503", 1, 2, true, "503"},
		{"one try", send, "503", -1, 1, true, "503"},
		{"refused", send, "422 invalid", 0, 1, false, "invalid"},
		{"another conflict", send, "409 poll_live", 0, 1, false, "poll_live"},
		{"an internal error", send, "500 internal", 0, 5, true, "internal"},
		{"a limit", send, "429 rate_limited", 0, 5, false, "rate_limited"},
		{"a limit that lasts", send, "429 lanes_quota after=31", 0, 1, false, "lanes_quota"},
		{"a limit after a lost response", send, "lost, 429 rate_limited", 0, 5, true, "rate_limited"},
		{"no connection", send, "refused", 0, 5, false, "EOF"},
		{"no connection after a lost response", send, "lost, refused", 0, 5, true, "EOF"},
		{"a change", change, "lost", 0, 1, true, "EOF"},
		{"a change without a connection", change, "refused", 0, 1, false, "EOF"},
		{"a change that is refused", change, "503", 0, 1, true, "503"},
		{"any call", call, "503", 0, 1, true, "503"},
		{"a long response", get, "endless", 0, 1, true, "more than 1000 bytes"},
		{"a hanging server", get, "hangs, 200", 0, 2, false, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{answers: strings.Split(tc.answers, ", ")}
			err := tc.call(t.Context(), s.client(t, client.Options{Retries: tc.retries}))
			if len(s.at) != tc.tries || client.Ambiguous(err) != tc.ambiguous {
				t.Errorf("%s: %d tries, want %d; ambiguous: %t, %v", tc.name, len(s.at), tc.tries,
					client.Ambiguous(err), err)
			}
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.err)
			}
			for _, body := range s.bodies {
				keyed := body == "" || strings.Contains(body, `"idempotency_key":"`)
				if len(s.bodies) > 1 && (body != s.bodies[0] || !keyed) {
					t.Errorf("%s: sent %s and %s", tc.name, s.bodies[0], body)
				}
			}
		})
	}
}

// TestWaitBetweenTries checks that waits grow, respect Retry-After, and end with the context.
func TestWaitBetweenTries(t *testing.T) {
	for _, tc := range []struct {
		answer string
		// limits are the least and the most waits before the second, third … try.
		limits [][2]time.Duration
	}{
		{"503", [][2]time.Duration{
			{250e6, 500e6}, {500e6, 1e9}, {1e9, 2e9}, {2e9, 4e9}, {4e9, 8e9}, {4e9, 8e9},
		}},
		{"429 after=10", [][2]time.Duration{{10e9, 10.5e9}, {10e9, 10.5e9}}},
		{"503 after=30", [][2]time.Duration{{30e9, 30.5e9}}},
		{"429 after=1", [][2]time.Duration{{1e9, 1.5e9}, {1e9, 1.5e9}, {2e9, 2.5e9}}},
		{"503 after=soon", [][2]time.Duration{{250e6, 500e6}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{answers: []string{tc.answer}}
			c := s.client(t, client.Options{Retries: len(tc.limits)})
			if _, err := c.Stats(t.Context()); err == nil {
				t.Error("no error")
			}
			for i, limit := range tc.limits {
				if wait := s.at[i+1] - s.at[i]; wait < limit[0] || wait > limit[1] {
					t.Errorf("%s: waited %s before try %d, want %s", tc.answer, wait, i+2, limit)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []string{"503 after=20"}}
		c := s.client(t, client.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := c.Stats(ctx)
		if refused, ok := errors.AsType[*client.Error](err); !ok || refused.RetryAfter != 20*time.Second ||
			len(s.at) != 1 || time.Since(s.began) > time.Second {
			t.Errorf("a wait that the context does not allow: %v after %s", err, time.Since(s.began))
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		s.began = time.Now()
		_, err = c.Send(ctx, client.CallbackRequest{})
		if !errors.Is(err, context.Canceled) || time.Since(s.began) != 10*time.Second || len(s.at) != 2 ||
			!client.Ambiguous(err) {
			t.Errorf("a call that is canceled while it waits: %v after %s", err, time.Since(s.began))
		}
	})
}

// TestTimeout checks which time each call has, and that a timeout of a try is not the end of the context.
func TestTimeout(t *testing.T) {
	for _, tc := range []struct {
		o    client.Options
		call func(context.Context, *client.Client) error
		want time.Duration
	}{
		{client.Options{}, func(ctx context.Context, c *client.Client) error {
			_, err := c.Stats(ctx)
			return err
		}, 45 * time.Second},
		{client.Options{Timeout: time.Second}, func(ctx context.Context, c *client.Client) error {
			return c.DeleteSchedule(ctx, "sc_1", "")
		}, time.Second},
		{client.Options{Timeout: time.Second}, func(ctx context.Context, c *client.Client) error {
			_, err := c.Outcomes(ctx, "", 0, 20*time.Second)
			return err
		}, 21 * time.Second},
		{client.Options{}, func(ctx context.Context, c *client.Client) error {
			_, err := c.RebuildIndex(ctx, client.RebuildRequest{})
			return err
		}, 15*time.Minute + 15*time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{answers: []string{"hangs"}}
			tc.o.Retries = -1
			err := tc.call(t.Context(), s.client(t, tc.o))
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(s.began) != tc.want ||
				!strings.Contains(err.Error(), "no complete response within "+tc.want.String()) {
				t.Errorf("%v after %s, want %s", err, time.Since(s.began), tc.want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []string{"hangs"}}
		own := &http.Client{Transport: s, Timeout: time.Minute}
		c, err := client.New(client.Options{URL: "http://d.example", Key: "k", HTTPClient: own, Retries: -1})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = c.Stats(t.Context())
		if err == nil || time.Since(began) != time.Minute {
			t.Errorf("the timeout of an own HTTPClient: %v after %s", err, time.Since(began))
		}
	})
}

// TestKeys checks that a caller's key is sent as it is, that others are random, and that a caller's slice
// stays unchanged.
func TestKeys(t *testing.T) {
	s := &script{answers: []string{"202"}}
	c := s.client(t, client.Options{})
	keys := func() (keys []string) {
		for _, body := range s.bodies {
			var sent struct {
				Key string `json:"idempotency_key"`
			}
			if err := json.Unmarshal([]byte(body), &sent); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, sent.Key)
		}
		return keys
	}
	for _, key := range []string{"order-1", "", ""} {
		if _, err := c.Send(t.Context(), client.CallbackRequest{IdempotencyKey: key}); err != nil {
			t.Fatal(err)
		}
	}
	ctx := client.WithHeader(t.Context(), "idempotency-key", "order-2")
	if _, err := c.Send(ctx, client.CallbackRequest{}); err != nil {
		t.Fatal(err)
	}
	got := keys()
	if got[0] != "order-1" || len(got[1]) < 20 || got[1] == got[2] || got[3] != "" ||
		s.headers[3].Get("Idempotency-Key") != "order-2" {
		t.Errorf("keys %q", got)
	}
}

// TestRawJSONIsChecked passes texts that would add fields to a request, or break it. None is sent.
func TestRawJSONIsChecked(t *testing.T) {
	raw := json.RawMessage(`{"paid":1},"signer":"none"`)
	choice := client.Choice{Object: raw}
	for i, send := range []func(c *client.Client) error{
		func(c *client.Client) error {
			_, err := c.Send(t.Context(), client.CallbackRequest{Payload: raw})
			return err
		},
		func(c *client.Client) error {
			_, err := c.SendBatch(t.Context(), []client.CallbackRequest{{}, {Policy: choice}})
			return err
		},
		func(c *client.Client) error {
			on := &client.CallbackRequest{Signer: client.Given(map[string]any{"type": raw})}
			_, err := c.CreatePoll(t.Context(), client.PollRequest{OnResult: on})
			return err
		},
		func(c *client.Client) error {
			_, err := c.PatchEndpoint(t.Context(), "ep_1", client.EndpointChange{
				EndpointFields: client.EndpointFields{Policy: client.Set(choice)},
			})
			return err
		},
		func(c *client.Client) error {
			_, err := c.Call(t.Context(), "POST", "/v1/callbacks", map[string]any{"payload": &raw}, nil)
			return err
		},
	} {
		s := &script{answers: []string{"200"}}
		err := send(s.client(t, client.Options{}))
		if err == nil || !strings.Contains(err.Error(), "not JSON") || len(s.at) > 0 {
			t.Errorf("call %d: %v after %d requests", i, err, len(s.at))
		}
	}
}

// TestHeaders checks that the headers of a context are sent, unless the client sets them.
func TestHeaders(t *testing.T) {
	s := &script{answers: []string{"200"}}
	c := s.client(t, client.Options{Project: "shop", UserAgent: "pay/1"})
	outer := client.WithHeader(t.Context(), "traceparent", "00-1-1-01")
	ctx := client.WithHeader(outer, "traceparent", "00-2-2-01")
	ctx = client.WithHeader(client.WithHeader(ctx, "authorization", "Basic x"), "user-agent", "x")
	for _, ctx := range []context.Context{ctx, outer} {
		if _, err := c.Stats(ctx); err != nil {
			t.Fatal(err)
		}
	}
	first, second := s.headers[0], s.headers[1]
	want := []string{"00-2-2-01", "Bearer k", "pay/1", "shop"}
	got := []string{first.Get("Traceparent"), first.Get("Authorization"), first.Get("User-Agent"),
		first.Get(client.ProjectHeader)}
	if !slices.Equal(got, want) || second.Get("Traceparent") != "00-1-1-01" {
		t.Errorf("got %q and %q", got, second.Get("Traceparent"))
	}
}

// TestRetryIsLogged checks that the log has the reason of a retry, and neither the key nor the query.
func TestRetryIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &script{answers: []string{"503 unavailable", "200"}}
		c := s.client(t, client.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if _, err := c.Callbacks(client.Filter{Ref: "order-1"}).Page(t.Context(), "", 0); err != nil {
			t.Fatal(err)
		}
		text := log.String()
		if !strings.Contains(text, "level=WARN") || !strings.Contains(text, "path=/v1/callbacks try=1") ||
			!strings.Contains(text, "unavailable") || strings.Contains(text, "order-1") {
			t.Errorf("log: %s", text)
		}
	})
}

// batches answers batches. A callback with the ref busy is refused until its third batch.
type batches struct {
	seen []string
}

func (b *batches) RoundTrip(r *http.Request) (*http.Response, error) {
	var in struct {
		Callbacks []client.CallbackRequest `json:"callbacks"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	refs, out := "", []client.CallbackResult{}
	for _, cb := range in.Callbacks {
		refs += " " + cb.Ref + "/" + cb.IdempotencyKey[:1]
		status, code := 0, ""
		switch {
		case cb.Ref == "invalid":
			status, code = 422, "invalid"
		case cb.Ref == "never" || cb.Ref == "busy" && len(b.seen) < 2:
			status, code = 503, "unavailable"
		}
		if status > 0 {
			problem := &client.Problem{Status: status, Code: code}
			out = append(out, client.CallbackResult{Status: status, Problem: problem})
			continue
		}
		out = append(out, client.CallbackResult{Status: 202, Callback: &client.Callback{ID: cb.Ref}})
	}
	b.seen = append(b.seen, strings.TrimSpace(refs))
	text, err := client.AppendJSON(nil, map[string][]client.CallbackResult{"results": out})
	return &http.Response{StatusCode: 207, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(text))}, err
}

// TestBatch checks that only the callbacks with a temporary problem are sent again, with the same keys.
func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &batches{}
		c, err := client.New(client.Options{URL: "http://d.example", Key: "k", Retries: 3,
			HTTPClient: &http.Client{Transport: server}})
		if err != nil {
			t.Fatal(err)
		}
		in := []client.CallbackRequest{
			{Ref: "a", IdempotencyKey: "1"}, {Ref: "busy", IdempotencyKey: "2"},
			{Ref: "invalid", IdempotencyKey: "3"}, {Ref: "never", IdempotencyKey: "4"}, {Ref: "e"},
		}
		got, err := c.SendBatch(t.Context(), in)
		if err != nil || in[4].IdempotencyKey != "" {
			t.Fatalf("%v, %+v", err, in[4])
		}
		statuses := ""
		for i, r := range got {
			statuses += fmt.Sprint(r.Status, " ")
			if r.Callback != nil && r.Callback.ID != in[i].Ref {
				t.Errorf("result %d is of %s", i, r.Callback.ID)
			}
		}
		sent := server.seen[0][:len("a/1 busy/2 invalid/3 never/4 e/")]
		if statuses != "202 202 422 503 202 " || sent != "a/1 busy/2 invalid/3 never/4 e/" ||
			!slices.Equal(server.seen[1:], []string{"busy/2 never/4", "busy/2 never/4", "never/4"}) {
			t.Errorf("results %s, batches %q", statuses, server.seen)
		}
	})
	s := &script{answers: []string{"413 too_large"}}
	_, err := s.client(t, client.Options{}).SendBatch(t.Context(), []client.CallbackRequest{{}})
	if !errors.Is(err, client.CodeTooLarge) {
		t.Errorf("a batch that is refused: %v", err)
	}
	s = &script{answers: []string{"207"}}
	_, err = s.client(t, client.Options{}).SendBatch(t.Context(), []client.CallbackRequest{{}})
	if err == nil || len(s.at) != 1 {
		t.Errorf("a batch without results: %v", err)
	}
}
