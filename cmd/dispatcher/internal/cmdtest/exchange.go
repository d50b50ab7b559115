package cmdtest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// A recordedRequest is one that the commands made.
type recordedRequest struct {
	method, URI, key, Project string
	Body                      map[string]any
}

// BodyText is a recorded body as JSON with sorted names; "null": there was none.
func (r recordedRequest) BodyText(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// FakeServer answers every request with what answers has for its method and path, and records it. requests returns
// those since it was last called.
func FakeServer(t *testing.T, answers map[string]string) (address string, requests func() []recordedRequest) {
	t.Helper()
	seen := make(chan recordedRequest, 100)
	address = Handling(t, func(w http.ResponseWriter, r *http.Request) {
		rec := recordedRequest{
			method: r.Method, URI: r.URL.RequestURI(),
			key: r.Header.Get("Authorization"), Project: r.Header.Get("Dispatcher-Project"),
		}
		raw, err := io.ReadAll(r.Body)
		if err == nil && len(raw) > 0 {
			err = json.Unmarshal(raw, &rec.Body)
		}
		if err != nil {
			t.Errorf("%s: %s", raw, err)
		}
		seen <- rec
		answer, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"title":"Not Found","status":404,"detail":"there is no such thing in this project","code":"not_found"}`
		} else if strings.Contains(answer, `"status":422`) {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		Respond(t, w, answer)
	})
	return address, func() []recordedRequest {
		var list []recordedRequest
		for len(seen) > 0 {
			list = append(list, <-seen)
		}
		return list
	}
}

// Handling is the address of a server that ends with the test.
func Handling(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return srv.URL
}

func Respond(t *testing.T, w io.Writer, answer string) {
	t.Helper()
	if _, err := io.WriteString(w, answer); err != nil {
		t.Error(err)
	}
}

// Answering is the address of a server that gives everything the same answer.
func Answering(t *testing.T, status int, answer string) string {
	t.Helper()
	return Handling(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		Respond(t, w, answer)
	})
}

// InProcess answers a client without a wire, so that a test may run in virtual time. A handler that panics with
// http.ErrAbortHandler breaks the connection.
type InProcess struct{ http.Handler }

func (h InProcess) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	defer func() {
		if recover() == http.ErrAbortHandler {
			err = io.ErrUnexpectedEOF
		}
	}()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// At is a terminal whose commands talk to a server, with the key k.
func (p Program) At(address string, env ...string) *Terminal {
	return p.Terminal(append(env, "DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")...)
}

// An Exchange is a command line and what must come of it.
type Exchange struct {
	// Line is split at its spaces; args follow it.
	Line  string
	Args  []string
	Stdin string
	Code  int
	// Says are parts of the standard output, warns of the error output.
	Says, Warns []string
	// Call is the last request, and body what it has; empty: none.
	Call, Body string
}

// Exchanges runs command lines against a server with canned answers.
func (p Program) Exchanges(t *testing.T, answers map[string]string, list ...Exchange) {
	t.Helper()
	address, requests := FakeServer(t, answers)
	for _, e := range list {
		t.Run(e.Line, func(t *testing.T) {
			term := p.At(address)
			term.In = strings.NewReader(e.Stdin)
			if code := term.Invoke(append(strings.Fields(e.Line), e.Args...)...); code != e.Code {
				t.Fatalf("exit code %d, want %d: %s", code, e.Code, term.Stderr.String())
			}
			if e.Code != console.ExitOK && len(term.Lines()) != 1 {
				t.Errorf("wants one line, got %q", term.Lines())
			}
			Says(t, term.Stdout.String(), e.Says...)
			Says(t, term.Stderr.String(), e.Warns...)
			made := requests()
			if e.Call == "" {
				return
			}
			if len(made) == 0 {
				t.Fatal("made no request")
			}
			last := made[len(made)-1]
			body := last.BodyText(t)
			if body == "null" {
				body = ""
			}
			if got := last.method + " " + last.URI; got != e.Call || body != e.Body || last.key != "Bearer k" {
				t.Errorf("made %s as %q with\n%s\nwant %s with\n%s", got, last.key, body, e.Call, e.Body)
			}
		})
	}
}

// With returns a JSON object with members of another one in place of its own.
func With(t *testing.T, object, members string) string {
	t.Helper()
	var m map[string]json.RawMessage
	for _, text := range []string{object, members} {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ListOf is a page with these objects.
func ListOf(objects ...string) string {
	return `{"data":[` + strings.Join(objects, ",") + `],"next_cursor":null}`
}

const (
	OneID       = "cb_01JD7Q2Z3K4M5N6P7R8S9TABCD"
	OtherID     = "cb_01JD7Q2Z3K4M5N6P7R8S9TABCE"
	OneCallback = `{"id":"` + OneID + `","kind":"notify","project":"default","url":"https://shop.example/notify",
 "method":"POST","topic":"payment.succeeded","ref":"order-1","lock_key":null,"lane":"l","labels":{"channel":"alipay"},
 "state":"scheduled","reason":null,"due_at":"2099-01-01T00:00:00.000Z","attempt_count":1,"divert_count":2,
 "max_attempts":3,"tiers":["15s","3m"],"last_status":500,"last_class":"http_5xx","endpoint_id":"ep_1",
 "order":"strict","version":7,"policy":"payment","success":{"status":[200]},"signer":null,
 "created_at":"2026-11-21T10:00:00.000Z","finished_at":null,"expires_at":null,"labels2":{"a":{}}}`
	OneAttempt = `{"number":1,"trigger":"schedule","outcome":"failed","charged":true,"class":"http_5xx",
 "status_code":500,"error":null,"started_at":"2026-11-21T10:00:00.000Z","ended_at":"2026-11-21T10:00:00.010Z",
 "due_at":"2026-11-21T10:00:00.000Z","lateness_ms":1.25,"response_body":"\u001b[31mboom\u202e","rule":null,
 "next_due_at":"2099-01-01T00:00:00.000Z"}`
)
