package main

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A recorded request is one that the commands made.
type recordedRequest struct {
	method, uri, key, project string
	body                      map[string]any
}

// fakeServer answers every request with what answers has for its method and path, and records it.
func fakeServer(t *testing.T, answers map[string]string) (address string, requests func() []recordedRequest) {
	t.Helper()
	seen := make(chan recordedRequest, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := recordedRequest{method: r.Method, uri: r.URL.RequestURI(), key: r.Header.Get("Authorization"), project: r.Header.Get("Dispatcher-Project")}
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &rec.body); err != nil {
				t.Errorf("%s: %s", raw, err)
			}
		}
		seen <- rec
		answer, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"title":"Not Found","status":404,"detail":"there is no such thing in this project","code":"not_found"}`
		} else if strings.Contains(answer, `"status":422`) {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		if _, err := io.WriteString(w, answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() []recordedRequest {
		var list []recordedRequest
		for len(seen) > 0 {
			list = append(list, <-seen)
		}
		return list
	}
}

const (
	oneID       = "cb_01JD7Q2Z3K4M5N6P7R8S9TABCD"
	oneCallback = `{"id":"` + oneID + `","kind":"notify","project":"default","url":"https://shop.example/notify","method":"POST",
 "topic":"payment.succeeded","ref":"order-1","lock_key":null,"lane":"l","labels":{"channel":"alipay"},"state":"scheduled","reason":null,
 "due_at":"2099-01-01T00:00:00.000Z","attempt_count":1,"divert_count":2,"max_attempts":3,"tiers":["15s","3m"],"last_status":500,
 "last_class":"http_5xx","endpoint_id":"ep_1","order":"strict","version":7,"policy":"payment","success":{"status":[200]},"signer":null,"created_at":"2026-11-21T10:00:00.000Z","finished_at":null,"expires_at":null,"labels2":{"a":{}}}`
	oneAttempt = `{"number":1,"trigger":"schedule","outcome":"failed","charged":true,"class":"http_5xx","status_code":500,"error":null,
 "started_at":"2026-11-21T10:00:00.000Z","ended_at":"2026-11-21T10:00:00.010Z","due_at":"2026-11-21T10:00:00.000Z","lateness_ms":1.25,
 "response_body":"\u001b[31mboom\u202e","rule":null,"next_due_at":"2099-01-01T00:00:00.000Z"}`
)

func TestSend(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{"POST /v1/callbacks": oneCallback})
	body := writeFile(t, "body.json", "{ \"paid\":  10000 }\n")
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k1")
	code := term.invoke("callback", "send", "--url", "https://shop.example/notify", "--data", "@"+body, "--topic", "payment.succeeded",
		"--ref", "order-1", "--lock-key", "order-1", "--delay", "5s", "--tiers", "1s,2s", "--repeat-last", "--deadline", "1h", "--timeout", "3s", "--success", "body-success",
		"-H", "X-Shop: 7, 8", "--label", "channel=alipay;x", "--lane", "m1", "--idempotency-key", "i1")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	if !strings.HasPrefix(term.stdout.String(), oneID+"  accepted") {
		t.Errorf("said %q", term.stdout.String())
	}
	got := requests()
	if len(got) != 1 || got[0].key != "Bearer k1" {
		t.Fatalf("made %+v", got)
	}
	want := map[string]any{
		"url": "https://shop.example/notify", "topic": "payment.succeeded", "ref": "order-1", "lock_key": "order-1", "delay": "5s",
		"lane": "m1", "success": "body-success", "idempotency_key": "i1", "content_type": "application/json",
		"policy":      map[string]any{"tiers": []any{"1s", "2s"}, "repeat_last": true, "deadline": "1h", "timeout": "3s"},
		"headers":     map[string]any{"X-Shop": "7, 8"},
		"labels":      map[string]any{"channel": "alipay;x"},
		"body_base64": base64.StdEncoding.EncodeToString([]byte("{ \"paid\":  10000 }\n")),
	}
	wantText, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	gotText, err := json.Marshal(got[0].body)
	if err != nil {
		t.Fatal(err)
	}
	if string(wantText) != string(gotText) {
		t.Errorf("sent %s, not %s", gotText, wantText)
	}
}

// An endpoint takes the address's place; what is an object goes as one.
func TestSendToAnEndpoint(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{"POST /v1/callbacks": oneCallback})
	rule := writeFile(t, "rule.json", "{\"status\": [200],\n \"body\": {\"equals\": \"<ok>\"}}\n")
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k1")
	code := term.invoke("callback", "send", "--endpoint", "merchant-7", "--profile", "alipay", "--policy", `{"tiers": ["1s"], "jitter": 0.10}`, "--success", "@"+rule,
		"--signer", "none", "--lock-key", "k", "--order", "strict", "--ref", "r", "--topic", "t", "--supersede", "--version", "0")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	want := `{"endpoint":"merchant-7","lock_key":"k","order":"strict","policy":{"jitter":0.1,"tiers":["1s"]},"profile":"alipay","ref":"r","signer":"none",` +
		`"success":{"body":{"equals":"\u003cok\u003e"},"status":[200]},"supersede":true,"topic":"t","version":0}`
	if got := bodyOfRequest(t, requests()[0]); got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
}

func TestSendGuessesTheContentType(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{`{"a":1}`: "application/json", "paid": "text/plain; charset=utf-8", "\xff\x00": "application/octet-stream"} {
		if got := guessType([]byte(data)); got != want {
			t.Errorf("%q is %s, not %s", data, got, want)
		}
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	address, _ := fakeServer(t, map[string]string{
		"GET /v1/callbacks/" + oneID:               oneCallback,
		"GET /v1/callbacks/" + oneID + "/attempts": `{"data":[` + oneAttempt + `]}`,
	})
	term := newTerminal()
	if code := term.invoke("callback", "get", oneID, "--server", address, "--key", "k"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	got := term.stdout.String()
	for _, want := range []string{"order-1", "scheduled", "1/3 charged, 2 diverted", "ep_1", "version    7", "policy     payment", `success    {"status":[200]}`, "#1", "failed", "500 http_5xx", "1.2ms", "#2", "after 3m", "#3", "to come", `\x1b[31mboom\x202e`} {
		if !strings.Contains(got, want) {
			t.Errorf("does not show %q:\n%s", want, got)
		}
	}
	if strings.ContainsAny(got, "\x1b\u202e") {
		t.Error("control characters of a receiver reach the terminal")
	}
}

func TestGetJSONIsTheServersWithItsAttempts(t *testing.T) {
	t.Parallel()
	address, _ := fakeServer(t, map[string]string{
		"GET /v1/callbacks/" + oneID:               oneCallback,
		"GET /v1/callbacks/" + oneID + "/attempts": `{"data":[` + oneAttempt + `]}`,
	})
	term := newTerminal()
	if code := term.invoke("callback", "get", oneID, "--json", "--server", address, "--key", "k"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	var got struct {
		ID       string                    `json:"id"`
		Labels2  map[string]map[string]any `json:"labels2"`
		Attempts []shownAttempt            `json:"attempts"`
	}
	if err := json.Unmarshal(term.stdout.Bytes(), &got); err != nil {
		t.Fatalf("%s: %s", term.stdout.String(), err)
	}
	if got.ID != oneID || len(got.Attempts) != 1 || got.Labels2["a"] == nil {
		t.Errorf("got %+v", got)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{"GET /v1/callbacks": `{"data":[` + oneCallback + `],"next_cursor":"abc"}`})
	term := newTerminal("DISPATCHER_KEY=k")
	code := term.invoke("callback", "list", "--server", address, "--state", "dead,scheduled", "--topic", "t", "--label", "a=b", "--overdue", "--by-due", "--status-code", "500", "--limit", "1", "--endpoint", "merchant/7", "--kind", "notify")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	if got := term.stdout.String(); !strings.Contains(got, oneID) || !strings.Contains(got, "--cursor abc") {
		t.Errorf("shows %s", got)
	}
	want := "/v1/callbacks?endpoint=merchant%2F7&kind=notify&label.a=b&limit=1&order=due&overdue=true&state=dead&state=scheduled&status_code=500&topic=t"
	if got := requests(); len(got) != 1 || got[0].uri != want {
		t.Errorf("asked for %+v", got)
	}
}

// A rare callback is looked for page by page.
func TestListGoesOnUntilItIsFull(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"": `{"data":[],"next_cursor":"a"}`, "a": `{"data":[` + oneCallback + `],"next_cursor":"b"}`,
		"b": `{"data":[],"next_cursor":"c"}`, "c": `{"data":[` + oneCallback + `],"next_cursor":null}`,
	}
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, q.Get("cursor")+" "+q.Get("limit")) // one after the other
		if _, err := io.WriteString(w, pages[q.Get("cursor")]); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	for limit, want := range map[string]string{"1": " 1,a 1", "2": " 2,a 2,b 1,c 1", "5": " 5,a 5,b 4,c 4"} {
		asked = nil
		term := newTerminal("DISPATCHER_KEY=k")
		if code := term.invoke("callback", "list", "--server", srv.URL, "--lane", "l", "--limit", limit); code != exitOK {
			t.Fatalf("exit code %d: %s", code, term.stderr.String())
		}
		if got := strings.Join(asked, ","); got != want {
			t.Errorf("with --limit %s it asked for %q, want %q", limit, got, want)
		}
		if more := strings.Contains(term.stdout.String(), "there are more: --cursor b"); more != (limit == "1") {
			t.Errorf("with --limit %s it says: %s", limit, term.stdout.String())
		}
	}
	pages = map[string]string{"": `{"data":[],"next_cursor":null}`}
	term := newTerminal("DISPATCHER_KEY=k")
	if term.invoke("callback", "list", "--server", srv.URL); !strings.Contains(term.stdout.String(), "no callbacks match\n") {
		t.Errorf("an empty list is %q", term.stdout.String())
	}
}

func TestCancelAndRetry(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{
		"POST /v1/callbacks/" + oneID + "/cancel": `{"result":"too_late","callback":` + oneCallback + `}`,
		"POST /v1/callbacks/cancel":               `{"data":[{"result":"canceled","callback":` + oneCallback + `}]}`,
		"POST /v1/callbacks/" + oneID + "/retry":  oneCallback,
	})
	for _, tc := range []struct {
		args []string
		want string
		body string
	}{
		{[]string{"cancel", oneID, "--reason", "why"}, "too late", `{"reason":"why"}`},
		{[]string{"cancel", "--ref", "r", "--topic", "t"}, "canceled", `{"ref":"r","topic":"t"}`},
		{[]string{"cancel", "--ref", "r", "--include-terminal"}, "canceled", `{"include_terminal":true,"ref":"r"}`},
		{[]string{"retry", oneID}, "will be attempted now", `{"ladder":"once"}`},
		{[]string{"retry", oneID, "--ladder", "restart", "--url", "http://h/"}, "will be attempted now", `{"ladder":"restart","url":"http://h/"}`},
	} {
		term := newTerminal()
		if code := term.invoke(append([]string{"callback"}, append(tc.args, "--server", address, "--key", "k")...)...); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", tc.args, code, term.stderr.String())
		}
		if !strings.Contains(term.stdout.String(), tc.want) {
			t.Errorf("%v said %q", tc.args, term.stdout.String())
		}
		got := requests()
		body, err := json.Marshal(got[0].body)
		if err != nil || string(body) != tc.body {
			t.Errorf("%v sent %s (%v)", tc.args, body, err)
		}
	}
}

func TestProblemsAreOneLine(t *testing.T) {
	t.Parallel()
	address, _ := fakeServer(t, map[string]string{"POST /v1/callbacks": `{"type":"about:blank","title":"Unprocessable Entity","status":422,
 "detail":"the request cannot be meant","code":"invalid","errors":[{"field":"url","message":"is needed"},{"field":"delay","message":"is \u001b negative"}]}`})
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"callback", "send", "--url", "x", "--server", address}, `dispatcher: the request cannot be meant (422 invalid): url is needed; delay is \x1b negative`},
		{[]string{"callback", "get", oneID, "--server", address}, "dispatcher: there is no such thing in this project (404 not_found)"},
		{[]string{"verify", "--server", "http://127.0.0.1:1"}, `dispatcher: nobody listens at http://127.0.0.1:1; is "dispatcher serve" running there?`},
	} {
		term := newTerminal("DISPATCHER_ADMIN_KEY=k")
		if code := term.invoke(tc.args...); code != exitFailed {
			t.Errorf("%v: exit code %d", tc.args, code)
		}
		if lines := term.lines(); len(lines) != 1 || lines[0] != tc.want {
			t.Errorf("%v said %q", tc.args, lines)
		}
	}
}

func TestAnswersThatAreNotADispatchers(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/index/verify" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "<html>")
	}))
	defer srv.Close()
	for _, args := range [][]string{{"verify"}, {"rebuild"}, {"callback", "list"}} {
		term := newTerminal()
		if code := term.invoke(append(args, "--server", srv.URL, "--key", "k")...); code != exitFailed || len(term.lines()) != 1 {
			t.Errorf("%v: exit code %d, %q", args, code, term.lines())
		}
	}
}

func TestTheKeyIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, adminKeyFile), []byte("in-dir\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, "key", "in-file\n")
	for _, tc := range []struct {
		env   []string
		flags clientFlags
		want  string
	}{
		{[]string{"DISPATCHER_KEY=env"}, clientFlags{Key: "flag", DataDir: dir}, "flag"},
		{[]string{"DISPATCHER_KEY=env", "DISPATCHER_ADMIN_KEY=admin"}, clientFlags{DataDir: dir}, "env"},
		{[]string{"DISPATCHER_ADMIN_KEY=admin", "DISPATCHER_KEY_FILE=" + file}, clientFlags{DataDir: dir}, "admin"},
		{[]string{"DISPATCHER_ADMIN_KEY_FILE=" + file}, clientFlags{DataDir: dir}, "in-file"},
		{[]string{"DISPATCHER_DATA_DIR=" + dir}, clientFlags{}, "in-dir"},
		{nil, clientFlags{DataDir: dir}, "in-dir"},
	} {
		got, origin, err := clientKey(&newTerminal(tc.env...).console, tc.flags)
		if err != nil || got != tc.want || origin == "" {
			t.Errorf("%v %+v: got %q (%v), not %q", tc.env, tc.flags, got, err, tc.want)
		}
	}
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{"POST /v1/index/rebuild": `{"dry_run":true,"open":7,"claimed":2,"generation":0,"took":"3ms"}`})
	term := newTerminal()
	if code := term.invoke("rebuild", "--dry-run", "--server", address, "--key", "k"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	if got := requests(); got[0].body["dry_run"] != true {
		t.Errorf("sent %+v", got)
	}
	if !strings.Contains(term.stdout.String(), "7 open callbacks") {
		t.Errorf("said %q", term.stdout.String())
	}
}
