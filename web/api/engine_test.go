package api_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// What the API asks for is what the engine and the store have.
var (
	_ api.Callbacks     = (*dispatch.Engine)(nil)
	_ api.Explanations  = (*dispatch.Engine)(nil)
	_ api.Events        = (*dispatch.Engine)(nil)
	_ api.Endpoints     = (*dispatch.Engine)(nil)
	_ api.Lanes         = (*dispatch.Engine)(nil)
	_ api.Presets       = (*dispatch.Engine)(nil)
	_ api.Projects      = (*dispatch.Engine)(nil)
	_ api.Keys          = (*dispatch.Engine)(nil)
	_ api.Secrets       = (*dispatch.Engine)(nil)
	_ api.Redrives      = (*dispatch.Engine)(nil)
	_ api.Polls         = (*dispatch.Engine)(nil)
	_ api.Schedules     = (*dispatch.Engine)(nil)
	_ api.Outcomes      = (*dispatch.Engine)(nil)
	_ api.Index         = (*dispatch.Engine)(nil)
	_ api.Reads         = (*sqlstore.DB)(nil)
	_ api.EndpointReads = (*sqlstore.DB)(nil)
	_ api.ProjectReads  = (*sqlstore.DB)(nil)
	_ api.RedriveReads  = (*sqlstore.DB)(nil)
	_ api.ScheduleReads = (*sqlstore.DB)(nil)
	_ api.Books         = (*sqlstore.DB)(nil)
)

// receiver answers every attempt with 200 at once, without a wire; or with 500 while it is shut. To polls the one is a final success, the
// other an error.
type receiver struct{ shut atomic.Bool }

func (rc *receiver) Send(_ context.Context, r outbound.Request) outbound.Response {
	resp := rc.answer(&r)
	if r.Poll {
		if resp.MaxErrors = outbound.DefaultErrorBudget; resp.Class == store.ClassOK {
			resp.Verdict = outbound.VerdictSuccess
		}
	}
	return resp
}

func (rc *receiver) answer(r *outbound.Request) outbound.Response {
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

// newEngineFace returns the API over the engine itself, running on SQLite and the index in memory.
func newEngineFace(t *testing.T) face {
	t.Helper()
	return newEngineFaceFor(t, &receiver{})
}

func newEngineFaceFor(t *testing.T, to *receiver) face {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	db, err := sqlstore.Open(ctx, sqlstore.Options{URL: "sqlite:" + filepath.Join(t.TempDir(), "d.db")})
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlstore.Migrate(ctx, db); err != nil {
		t.Fatal(err)
	}
	key := make([]byte, dispatch.MasterKeyBytes)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	keyring, err := dispatch.NewKeyring([]string{base64.StdEncoding.EncodeToString(key)})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := dispatch.New(dispatch.Options{
		Store: db, Schedule: memq.New(memq.Options{}), Sender: to, Keyring: keyring, Alone: true, ReadTemplate: api.ReadTemplate,
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	// A new index is filled while callbacks are accepted already; what looks at it waits for that.
	for deadline := time.Now().Add(20 * time.Second); len(engine.Health(ctx).Degraded) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the index was not filled within 20 s")
		}
	}
	return newFaceOf(t, api.Options{
		Callbacks: engine, Explanations: engine, Events: engine, Endpoints: engine, Lanes: engine, Presets: engine, Projects: engine,
		Keys: engine, Secrets: engine, Redrives: engine, Polls: engine, Schedules: engine, Outcomes: engine, Index: engine,
		Reads: db, EndpointReads: db, ProjectReads: db, RedriveReads: db, ScheduleReads: db, Books: db,
	})
}

// settled polls a callback until it is in the state.
func (f face) settled(t *testing.T, id, state string) map[string]any {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		got := f.ask(t, 200, "GET", "/v1/callbacks/"+id, "")
		if got["state"] == state {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("callback is %v and not %s after 20 s", got["state"], state)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestLifeThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	const body = `{"url":"https://shop.example/notify","payload": {"paid" : 10000},"ref":"o-1","idempotency_key":"k-1"}`
	id := f.ask(t, 202, "POST", "/v1/callbacks", body)["id"].(string)
	got := f.settled(t, id, "succeeded")
	if got["due_at"] != nil || got["attempt_count"] != 1.0 || got["last_class"] != "ok" || got["finished_at"] == nil || got["max_attempts"] != 10.0 {
		t.Errorf("settled: %v", got)
	}
	if again := f.ask(t, 200, "POST", "/v1/callbacks", body); again["id"] != id || again["replayed"] != true {
		t.Errorf("replayed: %v", again)
	}
	wantProblem(t, f.do("POST", "/v1/callbacks", body+" "), 422, "idempotency_mismatch")
	attempts := f.ask(t, 200, "GET", "/v1/callbacks/"+id+"/attempts", "")["data"].([]any)
	if len(attempts) != 1 || attempts[0].(map[string]any)["outcome"] != "succeeded" {
		t.Errorf("attempts: %v", attempts)
	}
	if rec := f.do("GET", "/v1/callbacks/"+id+"/payload", ""); rec.Body.String() != `{"paid" : 10000}` {
		t.Errorf("payload: %d %s", rec.Code, rec.Body)
	}
	if r := f.ask(t, 200, "POST", "/v1/callbacks/"+id+"/cancel", "")["result"]; r != "already_terminal" {
		t.Errorf("cancel of a terminal one: %v", r)
	}
	wantProblem(t, f.do("POST", "/v1/callbacks/"+id+"/reschedule", `{"delay":"1h"}`), 409, "terminal")
}

func TestChangesThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	later := func(ref string) string {
		return f.ask(t, 202, "POST", "/v1/callbacks", fmt.Sprintf(`{"url":"https://shop.example/","payload":1,"delay":"1h","ref":%q}`, ref))["id"].(string)
	}
	one, two, three := later("a"), later("b"), later("b")
	if r := f.ask(t, 200, "POST", "/v1/callbacks/"+one+"/reschedule", `{"delay":"2h","reason":"closed"}`); r["state"] != "scheduled" {
		t.Errorf("reschedule: %v", r)
	}
	if r := f.ask(t, 200, "POST", "/v1/callbacks/cancel", `{"ref":"b"}`)["data"].([]any); len(r) != 2 {
		t.Errorf("cancel by ref: %v", r)
	}
	for _, id := range []string{two, three} {
		if got := f.settled(t, id, "canceled"); got["reason"] != "requested" {
			t.Errorf("canceled: %v", got)
		}
	}
	f.ask(t, 200, "POST", "/v1/callbacks/"+one+"/retry", "")
	f.settled(t, one, "succeeded")
	if data := f.ask(t, 200, "GET", "/v1/audit?limit=500", "")["data"].([]any); len(data) < 4 {
		t.Errorf("%d changes are audited: %v", len(data), data)
	}
	unknown := "/v1/callbacks/" + oneID
	for path, body := range map[string]string{"/cancel": "", "/retry": "", "/reschedule": `{"delay":"1s"}`} {
		wantProblem(t, f.do("POST", unknown+path, body), 404, "not_found")
	}
}

func TestOperationThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	got := f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","body":"x","delay":"1h"}`)
	f.settled(t, got["id"].(string), "scheduled")
	lane := got["lane"].(string)
	secret := func() string {
		return f.ask(t, 200, "GET", "/v1/secret?lane="+lane, "")["secret"].(string)
	}
	first := secret()
	if !strings.HasPrefix(first, "whsec_") || secret() != first {
		t.Errorf("secret %q, then %q", first, secret())
	}
	f.ask(t, 200, "POST", "/v1/secret/rotate", `{"reason":"leaked"}`)
	if secret() == first {
		t.Error("the secret is the old one after a rotation")
	}
	if r := f.ask(t, 200, "POST", "/v1/index/verify", ""); r["clean"] != true {
		t.Errorf("verify: %v", r)
	}
	if r := f.ask(t, 200, "POST", "/v1/index/rebuild", `{"dry_run":true}`); r["open"] != 1.0 || r["dry_run"] != true {
		t.Errorf("dry rebuild: %v", r)
	}
	if r := f.ask(t, 200, "POST", "/v1/index/rebuild", ""); r["open"] != 1.0 {
		t.Errorf("rebuild: %v", r)
	}
	stats := f.ask(t, 200, "GET", "/v1/stats", "")
	if stats["states"].(map[string]any)["scheduled"] != 1.0 || stats["index"].(map[string]any)["delayed"] != 1.0 {
		t.Errorf("stats: %v", stats)
	}
}

// TestEveryRefusalOfTheEngineIsNamed: values that can be decoded and not be meant are 422 with the field.
func TestEveryRefusalOfTheEngineIsNamed(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	for body, field := range map[string]string{
		`{"payload":1}`: "url", `{"url":"ftp://h/","payload":1}`: "url", `{"url":"https://h/"}`: "payload", `{"url":"https://h/","payload":1,"endpoint":"ep_1"}`: "endpoint",
		`{"url":"https://h/","payload":1,"policy":"nope"}`: "policy", `{"url":"https://h/","payload":1,"success":"nope"}`: "success",
		`{"url":"https://h/","payload":1,"policy":{"tiers":[],"timeout":"61s"}}`: "policy.timeout", `{"url":"https://h/","payload":1,"delay":"1s","due_at":"2026-11-21T08:00:00Z"}`: "delay",
		`{"url":"https://h/","payload":1,"headers":{"Host":"x"}}`: "headers.Host", `{"url":"https://h/","payload":1,"lane":"` + strings.Repeat("l", 129) + `"}`: "lane",
		`{"url":"https://h/","payload":1,"idempotency_key":"` + strings.Repeat("k", 257) + `"}`: "idempotency_key",
	} {
		fields := wantProblem(t, f.do("POST", "/v1/callbacks", body), 422, "invalid")
		if len(fields) != 1 || fields[0] != field {
			t.Errorf("%.100s: %q, want %q", body, fields, field)
		}
	}
}
