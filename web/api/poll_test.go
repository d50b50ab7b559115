package api_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestGoldenPolls(t *testing.T) {
	t.Parallel()
	bare := control.PollView{Callback: sample(), Rule: `{"until":{"success":[{"exists":true,"pointer":""}]},"hold_if":null}`}
	bare.Callback.Kind = store.Poll
	resolved := somePoll()
	resolved.Callback.State, resolved.Callback.Reason, resolved.Callback.FinishedAt = store.Succeeded, store.ResolvedOutside, nowMS
	resolved.Detail.Outcome, resolved.Detail.ResultID, resolved.Detail.Data = store.PollResolved, bareEndpoint, `[1,"<b>"]`
	// It had been told as unresolved before it was retried, and is open.
	again := somePoll()
	again.Detail.Outcome, again.Detail.ResultID = store.PollUnresolved, bareEndpoint
	for name, v := range map[string]control.PollView{"poll.json": somePoll(), "poll_bare.json": bare, "poll_resolved.json": resolved, "poll_again.json": again} {
		golden(t, newFace(t, &engine{poll: v}), name, "GET", "/v1/polls/"+oneID, "")
	}
	golden(t, newFace(t, &engine{}), "poll_resolve.json", "POST", "/v1/polls/"+oneID+"/resolve", "")
}

// TestADamagedPoll is shown all the same.
func TestADamagedPoll(t *testing.T) {
	t.Parallel()
	for _, rule := range []store.JSONText{"", "{", `[]`, `"until"`, `null`, `{"until":{}`} {
		v := somePoll()
		v.Rule, v.Detail.Context, v.Detail.Data = rule, `{"a`, "\xff"
		got := newFace(t, &engine{poll: v}).ask(t, 200, "GET", "/v1/polls/"+oneID, "")["poll"].(map[string]any)
		if got["until"] != nil || got["error_budget"] != nil || got["context"] != `{"a` {
			t.Errorf("%q: %v", rule, got)
		}
	}
}

const everyFieldOfAPoll = `{"ref":"o-1","request":{"url":"https://upstream.example/q","endpoint":"merchant-7","method":"post","headers":{"X-Shop":"7"},
	"payload":{ "no" : 7 },"content_type":"application/json","signer":"none"},
	"policy":{"tiers":["5s","1m"],"repeat_last":true,"deadline":"3d"},"delay":"1m","due_at":"2026-11-21T08:00:00Z","expires_in":"4d",
	"until": { "success" : [ {"pointer":"/s","in":["SUCCESS"]} ] },"hold_if":[ {"status":[429]} ],"evaluate":["200-299", 404],"error_budget":0,
	"topic":"payment.result","labels":{"channel":"alipay"},"lock_key":"k","lane":"m-1","context": [ 1, {"a":"\u0000"} ] ,
	"on_result":{"url":"https://shop.example/notify","endpoint":"merchant-8","method":"PUT","headers":{"A":"b"},"topic":"t","ref":"r","profile":"alipay","policy":"short",
	"success":"body-success","signer":{"type":"t-v1"},"delay":"1s","expires_in":"1d","lock_key":"l","order":"strict","lane":"m-2","supersede":true,"version":7,
	"start_attempt":2,"labels":{"c":"d"}},"idempotency_key":"k-1"}`

func TestEveryFieldOfAPollArrives(t *testing.T) {
	t.Parallel()
	e := &engine{}
	if got := newFace(t, e).ask(t, 202, "POST", "/v1/polls", everyFieldOfAPoll); got["id"] != oneID || got["replayed"] != nil {
		t.Errorf("%v", got)
	}
	got := e.given.what.(accept.PollSubmission)
	policy := accept.DefaultPolicy()
	policy.Tiers, policy.RepeatLast, policy.Deadline = []time.Duration{5 * time.Second, time.Minute}, true, 72*time.Hour
	want := accept.PollSubmission{
		Submission: accept.Submission{
			Ref: "o-1", URL: "https://upstream.example/q", Endpoint: "merchant-7", Method: "post", Headers: []store.Header{{Name: "X-Shop", Value: "7"}},
			Body: []byte(`{ "no" : 7 }`), BodyField: "payload", ContentType: "application/json", Choice: accept.Choice{Signer: "none", Policy: policy, PolicyGiven: true},
			Delay: new(time.Minute), DueAt: new(int64(nowMS)), ExpiresIn: new(96 * time.Hour), Topic: "payment.result",
			Labels: map[string]string{"channel": "alipay"}, LockKey: "k", Lane: "m-1", IdempotencyKey: "k-1", Route: "POST /v1/polls", Fingerprint: got.Fingerprint,
		},
		Until: []byte(`{ "success" : [ {"pointer":"/s","in":["SUCCESS"]} ] }`), HoldIf: []byte(`[ {"status":[429]} ]`), Evaluate: []byte(`["200-299", 404]`),
		ErrorBudget: new(0), Context: []byte(`[ 1, {"a":"\u0000"} ]`),
		OnResult: &accept.Submission{
			URL: "https://shop.example/notify", Endpoint: "merchant-8", Method: "PUT", Headers: []store.Header{{Name: "A", Value: "b"}}, Topic: "t", Ref: "r",
			Choice: accept.Choice{Profile: "alipay", PolicyName: "short", Success: "body-success", Signer: `{"type":"t-v1"}`},
			Delay:  new(time.Second), ExpiresIn: new(24 * time.Hour), LockKey: "l", Order: "strict", Lane: "m-2", Supersede: true, Version: new(int64(7)),
			StartAttempt: 2, Labels: map[string]string{"c": "d"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got.Fingerprint) != 32 || e.given.project != store.DefaultProject {
		t.Errorf("of the project %s (-want +got):\n%s", e.given.project, diff)
	}
}

// TestNullsOfPolls: they are not given.
func TestNullsOfPolls(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]accept.PollSubmission{
		`{"request":{"url":null,"payload":null,"body":null,"signer":null}}`: {},
		// What may not be given may be null: so it is elsewhere.
		`{"on_result":{"payload":null,"due_at":null,"idempotency_key":null,"content_type":null,"url":null}}`: {OnResult: &accept.Submission{}},
		`{"context":false,"on_result":{}}`:                  {Context: []byte("false"), OnResult: &accept.Submission{}},
		`{"until":{},"hold_if":[],"evaluate":[],"ref":"x"}`: {Submission: accept.Submission{Ref: "x"}, Until: []byte(`{}`), HoldIf: []byte(`[]`), Evaluate: []byte(`[]`)},
	} {
		e := &engine{}
		newFace(t, e).arrives(t, e, 202, "POST", "/v1/polls", body, want)
	}
}

func TestPollsRefuse(t *testing.T) {
	t.Parallel()
	rows := map[string]string{
		`{"id":"cb_1"}`: "id", `{"ref":"a\u0000"}`: "ref", `{"labels":{"a":1}}`: "labels.a", `{"delay":"-1s"}`: "delay", `{"due_at":"soon"}`: "due_at",
		`{"policy":{"tiers":["x"]}}`: "policy.tiers[0]", `{"idempotency_key":""}`: "idempotency_key", `{"request":{"url":7},"ref":7}`: "ref",
		`{"request":{"URL":"u"}}`: "request.URL", `{"request":{"headers":{"A":1}}}`: "request.headers.A", `{"request":{"payload":1,"body":"x"}}`: "request.body",
		`{"request":{"body_base64":"AA"}}`: "request.body_base64", "{\"request\":{\"payload\":\"\xff\"}}": "request.payload", `{"until":[]}`: "until",
		`{"evaluate":{}}`: "evaluate", "{\"until\":{\"success\":[{\"pointer\":\"\xff\"}]}}": "until", "{\"hold_if\":[\"\xff\"]}": "hold_if",
		`{"context":"` + strings.Repeat("x", accept.MaxPollContext-1) + `"}`: "context", "{\"context\":\"\xff\"}": "context",
		`{"context":[` + strings.Repeat(" ", accept.MaxPollContext-1) + `]}`: "context", `{"on_result":{"x":1}}`: "on_result.x",
		`{"on_result":{"headers":{"A":1}}}`: "on_result.headers.A",
	}
	for _, budget := range []string{"-1", "1.5", "1e1", "9223372036854775808", "1000001"} {
		rows[`{"error_budget":`+budget+`}`] = "error_budget"
	}
	// What a callback has and a poll, its request or its result has not.
	for within, fields := range map[string][]string{
		"":           {"url", "method", "payload", "signer", "success", "profile", "order", "supersede", "version", "start_attempt"},
		"request.":   {"profile", "success", "policy", "ref", "request"},
		"on_result.": {"payload", "body", "body_base64", "content_type", "idempotency_key", "due_at", "on_result"},
	} {
		for _, field := range fields {
			body := `{"` + field + `":""}`
			if within != "" {
				body = `{"` + strings.TrimSuffix(within, ".") + `":` + body + `}`
			}
			rows[body] = within + field
		}
	}
	refuses(t, "POST", "/v1/polls", rows)
	f := newFace(t, &engine{})
	body := `{"request":{"body":"` + strings.Repeat("x", accept.MaxBody+1) + `"}}`
	wantProblem(t, f.do("POST", "/v1/polls", body), 413, "payload_too_large")
	e := &engine{}
	newFace(t, e).ask(t, 202, "POST", "/v1/polls", `{"context":"`+strings.Repeat("x", accept.MaxPollContext-2)+`"}`)
	if got := e.given.what.(accept.PollSubmission); len(got.Context) != accept.MaxPollContext {
		t.Errorf("a context at the limit: %d bytes", len(got.Context))
	}
}

func TestPollAnswers(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	first := f.do("POST", "/v1/polls", `{"ref":"o-1"}`, "Idempotency-Key", "h")
	got := e.given.what.(accept.PollSubmission)
	if first.Code != 202 || got.IdempotencyKey != "h" || got.Route != "POST /v1/polls" || len(got.Fingerprint) != 32 {
		t.Errorf("by header: %d %+v", first.Code, got)
	}
	two := f.do("POST", "/v1/polls", `{"idempotency_key":"k"}`, "Idempotency-Key", "h")
	if fields := wantProblem(t, two, 422, "invalid"); !slices.Contains(fields, "idempotency_key") {
		t.Errorf("two keys: %q", fields)
	}
	e.replayed = true
	if rec := f.do("POST", "/v1/polls", `{"ref":"o-1"}`); rec.Code != 200 || !strings.HasSuffix(rec.Body.String(), `,"replayed":true}`) {
		t.Errorf("replayed: %d %s", rec.Code, rec.Body)
	}
}

func TestPollsAreResolved(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	for _, c := range []struct{ body, data, reason string }{
		{"", "", ""}, {`{}`, "", ""}, {`{"data":null,"reason":null}`, "", ""}, {`{"data": { "a" : 1.0 } ,"reason":"the notification came"}`, `{ "a" : 1.0 }`, "the notification came"},
		{`{"data":0}`, "0", ""}, {`{"data":"` + strings.Repeat("x", accept.MaxPollContext-2) + `"}`, `"` + strings.Repeat("x", accept.MaxPollContext-2) + `"`, ""},
	} {
		got := f.ask(t, 200, "POST", "/v1/polls/"+oneID+"/resolve", c.body)
		r, _ := e.given.what.(control.ResolveRequest)
		if got["result"] != "resolved" || got["callback"].(map[string]any)["id"] != oneID || string(r.Data) != c.data || e.given.id != bareID || e.actor.Reason != c.reason {
			t.Errorf("%.60s: %.80q by %+v: %v", c.body, r.Data, e.actor, got["result"])
		}
	}
	refuses(t, "POST", "/v1/polls/"+oneID+"/resolve", map[string]string{
		`{"outcome":"success"}`: "outcome", `{"data":1,"data":2}`: "data", "{\"data\":\"\xff\"}": "data",
		`{"data":"` + strings.Repeat("x", accept.MaxPollContext-1) + `"}`: "data", `{"reason":"` + strings.Repeat("r", 1025) + `"}`: "reason",
	})
}
