package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// testServer answers a test of an endpoint: the callback is open for some looks at it, then it is as it ends.
func testServer(t *testing.T, openFor int64, ended string) string {
	t.Helper()
	var looks atomic.Int64
	open := with(t, oneCallback, `{"attempt_count":0,"last_status":null,"last_class":null}`)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := open
		switch r.Method + " " + r.URL.Path {
		case "POST /v1/endpoints/" + endpointID + "/test":
		case "GET /v1/callbacks/" + oneID:
			if looks.Add(1) > openFor {
				answer = ended
			}
		case "GET /v1/callbacks/" + oneID + "/attempts":
			answer = `{"data":[` + oneAttempt + `]}`
		case "GET /v1/callbacks/" + oneID + "/explain":
			answer = `{"summary":"Its endpoint is paused.","next_at":null,"blocking":[{"code":"endpoint_paused","since":null,"until":null,"detail":"The endpoint is paused: x","cure":"POST /v1/endpoints/` + endpointID + `/resume"}]}`
		default:
			t.Errorf("asked for %s %s", r.Method, r.URL.Path)
		}
		if _, err := io.WriteString(w, answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestEndpointTestWaits(t *testing.T) {
	t.Parallel()
	dead := with(t, oneCallback, `{"state":"dead","reason":"exhausted","finished_at":"2026-11-21T10:00:01.000Z"}`)
	well := with(t, oneCallback, `{"state":"succeeded","reason":null,"finished_at":"2026-11-21T10:00:01.000Z"}`)
	for _, tc := range []struct {
		ended  string
		openTo int64
		args   []string
		code   int
		says   string
	}{
		{dead, 3, nil, exitFailed, oneID + "  dead: exhausted\n  POST https://shop.example/notify  500 http_5xx: \\x1b[31mboom"},
		{well, 0, nil, exitOK, oneID + "  succeeded\n"},
		{well, 1, []string{"--json"}, exitOK, `"attempts": [`},
		{dead, 1, []string{"--json"}, exitFailed, `"attempts": [`},
	} {
		term := newTerminal("DISPATCHER_SERVER="+testServer(t, tc.openTo, tc.ended), "DISPATCHER_KEY=k")
		if code := term.invoke(append([]string{"endpoint", "test", endpointID, "--wait"}, tc.args...)...); code != tc.code {
			t.Errorf("exit code %d: %s", code, term.stderr.String())
		}
		if !strings.Contains(term.stdout.String(), tc.says) {
			t.Errorf("does not say %q: %s", tc.says, term.stdout.String())
		}
	}
}

// A test that something holds does not wait for ever, and says what that is and how it is ended from the shell.
func TestEndpointTestThatIsHeld(t *testing.T) {
	t.Parallel()
	term := newTerminal("DISPATCHER_SERVER="+testServer(t, 1<<30, ""), "DISPATCHER_KEY=k")
	if code := term.invoke("endpoint", "test", endpointID, "--wait", "--timeout", "100ms"); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"Its endpoint is paused.", "cure: dispatcher endpoint resume " + endpointID, "has not ended within 100ms"} {
		if !strings.Contains(term.stderr.String(), want) {
			t.Errorf("does not say %q: %s", want, term.stderr.String())
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	address, _ := fakeServer(t, map[string]string{"GET /v1/callbacks/" + oneID + "/explain": `{"summary":"Its lane is paused.","next_at":"2099-01-01T00:00:00.000Z","blocking":[
 {"code":"lane_paused","since":"2026-11-21T10:00:00.000Z","until":"2099-01-01T00:00:00.000Z","detail":"The lane is paused: \u001b[31mx","cure":"POST /v1/lanes/https://shop.example:443/resume"},
 {"code":"endpoint_disabled","since":null,"until":null,"detail":"d","cure":"PATCH /v1/endpoints/ep_1 {\"enabled\": true}"},
 {"code":"project_paused","since":null,"until":null,"detail":"d","cure":"POST /v1/resume"},
 {"code":"not_due","since":null,"until":null,"detail":"d","cure":"Retry it to have it attempted at once."},{"code":"attempting","since":null,"until":null,"detail":"d","cure":null}]}`})
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
	if code := term.invoke("callback", "explain", oneID); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	got := term.stdout.String()
	for _, want := range []string{
		"Its lane is paused.\nit is attempted at the earliest 2099-01-01", "\nlane_paused  since 2026-11-21", "until 2099-01-01", `The lane is paused: \x1b[31mx`,
		"cure: dispatcher lane resume https://shop.example:443\n", "cure: dispatcher endpoint set ep_1 --enable\n", "cure: dispatcher resume\n", "cure: Retry it to",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("does not say %q:\n%s", want, got)
		}
	}
	if strings.Count(got, "cure:") != 4 {
		t.Errorf("says a cure where there is none:\n%s", got)
	}
}

// Evidence is handed on as it is; only a terminal is kept safe from what receivers wrote.
func TestEvidence(t *testing.T) {
	t.Parallel()
	const text = "callback: cb_1\n  answer body: \x1b[31mboom\n"
	address := answering(t, http.StatusOK, text)
	for onTerminal, want := range map[bool]string{false: text, true: "callback: cb_1\n  answer body: \\x1b[31mboom\n"} {
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		term.outTerminal = onTerminal
		if code := term.invoke("callback", "evidence", oneID); code != exitOK || term.stdout.String() != want {
			t.Errorf("exit code %d: %q", code, term.stdout.String())
		}
	}
}

// Lines go in batches; one that is refused, by the server or before, stops no other.
func TestEndpointPut(t *testing.T) {
	t.Parallel()
	var batches [][]map[string]any
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Endpoints []map[string]any `json:"endpoints"`
			Reason    string           `json:"reason"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Reason != "load" || r.URL.Path != "/v1/endpoints/batch" {
			t.Errorf("%s: %+v %v", r.URL.Path, in.Reason, err)
		}
		batches = append(batches, in.Endpoints) // one after the other
		var results []string
		for _, ep := range in.Endpoints {
			switch id, _ := ep["external_id"].(string); {
			case strings.HasSuffix(id, "7"):
				results = append(results, `{"status":200,"endpoint":{}}`)
			case id == "bad":
				results = append(results, `{"status":422,"problem":{"status":422,"detail":"it cannot be meant: see errors (url)","code":"invalid","errors":[{"field":"url","message":"is wrong"}]}}`)
			default:
				results = append(results, `{"status":201,"endpoint":{}}`)
			}
		}
		w.WriteHeader(http.StatusMultiStatus)
		if _, err := io.WriteString(w, `{"results":[`+strings.Join(results, ",")+`]}`); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	var b strings.Builder
	b.WriteString("\n[1]\n{\"external_id\": \"bad\"\n{\"external_id\": \"bad\"}\n")
	for i := range 1500 {
		fmt.Fprintf(&b, `{"external_id": "m%d", "url": "https://shop.example/%d"}`+"\n", i, i)
	}
	term := newTerminal("DISPATCHER_SERVER="+srv.URL, "DISPATCHER_KEY=k")
	if code := term.invoke("endpoint", "put", writeFile(t, "endpoints.ndjson", b.String()), "--reason", "load"); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if got := term.stdout.String(); got != "1503 endpoints: 1350 made, 150 replaced, 3 refused\n" {
		t.Errorf("said %s", got)
	}
	want := []string{"line 2: the line is not a JSON object (422 invalid)", "line 3: the line is not JSON: unexpected end of JSON input at byte 21 (400 bad_json)", "line 4: it cannot be meant (422 invalid): url is wrong"}
	if lines := term.lines(); strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("said %q", lines)
	}
	if len(batches) != 2 || len(batches[0]) != 1000 || len(batches[1]) != 501 {
		t.Errorf("made %d batches", len(batches))
	}
	term = newTerminal("DISPATCHER_SERVER="+srv.URL, "DISPATCHER_KEY=k")
	term.in = strings.NewReader(`{"external_id":"m7"}`)
	if code := term.invoke("endpoint", "put", "-", "--json", "--reason", "load"); code != exitOK || !strings.Contains(term.stdout.String(), `"replaced": 1`) {
		t.Errorf("exit code %d: %s %s", code, term.stdout.String(), term.stderr.String())
	}
	refusing := answering(t, http.StatusForbidden, `{"title":"Forbidden","status":403,"detail":"the key may not do this","code":"forbidden"}`)
	term = newTerminal("DISPATCHER_SERVER="+refusing, "DISPATCHER_KEY=k")
	term.in = strings.NewReader(`{"external_id":"m7"}`)
	if code := term.invoke("endpoint", "put", "-"); code != exitFailed || !strings.HasPrefix(term.stderr.String(), "dispatcher: lines 1 to 1: the key may not do this (403 forbidden)") {
		t.Errorf("exit code %d: %s", code, term.stderr.String())
	}
}
