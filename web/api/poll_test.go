package api_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

func TestGoldenPolls(t *testing.T) {
	t.Parallel()
	bare := dispatch.PollView{Callback: sample(), Rule: `{"until":{"success":[{"exists":true,"pointer":""}]},"hold_if":null}`}
	bare.Callback.Kind = store.Poll
	resolved := somePoll()
	resolved.Callback.State, resolved.Callback.Reason, resolved.Callback.FinishedAt = store.Succeeded, store.ResolvedOutside, nowMS
	resolved.Detail.Outcome, resolved.Detail.ResultID, resolved.Detail.Data = store.PollResolved, bareEndpoint, `[1,"<b>"]`
	// It had been told as unresolved before it was retried, and is open.
	again := somePoll()
	again.Detail.Outcome, again.Detail.ResultID = store.PollUnresolved, bareEndpoint
	for name, v := range map[string]dispatch.PollView{"poll.json": somePoll(), "poll_bare.json": bare, "poll_resolved.json": resolved, "poll_again.json": again} {
		rec := newFace(t, &engine{poll: v}).do("GET", "/v1/polls/"+oneID, "")
		if rec.Code != 200 {
			t.Fatalf("%s: %d %s", name, rec.Code, rec.Body)
		}
		golden(t, name, rec.Body.Bytes())
	}
	golden(t, "poll_resolve.json", newFace(t, &engine{}).do("POST", "/v1/polls/"+oneID+"/resolve", "").Body.Bytes())
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
	got := e.given.what.(dispatch.PollSubmission)
	policy := dispatch.DefaultPolicy()
	policy.Tiers, policy.RepeatLast, policy.Deadline = []time.Duration{5 * time.Second, time.Minute}, true, 72*time.Hour
	want := dispatch.PollSubmission{
		Submission: dispatch.Submission{
			Ref: "o-1", URL: "https://upstream.example/q", Endpoint: "merchant-7", Method: "post", Headers: []store.Header{{Name: "X-Shop", Value: "7"}},
			Body: []byte(`{ "no" : 7 }`), BodyField: "payload", ContentType: "application/json", Choice: dispatch.Choice{Signer: "none", Policy: policy, PolicyGiven: true},
			Delay: new(time.Minute), DueAt: new(int64(nowMS)), ExpiresIn: new(96 * time.Hour), Topic: "payment.result",
			Labels: map[string]string{"channel": "alipay"}, LockKey: "k", Lane: "m-1", IdempotencyKey: "k-1", Route: "POST /v1/polls", Fingerprint: got.Fingerprint,
		},
		Until: []byte(`{ "success" : [ {"pointer":"/s","in":["SUCCESS"]} ] }`), HoldIf: []byte(`[ {"status":[429]} ]`), Evaluate: []byte(`["200-299", 404]`),
		ErrorBudget: new(0), Context: []byte(`[ 1, {"a":"\u0000"} ]`),
		OnResult: &dispatch.Submission{
			URL: "https://shop.example/notify", Endpoint: "merchant-8", Method: "PUT", Headers: []store.Header{{Name: "A", Value: "b"}}, Topic: "t", Ref: "r",
			Choice: dispatch.Choice{Profile: "alipay", PolicyName: "short", Success: "body-success", Signer: `{"type":"t-v1"}`},
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
	const nulls = `{"ref":null,"request":null,"policy":null,"delay":null,"due_at":null,"expires_in":null,"until":null,"hold_if":null,"evaluate":null,
		"error_budget":null,"topic":null,"labels":null,"lock_key":null,"lane":null,"context":null,"on_result":null,"idempotency_key":null}`
	for body, want := range map[string]dispatch.PollSubmission{
		nulls: {}, `{}`: {}, `{"request":{"url":null,"payload":null,"body":null,"signer":null}}`: {},
		// What may not be given may be null: so it is elsewhere.
		`{"on_result":{"payload":null,"due_at":null,"idempotency_key":null,"content_type":null,"url":null}}`: {OnResult: &dispatch.Submission{}},
		`{"context":false,"on_result":{}}`:                  {Context: []byte("false"), OnResult: &dispatch.Submission{}},
		`{"until":{},"hold_if":[],"evaluate":[],"ref":"x"}`: {Submission: dispatch.Submission{Ref: "x"}, Until: []byte(`{}`), HoldIf: []byte(`[]`), Evaluate: []byte(`[]`)},
	} {
		e := &engine{}
		newFace(t, e).ask(t, 202, "POST", "/v1/polls", body)
		if diff := cmp.Diff(want, e.given.what); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

func TestPollsRefuse(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("x", dispatch.MaxPollContext-1) + `"`
	for _, c := range []struct{ body, field string }{
		{`[]`, "request"}, {`{"url":"u"}`, "url"}, {`{"method":"GET"}`, "method"}, {`{"payload":1}`, "payload"}, {`{"signer":"none"}`, "signer"}, {`{"success":"http-200"}`, "success"},
		{`{"profile":"alipay"}`, "profile"}, {`{"order":"strict"}`, "order"}, {`{"supersede":true}`, "supersede"}, {`{"version":1}`, "version"}, {`{"start_attempt":1}`, "start_attempt"},
		{`{"id":"cb_1"}`, "id"}, {`{"ref":7}`, "ref"}, {`{"ref":"a","ref":"a"}`, "ref"}, {`{"ref":"a\u0000"}`, "ref"}, {`{"labels":[]}`, "labels"}, {`{"labels":{"a":1}}`, "labels.a"},
		{`{"request":[]}`, "request"}, {`{"request":"u"}`, "request"}, {`{"request":{"url":7}}`, "request.url"}, {`{"request":{"url":"u","url":"u"}}`, "request.url"},
		{`{"request":{"profile":"alipay"}}`, "request.profile"}, {`{"request":{"success":"http-200"}}`, "request.success"}, {`{"request":{"policy":"short"}}`, "request.policy"},
		{`{"request":{"ref":"x"}}`, "request.ref"}, {`{"request":{"URL":"u"}}`, "request.URL"}, {`{"request":{"headers":[]}}`, "request.headers"},
		{`{"request":{"headers":{"A":1}}}`, "request.headers.A"}, {`{"request":{"headers":{"A":"b","A":"b"}}}`, "request.headers.A"}, {`{"request":{"signer":true}}`, "request.signer"},
		{`{"request":{"payload":1,"body":"x"}}`, "request.body"}, {`{"request":{"body_base64":"AA"}}`, "request.body_base64"}, {"{\"request\":{\"payload\":\"\xff\"}}", "request.payload"},
		{`{"request":{"url":7},"ref":7}`, "ref"}, {`{"request":{"request":{}}}`, "request.request"}, {`{"request":{},"request":{}}`, "request"},
		{`{"policy":7}`, "policy"}, {`{"policy":{"tiers":["x"]}}`, "policy.tiers[0]"}, {`{"delay":"-1s"}`, "delay"}, {`{"due_at":"soon"}`, "due_at"}, {`{"expires_in":5}`, "expires_in"},
		{`{"until":[]}`, "until"}, {`{"until":"SUCCESS"}`, "until"}, {`{"hold_if":{}}`, "hold_if"}, {`{"hold_if":true}`, "hold_if"}, {`{"evaluate":{}}`, "evaluate"}, {`{"evaluate":200}`, "evaluate"},
		{"{\"until\":{\"success\":[{\"pointer\":\"\xff\"}]}}", "until"}, {"{\"hold_if\":[\"\xff\"]}", "hold_if"},
		{`{"error_budget":-1}`, "error_budget"}, {`{"error_budget":1.5}`, "error_budget"}, {`{"error_budget":"20"}`, "error_budget"}, {`{"error_budget":1e1}`, "error_budget"},
		{`{"error_budget":9223372036854775808}`, "error_budget"}, {`{"error_budget":true}`, "error_budget"}, {`{"error_budget":1000001}`, "error_budget"},
		{`{"context":` + long + `}`, "context"}, {"{\"context\":\"\xff\"}", "context"}, {`{"context":[` + strings.Repeat(" ", dispatch.MaxPollContext-1) + `]}`, "context"},
		{`{"on_result":[]}`, "on_result"}, {`{"on_result":"u"}`, "on_result"}, {`{"on_result":{"url":7}}`, "on_result.url"}, {`{"on_result":{"x":1}}`, "on_result.x"},
		{`{"on_result":{"headers":{"A":1}}}`, "on_result.headers.A"}, {`{"on_result":{"ref":"a","ref":"b"}}`, "on_result.ref"}, {`{"on_result":{"payload":{}}}`, "on_result.payload"},
		{`{"on_result":{"body":""}}`, "on_result.body"}, {`{"on_result":{"body_base64":""}}`, "on_result.body_base64"}, {`{"on_result":{"content_type":"a/b"}}`, "on_result.content_type"},
		{`{"on_result":{"idempotency_key":"k"}}`, "on_result.idempotency_key"}, {`{"on_result":{"due_at":"2026-11-21T08:00:00Z"}}`, "on_result.due_at"}, {`{"on_result":{"on_result":{}}}`, "on_result.on_result"},
		{`{"idempotency_key":""}`, "idempotency_key"},
	} {
		e := &engine{}
		fields := wantProblem(t, newFace(t, e).do("POST", "/v1/polls", c.body), 422, "invalid")
		if !slices.Contains(fields, c.field) || len(fields) > 2 {
			t.Errorf("%.80q: %q, want %q", c.body, fields, c.field)
		}
		if e.given.call != "" {
			t.Errorf("%.80q reached the engine", c.body)
		}
	}
	wantProblem(t, newFace(t, &engine{}).do("POST", "/v1/polls", `{"ref":`), 400, "bad_json")
	wantProblem(t, newFace(t, &engine{}).do("POST", "/v1/polls", `{"request":{"body":"`+strings.Repeat("x", dispatch.MaxBody+1)+`"}}`), 413, "payload_too_large")
	e := &engine{}
	newFace(t, e).ask(t, 202, "POST", "/v1/polls", `{"context":"`+strings.Repeat("x", dispatch.MaxPollContext-2)+`"}`)
	if got := e.given.what.(dispatch.PollSubmission); len(got.Context) != dispatch.MaxPollContext {
		t.Errorf("a context at the limit: %d bytes", len(got.Context))
	}
}

func TestPollAnswers(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	first := f.do("POST", "/v1/polls", `{"ref":"o-1"}`, "Idempotency-Key", "h")
	got := e.given.what.(dispatch.PollSubmission)
	if first.Code != 202 || got.IdempotencyKey != "h" || got.Route != "POST /v1/polls" || len(got.Fingerprint) != 32 {
		t.Errorf("by header: %d %+v", first.Code, got)
	}
	if fields := wantProblem(t, f.do("POST", "/v1/polls", `{"idempotency_key":"k"}`, "Idempotency-Key", "h"), 422, "invalid"); !slices.Contains(fields, "idempotency_key") {
		t.Errorf("two keys: %q", fields)
	}
	e.replayed = true
	if rec := f.do("POST", "/v1/polls", `{"ref":"o-1"}`); rec.Code != 200 || !strings.HasSuffix(rec.Body.String(), `,"replayed":true}`) {
		t.Errorf("replayed: %d %s", rec.Code, rec.Body)
	}
	for err, want := range map[error]string{
		store.ErrUnavailable: "503 unavailable", store.ErrIdempotencyMismatch: "422 idempotency_mismatch",
		store.ErrIdempotencyInProgress: "409 idempotency_in_progress", errors.New("disk on fire"): "500 internal",
	} {
		rec := newFace(t, &engine{err: fmt.Errorf("accept poll: %w", err)}).do("POST", "/v1/polls", `{}`)
		wantProblem(t, rec, rec.Code, strings.Fields(want)[1])
		if fmt.Sprint(rec.Code) != want[:3] || strings.Contains(rec.Body.String(), "fire") {
			t.Errorf("%v: %d %s", err, rec.Code, rec.Body)
		}
	}
	// A retry, or a change, of one that has ended while another one is open.
	live := newFace(t, &engine{err: fmt.Errorf("retry: %w", store.ErrPollLive)})
	wantProblem(t, live.do("POST", "/v1/callbacks/"+oneID+"/retry", ""), 409, "poll_live")
	wantProblem(t, live.do("PATCH", "/v1/callbacks/"+oneID, `{"url":"https://b/"}`), 409, "poll_live")
}

func TestPollsAreResolved(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	for _, c := range []struct{ body, data, reason string }{
		{"", "", ""}, {`{}`, "", ""}, {`{"data":null,"reason":null}`, "", ""}, {`{"data": { "a" : 1.0 } ,"reason":"the notification came"}`, `{ "a" : 1.0 }`, "the notification came"},
		{`{"data":0}`, "0", ""}, {`{"data":"` + strings.Repeat("x", dispatch.MaxPollContext-2) + `"}`, `"` + strings.Repeat("x", dispatch.MaxPollContext-2) + `"`, ""},
	} {
		got := f.ask(t, 200, "POST", "/v1/polls/"+oneID+"/resolve", c.body)
		r, _ := e.given.what.(dispatch.ResolveRequest)
		if got["result"] != "resolved" || got["callback"].(map[string]any)["id"] != oneID || string(r.Data) != c.data || e.given.id != bareID || e.actor.Reason != c.reason {
			t.Errorf("%.60s: %.80q by %+v: %v", c.body, r.Data, e.actor, got["result"])
		}
	}
	for body, field := range map[string]string{
		`[]`: "request", `{"outcome":"success"}`: "outcome", `{"data":1,"data":2}`: "data", "{\"data\":\"\xff\"}": "data",
		`{"data":"` + strings.Repeat("x", dispatch.MaxPollContext-1) + `"}`: "data", `{"reason":"` + strings.Repeat("r", 1025) + `"}`: "reason",
	} {
		if fields := wantProblem(t, f.do("POST", "/v1/polls/"+oneID+"/resolve", body), 422, "invalid"); !slices.Contains(fields, field) {
			t.Errorf("%.60s: %q, want %q", body, fields, field)
		}
	}
	wantProblem(t, f.do("POST", "/v1/polls/"+oneID+"/resolve", "{"), 400, "bad_json")
	for _, id := range []string{"x", bareID, "ep_" + bareID, "cb_" + bareID[1:], "cb_01JD6QZ0000000000000000008"} {
		wantProblem(t, f.do("GET", "/v1/polls/"+id, ""), 404, "not_found")
	}
	wantProblem(t, f.do("POST", "/v1/polls/"+bareID+"/resolve", ""), 404, "not_found")
	wantProblem(t, newFace(t, &engine{err: store.ErrNotFound}).do("POST", "/v1/polls/"+oneID+"/resolve", ""), 404, "not_found")
}

// TestPollsAreListed among callbacks, each with its kind.
func TestPollsAreListed(t *testing.T) {
	t.Parallel()
	e := &engine{page: store.Page{Callbacks: []store.Callback{somePoll().Callback}}}
	got := newFace(t, e).ask(t, 200, "GET", "/v1/callbacks?kind=poll", "")["data"].([]any)
	if len(got) != 1 || got[0].(map[string]any)["kind"] != "poll" || e.filter.Kind != store.Poll {
		t.Errorf("%v by %+v", got, e.filter)
	}
}

// TestDocumentHasTheFieldsOfPolls gives every field of what stands within a request, as null, and one more; and looks into the answer.
func TestDocumentHasTheFieldsOfPolls(t *testing.T) {
	t.Parallel()
	doc := document(t)
	wantFields(t, doc, "PollDetail", newFace(t, &engine{poll: somePoll()}).ask(t, 200, "GET", "/v1/polls/"+oneID, "")["poll"].(map[string]any))
	nulls := func(schema, more string) string {
		parts := []string{more}
		for name := range at(t, doc, "components", "schemas", schema, "properties") {
			parts = append(parts, `"`+name+`":null`)
		}
		return "{" + strings.Trim(strings.Join(parts, ","), ",") + "}"
	}
	f := newFace(t, &engine{})
	for schema, field := range map[string]string{"PollRequest": "request", "ResultCallback": "on_result"} {
		f.ask(t, 202, "POST", "/v1/polls", `{"`+field+`":`+nulls(schema, "")+`}`)
		fields := wantProblem(t, f.do("POST", "/v1/polls", `{"`+field+`":`+nulls(schema, `"unheard_of":null`)+`}`), 422, "invalid")
		if diff := cmp.Diff([]string{field + ".unheard_of"}, fields); diff != "" {
			t.Errorf("%s (-want +got):\n%s", schema, diff)
		}
	}
	sub, err := api.ReadTemplate([]byte(nulls("Template", "")))
	if diff := cmp.Diff(dispatch.Submission{}, sub); err != nil || diff != "" {
		t.Errorf("Template: %v (-want +got):\n%s", err, diff)
	}
	if sub, err = api.ReadTemplate([]byte(nulls("Template", `"unheard_of":null`))); err != nil || len(sub.Invalid) != 1 || sub.Invalid[0].Field != "unheard_of" {
		t.Errorf("Template: %v, %v", sub.Invalid, err)
	}
}
