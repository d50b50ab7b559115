package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/attempt"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// receiver answers every attempt with 200 at once, without a wire; or with 500 while it is shut.
type receiver struct{ shut atomic.Bool }

func (rc *receiver) Send(_ context.Context, r outbound.Request) outbound.Response {
	now := time.Now()
	if rc.shut.Load() {
		return outbound.Response{
			Class: store.ClassHTTP5xx, Outcome: store.AttemptFailed, Charged: true, Answered: true, Status: 500, StartedAt: now, EndedAt: now,
		}
	}
	return outbound.Response{
		Class: store.ClassOK, Outcome: store.AttemptSucceeded, Charged: true, Answered: true, Status: 200, StartedAt: now, EndedAt: now,
		RequestHeaders: []store.Header{{Name: "webhook-id", Value: r.ID}}, ResponseBody: "success",
		Rule: &store.Rule{Name: r.Success.Name, Expected: "2xx", Saw: "200"},
	}
}

// newDB returns a database of its own, a copy of one that was migrated once.
func newDB(t *testing.T) *sqlstore.DB {
	t.Helper()
	return newDBAt(t, filepath.Join(t.TempDir(), "d.db"))
}

func newDBAt(t *testing.T, path string) *sqlstore.DB {
	t.Helper()
	schema, err := migrated()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, schema, 0o600); err != nil {
		t.Fatal(err)
	}
	return openDBAt(t, path)
}

// openDBAt opens a database that is there.
func openDBAt(t *testing.T, path string) *sqlstore.DB {
	t.Helper()
	db, err := sqlstore.Open(context.Background(), sqlstore.Options{URL: "sqlite:" + path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// migrated returns the file of an empty database.
var migrated = testserver.SQLiteTemplate(func(url string) error {
	db, err := sqlstore.Open(context.Background(), sqlstore.Options{URL: url})
	if err != nil {
		return err
	}
	return errors.Join(sqlstore.Migrate(context.Background(), db), db.Close())
})

// newEngineFace returns the API over the engine itself, running on SQLite and the index in memory. It sends to the
// receiver, or to one that is open if there is none.
func newEngineFace(t *testing.T, to ...*receiver) face {
	t.Helper()
	return newEngineFaceOn(t, newDB(t), append(to, new(receiver))[0])
}

// newEngineFaceOn returns the API over an engine on the database that sends by way of the sender.
func newEngineFaceOn(t *testing.T, db *sqlstore.DB, sender attempt.Sender) face {
	t.Helper()
	return newEngineFaceWith(t, db, sender, 0)
}

// newEngineFaceWith is newEngineFaceOn with master keys that consist of the bytes.
func newEngineFaceWith(t *testing.T, db *sqlstore.DB, sender attempt.Sender, masters ...byte) face {
	t.Helper()
	keys := make([]string, len(masters))
	for i, b := range masters {
		keys[i] = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, secret.MasterKeyBytes))
	}
	keyring, err := secret.NewKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := dispatch.New(dispatch.Options{
		Store: db, Schedule: memq.New(memq.Options{}), Sender: sender, Keyring: keyring, Alone: true,
		ReadTemplate: api.ReadTemplate,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	// A new index is filled while callbacks are accepted already; what looks at it waits for that.
	testserver.Until(t, "the index is filled", func() bool { return len(engine.Health(ctx).Degraded) == 0 })
	return newFaceOf(t, api.Options{Engine: engine, Store: db})
}

// settled polls a callback until it is in the state.
func (f face) settled(t *testing.T, id, state string) (got map[string]any) {
	t.Helper()
	testserver.Until(t, id+" is "+state, func() bool {
		got = f.ask(t, 200, "GET", "/v1/callbacks/"+id, "")
		return got["state"] == state
	})
	return got
}

// TestOutcomesThroughTheEngine: a reader with no more than its cursor is told of each end, and of both ends of one
// that is retried.
func TestOutcomesThroughTheEngine(t *testing.T) {
	t.Parallel()
	to := &receiver{}
	to.shut.Store(true)
	f := newEngineFace(t, to)
	cursor := f.ask(t, 200, "GET", "/v1/outcomes", "")["next_cursor"].(string)
	const body = `{"url":"https://shop.example/","payload":1,"policy":{"tiers":[]},"topic":"t","idempotency_key":"k"}`
	id := f.ask(t, 202, "POST", "/v1/callbacks", body)["id"].(string)
	next := func() map[string]any {
		t.Helper()
		var told []any
		testserver.Until(t, "an outcome is told", func() bool {
			page := f.ask(t, 200, "GET", "/v1/outcomes?wait=5s&cursor="+cursor, "")
			cursor, told = page["next_cursor"].(string), page["data"].([]any)
			return len(told) > 0
		})
		if len(told) > 1 {
			t.Errorf("told of more: %v", told)
		}
		return told[0].(map[string]any)
	}
	dead := next()
	if dead["id"] != id || dead["state"] != "dead" || dead["reason"] != "exhausted" || dead["attempt_count"] != 1.0 ||
		dead["last_class"] != "http_5xx" || dead["last_status"] != 500.0 || dead["topic"] != "t" {
		t.Errorf("ended: %v", dead)
	}
	if again := f.ask(t, 200, "POST", "/v1/callbacks", body); again["id"] != id || again["replayed"] != true {
		t.Errorf("replayed: %v", again)
	}
	wantProblem(t, f.do("POST", "/v1/callbacks", body+" "), 422, "idempotency_mismatch")
	page := f.ask(t, 200, "GET", "/v1/outcomes?cursor="+cursor, "")
	if len(page["data"].([]any)) != 0 || page["next_cursor"] != cursor {
		t.Errorf("nothing new: %v", page)
	}
	to.shut.Store(false)
	f.ask(t, 200, "POST", "/v1/callbacks/"+id+"/retry", "")
	if again := next(); again["id"] != id || again["state"] != "succeeded" || again["attempt_count"] != 2.0 {
		t.Errorf("ended again: %v", again)
	}
	f.ask(t, 201, "POST", "/v1/projects", `{"id":"b"}`)
	page = f.askAs(t, 200, "GET", "/v1/outcomes", "", "Dispatcher-Project", "b")
	if len(page["data"].([]any)) != 0 {
		t.Errorf("outcomes of another project: %v", page)
	}
}

// TestEveryRefusalOfTheEngineIsNamed as the field stands in the request. What the engine refuses, its own tests show.
func TestEveryRefusalOfTheEngineIsNamed(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	f.ask(t, 201, "POST", "/v1/endpoints", `{"external_id":"all","url":"https://a.example/","topics":["*"]}`)
	made := f.ask(t, 201, "POST", "/v1/schedules", `{"name":"a","cron":"@daily","callback":{"url":"https://shop.example/","payload":1}}`)
	good := map[string]string{
		"POST /v1/callbacks": `"url":"https://h/","payload":1`, "POST /v1/endpoints": `"url":"https://h/"`, "POST /v1/events": `"topic":"t","payload":1`,
		"POST /v1/polls":    `"ref":"a","request":{"url":"https://h/"},"until":{"failure":[{"status":[404]}]}`,
		"POST /v1/redrives": `"action":"retry","filter":{"state":"dead"}`, "PATCH /v1/schedules/" + made["id"].(string): ``,
		"POST /v1/keys": `"name":"x","scopes":["send"]`,
	}
	callback := func(more string) string { return `"callback":{"url":"https://shop.example/","payload":1,` + more + `}` }
	for route, rows := range map[string][][2]string{
		"callbacks": {
			{`"endpoint":"ep_1"`, "endpoint"}, {`"policy":"nope"`, "policy"}, {`"success":"nope"`, "success"},
			{`"policy":{"tiers":[],"timeout":"61s"}`, "policy.timeout"}, {`"delay":"1s","due_at":"2026-11-21T08:00:00Z"`, "delay"},
			{`"headers":{"Host":"x"}`, "headers.Host"}, {`"lane":"` + strings.Repeat("l", 129) + `"`, "lane"},
			{`"labels":{"a":"` + strings.Repeat("v", 257) + `"}`, "labels.a"}, {`"order":"strict"`, "order"}, {`"start_attempt":99`, "start_attempt"},
			{`"labels":{"` + strings.Repeat("n", 65) + `":"v"}`, "labels." + strings.Repeat("n", 65)}, {`"policy":{"tiers":["401d"]}`, "policy.tiers"},
			{`"policy":{"tiers":["1s"],"jitter":-0.1}`, "policy.jitter"}, {`"due_at":"2999-01-01T00:00:00Z"`, "due_at"},
		},
		"endpoints": {
			{`"rate":"fast"`, "rate"}, {`"topics":["a*"]`, "topics[0]"}, {`"policy":"nope"`, "policy"}, {`"success":{"status":["2xx"]}`, "success.status[0]"},
			{`"signer":{"type":"nope"}`, "signer.type"}, {`"profile":"nope"`, "profile"}, {`"url_override":"maybe"`, "url_override"},
			{`"concurrency":10001`, "concurrency"}, {`"headers":{"Host":"x"}`, "headers.Host"}, {`"external_id":"ep_x"`, "external_id"},
		},
		"events": {
			{`"url":"https://a.example/"`, "url"}, {`"endpoint":"all"`, "endpoint"}, {`"lane":"m"`, "lane"}, {`"profile":"alipay"`, "profile"},
			{`"signer":"none"`, "signer"}, {`"policy":"nope"`, "policy"}, {`"delay":"500d"`, "delay"},
		},
		"polls": {
			{`"error_budget":1001`, "error_budget"}, {`"evaluate":["300"]`, "evaluate"}, {`"on_result":{}`, "on_result.url"},
			{`"on_result":{"url":"ftp://x"}`, "on_result.url"}, {`"hold_if":[{"pointer":"a","eq":1}]`, "hold_if[0].pointer"},
		},
		"redrives": {{`"rate":"fast"`, "rate"}, {`"ladder":"twice"`, "ladder"}},
		"schedules": {
			{`"cron":"30 1 * *"`, "cron"}, {`"cron":"TZ=UTC 30 1 * * *"`, "cron"}, {`"cron":"0 0 31 2 *"`, "cron"}, {`"timezone":"Mars"`, "timezone"},
			{`"missed":"all"`, "missed"}, {`"name":""`, "name"}, {callback(`"x":1`), "callback.x"}, {callback(`"due_at":"2026-11-21T08:00:00Z"`), "callback.due_at"},
			{callback(`"idempotency_key":"k"`), "callback.idempotency_key"}, {callback(`"headers":{"Authorization":"***"}`), "callback.headers.Authorization"},
			{callback(`"policy":"nobody's"`), "callback.policy"}, {callback(`"policy":{"tiers":["1s"],"stop_on":[410,1000]}`), "callback.policy.stop_on[1]"},
			{`"callback":{"endpoint":"nobody","payload":1}`, "callback.endpoint"},
			{`"callback":{"url":"https://shop.example/","payload":"` + strings.Repeat("x", 256<<10) + `"}`, "callback.payload"},
		},
		"keys": {{`"scopes":["root"]`, "scopes[0]"}, {`"expires_in":"0s"`, "expires_in"}},
	} {
		for call, members := range good {
			method, path, _ := strings.Cut(call, " ")
			if !strings.HasPrefix(path, "/v1/"+route) {
				continue
			}
			for _, row := range rows {
				// Fields of the good request that the row has too are the row's.
				var spoilt map[string]json.RawMessage
				if err := json.Unmarshal([]byte("{"+strings.Trim(members+","+row[0], ",")+"}"), &spoilt); err != nil {
					t.Fatal(err)
				}
				body, _ := json.Marshal(spoilt)
				if fields := f.refused(t, method, path, string(body)); !slices.Equal(fields, []string{row[1]}) {
					t.Errorf("%s %.100s: %q, want %q", call, body, fields, row[1])
				}
			}
		}
	}
	for _, c := range []struct{ path, body, fields string }{
		{"/v1/callbacks", `{}`, "[payload url]"}, {"/v1/endpoints", `{}`, "[url]"}, {"/v1/events", `{}`, "[payload topic]"}, {"/v1/keys", `{}`, "[name scopes]"},
		{"/v1/polls", `{}`, "[ref request.url until]"}, {"/v1/redrives", `{}`, "[action filter]"}, {"/v1/schedules", `{}`, "[callback cron name]"},
		{"/v1/polls", `{"ref":"a","request":{"url":"ftp://x","headers":{"Host":"h"}},"until":{"success":[{"pointer":7}]}}`,
			"[request.headers.Host request.url until.success[0] until.success[0].pointer]"},
		{"/v1/redrives", `{"action":"purge","filter":{"state":"dead","q":"x"},"rate":"fast","x":1}`, "[action filter.q rate x]"},
		{"/v1/redrives", `{"action":"set_url","filter":{"state":"dead"}}`, "[url]"}, {"/v1/redrives", `{"action":"retry","filter":{"topic":null}}`, "[filter]"},
		{"/v1/redrives", `{"action":"reschedule","filter":{"state":"dead"}}`, "[due_at]"},
	} {
		fields := f.refused(t, "POST", c.path, c.body)
		slices.Sort(fields)
		if got := fmt.Sprint(fields); got != c.fields {
			t.Errorf("%s %.100s: %s, want %s", c.path, c.body, got, c.fields)
		}
	}
}
