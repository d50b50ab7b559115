package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// serve returns a client of a test server with the handler h.
func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	o := client.Options{URL: server.URL + "/", Key: "secret", Project: "shop", MaxAnswer: 1000, Retries: -1}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newClient returns a client with the admin key.
func newClient(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	o.Key = adminKey
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A transport answers requests without a network.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRequestFormat checks the bytes of a request, and that a response is decoded with null and unknown
// fields.
func TestRequestFormat(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header
		want := "POST /v1/callbacks Bearer secret shop application/json " +
			`{"url":"https://a.example/<&>","headers":{"X-B":"2","X-A":"1"},"payload":{ "paid": 1.0 },` +
			`"policy":"payment","signer":{ "type": "none" },` +
			`"due_at":"2026-11-21T08:00:00.120Z","delay":"1m0s","idempotency_key":"order-1"}`
		got := strings.Join([]string{
			r.Method, r.URL.Path, h.Get("Authorization"), h.Get(client.ProjectHeader), h.Get("Content-Type"),
			string(body),
		}, " ")
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, `{"id":"cb_1","topic":null,"due_at":null,"max_attempts":null,`+
			`"policy":{"tiers":["1s"]},"version":7,"new_field":1}`)
	})
	cb, err := c.Send(t.Context(), client.CallbackRequest{
		URL:     "https://a.example/<&>",
		Headers: client.Headers{{Name: "X-B", Value: "2"}, {Name: "X-A", Value: "1"}},
		Payload: json.RawMessage(`{ "paid": 1.0 }`), Policy: client.Named("payment"),
		Signer: client.Choice{Object: json.RawMessage(`{ "type": "none" }`)},
		DueAt:  time.Date(2026, 11, 21, 16, 0, 0, 120e6, time.FixedZone("", 8*3600)),
		Delay:  client.DurationOf(time.Minute), IdempotencyKey: "order-1",
	})
	if err != nil || cb.ID != "cb_1" || cb.Topic != "" || !cb.DueAt.IsZero() || *cb.Version != 7 {
		t.Errorf("got %+v, %v", cb, err)
	}
	if policy := string(cb.Policy.Object); policy != `{"tiers":["1s"]}` {
		t.Errorf("policy %s", policy)
	}
}

// TestErrorTypes checks which responses become an *Error, a *NoAnswerError or another error.
func TestErrorTypes(t *testing.T) {
	answers := []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, `{"type":"about:blank","title":"T","status":429,`+
				`"detail":"slow: url (see errors)","code":"rate_limited",`+
				`"errors":[{"field":"url","message":"is bad"},{"field":"ref","message":"too"}]}`)
		},
		func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) },
		func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat(" ", 1001)) },
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `[]`) },
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			io.WriteString(w, `{`)
		},
	}
	want := []string{
		"slow (429 rate_limited): url is bad; ref too",
		"the response is not from a dispatcher: Bad Gateway (502)",
		"more than 1000 bytes",
		"the response is not from a dispatcher: Found (302)",
		" is not from a dispatcher: json",
		"unexpected EOF",
	}
	for i, h := range answers {
		_, err := serve(t, h).Callback(t.Context(), "cb_1")
		if err == nil || !strings.Contains(err.Error(), want[i]) {
			t.Errorf("answer %d: %v, want %s", i, err, want[i])
		}
		refused, isRefusal := errors.AsType[*client.Error](err)
		_, noAnswer := errors.AsType[*client.NoAnswerError](err)
		if isRefusal != (i == 0 || i == 1 || i == 3) || noAnswer != (i == 2 || i == 5) {
			t.Errorf("answer %d is a %T", i, err)
		}
		if i > 0 {
			continue
		}
		if refused.RetryAfter != 7*time.Second || refused.Code != "rate_limited" || len(refused.Errors) != 2 {
			t.Errorf("%+v", refused)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := serve(t, answers[0]).Callback(ctx, "cb_1"); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled call: %v", err)
	}
}

func TestInvalidOptions(t *testing.T) {
	for _, o := range []client.Options{
		{Key: "k"}, {URL: "127.0.0.1:8080", Key: "k"}, {URL: "ftp://a", Key: "k"},
		{URL: "http://u@a", Key: "k"},
		{URL: "http://a?b=1", Key: "k"}, {URL: "http://a"},
	} {
		if _, err := client.New(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// TestListReadsPages checks that All follows the cursors, keeps the filter, and stops after a break or an
// error.
func TestListReadsPages(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		switch r.URL.Query().Get("cursor") {
		case "":
			io.WriteString(w, `{"data":[{"id":"1"},{"id":"2"}],"next_cursor":"a&b"}`)
		case "a&b":
			io.WriteString(w, `{"data":[],"next_cursor":"c"}`)
		default:
			io.WriteString(w, `{"data":[{"id":"3"}],"next_cursor":null}`)
		}
	})
	var got string
	filter := client.Filter{State: []client.State{"dead", "canceled"}, Label: map[string]string{"a b": "1"}}
	for cb, err := range c.Callbacks(filter).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got += cb.ID
	}
	want := "/v1/callbacks?label.a+b=1&limit=500&state=dead&state=canceled " +
		"/v1/callbacks?cursor=a%26b&label.a+b=1&limit=500&state=dead&state=canceled " +
		"/v1/callbacks?cursor=c&label.a+b=1&limit=500&state=dead&state=canceled"
	if got != "123" || strings.Join(asked, " ") != want {
		t.Errorf("got %s by\n%s", got, strings.Join(asked, " "))
	}
	for range c.Callbacks(client.Filter{}).All(t.Context()) {
		break
	}
	if len(asked) != 4 {
		t.Errorf("the iteration continued after break: %d requests", len(asked))
	}
	failing := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "", http.StatusInternalServerError)
	})
	rows := 0
	for _, err := range failing.Audit().All(t.Context()) {
		rows++
		if err == nil {
			t.Error("no error of a list that cannot be read")
		}
	}
	if rows != 1 {
		t.Errorf("%d rows of a list that cannot be read, want 1 with the error", rows)
	}
}

// TestValues checks that Optional, Choice, Headers and Duration survive decoding and encoding.
func TestValues(t *testing.T) {
	type all struct {
		Left   client.Optional[string]         `json:"left,omitzero"`
		Null   client.Optional[string]         `json:"null,omitzero"`
		Set    client.Optional[[]string]       `json:"set,omitzero"`
		None   client.Choice                   `json:"none"`
		Chosen client.Optional[client.Choice]  `json:"chosen,omitzero"`
		H      client.Optional[client.Headers] `json:"h,omitzero"`
		At     time.Time                       `json:"at" api:"null"`
		N      int                             `json:"n" api:"null"`
		List   []string                        `json:"list"`
		Map    map[string]int                  `json:"map"`
		Raw    json.RawMessage                 `json:"raw"`
		Text   string                          `json:"text"`
	}
	const text = `{"null":null,"set":["a"],"none":null,"chosen":"p","h":{"B":"1","A":"2"},"at":null,` +
		`"n":null,"list":[],"map":{},"raw":null,"text":"\u0001\"\\\n` + "é" + `"}`
	var v all
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	if !v.Left.IsZero() || !v.Null.IsNull() || v.Null.Pointer() != nil || (*v.Set.Pointer())[0] != "a" {
		t.Errorf("%+v", v)
	}
	if h, ok := v.H.Get(); !ok || h.Get("b") != "1" || h.Get("c") != "" {
		t.Errorf("headers %v", h)
	}
	if got, err := client.AppendJSON(nil, v); err != nil || string(got) != text {
		t.Errorf("got  %s %v\nwant %s", got, err, text)
	}
	if plain, err := json.Marshal(v.H); err != nil || string(plain) != `{"B":"1","A":"2"}` {
		t.Errorf("%s %v", plain, err)
	}
	if _, err := client.AppendJSON(nil, make(chan int)); err == nil {
		t.Error("a channel was written as JSON")
	}
	given := client.Given(client.Policy{Tiers: []client.Duration{"15s"}})
	if string(given.Object) != `{"tiers":["15s"]}` {
		t.Errorf("%s", given.Object)
	}
	for _, wrong := range []any{"payment", make(chan int), nil} {
		c := newClient(t, client.Options{URL: "http://d.example", HTTPClient: &http.Client{Transport: &script{}}})
		_, err := c.Send(t.Context(), client.CallbackRequest{Policy: client.Given(wrong)})
		if err == nil {
			t.Errorf("%T was sent as a choice", wrong)
		}
	}
	for text, want := range map[client.Duration]time.Duration{
		"": 0, "15s": 15 * time.Second, "2d": 48 * time.Hour,
		"1d1h13m15s": 25*time.Hour + 13*time.Minute + 15*time.Second,
	} {
		if got, err := text.Parse(); err != nil || got != want {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
	for _, text := range []client.Duration{"x", "xd", "1dx"} {
		if _, err := text.Parse(); err == nil {
			t.Errorf("%s was parsed as a duration", text)
		}
	}
	if err := json.Unmarshal([]byte(`{"h":["A"]}`), &v); err == nil {
		t.Error("an array was read as headers")
	}
}
