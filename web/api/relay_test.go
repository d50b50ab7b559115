package api_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// A submitFunc submits rows to a server.
type submitFunc func(source string, b client.RelayBatch) (client.RelayReply, error)

// relayed returns an API, and the two ways to submit rows to its engine: over HTTP and in process.
func relayed(t *testing.T) (testAPI, map[string]submitFunc) {
	t.Helper()
	db := newDBAt(t, filepath.Join(t.TempDir(), "d.db"))
	engine := newRunningEngine(t, db, new(receiver), 0)
	f := newTestAPIWith(t, api.Options{Engine: engine, Store: db})
	f.lenient = true
	c, err := client.New(client.Options{
		URL: "http://d.example", Key: adminKey, Retries: -1,
		HTTPClient: &http.Client{Transport: testserver.InProcess{Handler: f}},
	})
	if err != nil {
		t.Fatal(err)
	}
	sink := api.NewRelaySink(engine, "default", slog.New(slog.DiscardHandler))
	return f, map[string]submitFunc{
		"http": func(source string, b client.RelayBatch) (client.RelayReply, error) {
			return c.Relay(t.Context(), source, b)
		},
		"in process": func(source string, b client.RelayBatch) (client.RelayReply, error) {
			return sink.Submit(t.Context(), source, b)
		},
	}
}

// relayRows are rows of each kind, accepted and refused ones.
func relayRows() []client.RelayRow {
	body := []byte{0, 1, 0xff}
	row := func(id, kind, request string, body *[]byte) client.RelayRow {
		return client.RelayRow{ID: id, Kind: kind, Request: json.RawMessage(request), Body: body, AgeMs: 5}
	}
	const poll = `{"ref":"r","delay":"1h","request":{"url":"https://bank.example/"},` +
		`"until":{"success":[{"status":[200]}]}}`
	return []client.RelayRow{
		row("a", "", `{"url":"https://shop.example/","payload": {"a" : "<&\u00e9é>"},"delay":"1h"}`, nil),
		row("订单 1", "callback", ` {"url":"https://shop.example/","delay":"1h"}`+"\n", &body),
		row("empty", "", `{"url":"https://shop.example/","delay":"1h"}`, &[]byte{}),
		row("e", "event", `{"topic":"t","payload":1}`, nil),
		row("p", "poll", poll, nil),
		row("x", "", `{"url":"https://shop.example/","unheard_of":1}`, nil),
		row("x", "", `{"url":"https://shop.example/","payload":1,"endpoint":"gone"}`, nil),
		row("x", "cancel", `{}`, nil),
		row("x", "", `[]`, nil),
		row("x", "", ``, nil),
		row("", "", `{}`, nil),
		row(strings.Repeat("x", 129), "", `{}`, nil),
		{ID: "x", AgeMs: int64(7 * 24 * time.Hour / time.Millisecond), Request: json.RawMessage(`{}`)},
	}
}

// TestRelayInProcessIsAsOverHTTP submits the same rows in both ways: what one accepted is a replay for the
// other, and the problems are the same. So a relay may change its mode at any time.
func TestRelayInProcessIsAsOverHTTP(t *testing.T) {
	t.Parallel()
	const accepted = 5
	for _, order := range [][]string{{"http", "in process"}, {"in process", "http"}} {
		_, ways := relayed(t)
		var replies []client.RelayReply
		for i, way := range order {
			reply, err := ways[way]("pay", client.RelayBatch{Rows: relayRows()})
			if err != nil {
				t.Fatal(err)
			}
			for n, r := range reply.Results {
				if want := []int{202, 200}[i]; n < accepted && r.Status != want {
					t.Errorf("%s: row %d has %d %+v, want %d", way, n, r.Status, r.Problem, want)
				}
			}
			replies = append(replies, reply)
		}
		if diff := cmp.Diff(replies[0].Results[accepted:], replies[1].Results[accepted:]); diff != "" {
			t.Errorf("problems (-%s +%s):\n%s", order[0], order[1], diff)
		}
	}
}

// TestRelayErrorsAreAsOverHTTP compares the errors of whole calls.
func TestRelayErrorsAreAsOverHTTP(t *testing.T) {
	t.Parallel()
	_, ways := relayed(t)
	hold := client.RelayBatch{Holder: "relay-1", Origin: "db1/outbox", Report: &client.RelayReport{
		Error:    "a\x00b\n",
		Refusals: &[]client.RelayRefusal{{ID: "a\x01", Problem: strings.Repeat("p", 5000)}},
	}}
	if _, err := ways["http"]("pay", hold); err != nil {
		t.Fatal(err)
	}
	held, origin, unnamed := hold, hold, hold
	held.Holder, origin.Origin, unnamed.Holder = "relay-2", "db2/outbox", ""
	for code, call := range map[client.Code]struct {
		source string
		batch  client.RelayBatch
	}{
		client.CodeRelayHeld:   {"pay", held},
		client.CodeRelayOrigin: {"pay", origin},
		client.CodeInvalid:     {"pay", unnamed},
	} {
		var errs []*client.Error
		for way, submit := range ways {
			_, err := submit(call.source, call.batch)
			refused, ok := errors.AsType[*client.Error](err)
			if !ok || !errors.Is(err, code) {
				t.Fatalf("%s: %v, want %s", way, err, code)
			}
			errs = append(errs, refused)
		}
		if diff := cmp.Diff(errs[0], errs[1]); diff != "" {
			t.Errorf("%s:\n%s", code, diff)
		}
	}
	tooMany := client.RelayBatch{Rows: make([]client.RelayRow, 1001)}
	for i := range tooMany.Rows {
		tooMany.Rows[i] = client.RelayRow{ID: "a", Request: json.RawMessage(`{}`)}
	}
	for way, submit := range ways {
		if _, err := submit("pay", tooMany); !errors.Is(err, client.CodeInvalid) {
			t.Errorf("%s: 1001 rows: %v", way, err)
		}
	}
}

// TestRelayHolderIsNoSecret checks that a key which knows the name of a holder gets neither its lease nor its
// act, and that no error names what only scope read may see.
func TestRelayHolderIsNoSecret(t *testing.T) {
	t.Parallel()
	f, ways := relayed(t)
	hold := client.RelayBatch{Holder: "relay-1", Origin: "db1/outbox"}
	if _, err := ways["in process"]("pay", hold); err != nil {
		t.Fatal(err)
	}
	f.call(t, 202, "POST", "/v1/relay/pay/retry", `{}`)
	act := f.call(t, 200, "GET", "/v1/relay/pay", "")["act"].(map[string]any)["id"].(string)
	for _, body := range []string{
		`{"holder":"relay-1","origin":"db1/outbox"}`, `{"holder":"x","origin":"db2/outbox"}`,
		`{"holder":"relay-1","origin":"db1/outbox","release":true}`,
		`{"holder":"relay-1","origin":"db1/outbox","report":{"act":{"act_id":"` + act + `","state":"done"}}}`,
	} {
		rec := f.do("POST", "/v1/relay/pay", body)
		if got := rec.Body.String(); rec.Code != 409 || strings.Contains(got, "relay-1") ||
			strings.Contains(got, "db1") || !strings.Contains(got, "dispatcher relay status") {
			t.Errorf("%s: %d %s", body, rec.Code, got)
		}
	}
	reply, err := ways["in process"]("pay", hold)
	if err != nil || reply.Act == nil || reply.Act.ID != act {
		t.Errorf("the holder after that: %+v, %v", reply, err)
	}
}

// TestPollRowIsNoOtherPoll checks that a row for an open poll which is not its own is refused, also when it
// is submitted again, until that poll has ended. Its own poll stays a replay.
func TestPollRowIsNoOtherPoll(t *testing.T) {
	t.Parallel()
	f, ways := relayed(t)
	const poll = `{"ref":"r","delay":"1h","request":{"url":"https://bank.example/"},` +
		`"until":{"success":[{"status":[200]}]}}`
	other := f.call(t, 202, "POST", "/v1/polls", poll)["id"].(string)
	submit := func(way string, want int) {
		t.Helper()
		reply, err := ways[way]("pay", client.RelayBatch{Rows: []client.RelayRow{
			{ID: "p", Kind: "poll", Request: json.RawMessage(poll)}}})
		if err != nil {
			t.Fatal(err)
		}
		r := reply.Results[0]
		if r.Status != want || want == 409 && (r.Problem == nil || r.Problem.Code != "poll_live") {
			t.Errorf("%s: %d %+v, want %d", way, r.Status, r.Problem, want)
		}
	}
	submit("http", 409)
	submit("in process", 409)
	f.call(t, 200, "POST", "/v1/callbacks/"+other+"/cancel", `{}`)
	submit("http", 202)
	submit("in process", 200)
}

// TestRelayOfAnotherProject checks that a key sees and changes only the sources of its project, also those
// with a name that another project has.
func TestRelayOfAnotherProject(t *testing.T) {
	t.Parallel()
	f, ways := relayed(t)
	hold := client.RelayBatch{Holder: "relay-1", Origin: "db1/theirs"}
	if _, err := ways["http"]("theirs", hold); err != nil {
		t.Fatal(err)
	}
	other := f.newProject(t, "other")
	for _, call := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"POST", "/retry", `{}`}, {"POST", "/drop", `{"all":true}`},
		{"POST", "/replay", `{"since":"2026-11-20T00:00:00Z"}`}, {"DELETE", "", `{}`},
	} {
		rec := f.do(call.method, "/v1/relay/theirs"+call.path, call.body, other...)
		if rec.Code != 404 || strings.Contains(rec.Body.String(), "db1") {
			t.Errorf("%s %s: %d %s", call.method, call.path, rec.Code, rec.Body)
		}
	}
	got := f.call(t, 207, "POST", "/v1/relay/theirs", `{"holder":"relay-2","origin":"db2/own"}`, other...)
	if got["act"] != nil {
		t.Errorf("the other project's own source: %v", got)
	}
	theirs := f.call(t, 200, "GET", "/v1/relay/theirs", "")
	if theirs["holder"] != "relay-1" || theirs["origin"] != "db1/theirs" {
		t.Errorf("after a call of another project: %v", theirs)
	}
}
