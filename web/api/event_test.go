package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	e := &engine{event: accept.EventReceipt{ID: bareID, Callbacks: []string{bareID, bareEndpoint}}}
	f := newFace(t, e)
	const body = `{"topic":"payment.succeeded","ref":"o-1","payload":{ "paid" : 1 },"policy":"short","success":"http-200","lock_key":"o-1","order":"strict",
		"delay":"1m","expires_in":"1h","labels":{"a":"b"},"idempotency_key":"k"}`
	rec := f.do("POST", "/v1/events", body)
	if want := `{"id":"ev_` + bareID + `","callbacks":["` + oneID + `","cb_` + bareEndpoint + `"]}`; rec.Code != 202 || rec.Body.String() != want {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	got := e.given.what.(accept.Submission)
	minute, hour := time.Minute, time.Hour
	want := accept.Submission{
		Topic: "payment.succeeded", Ref: "o-1", Body: []byte(`{ "paid" : 1 }`), BodyField: "payload",
		Choice: accept.Choice{PolicyName: "short", Success: "http-200"}, LockKey: "o-1", Order: "strict", Delay: &minute, ExpiresIn: &hour,
		Labels: map[string]string{"a": "b"}, IdempotencyKey: "k", Route: "POST /v1/events", Fingerprint: got.Fingerprint,
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got.Fingerprint) != 32 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.do("POST", "/v1/events", `{"topic":"t","payload":1}`, "Idempotency-Key", "h")
	if got := e.given.what.(accept.Submission); got.IdempotencyKey != "h" || got.Route != "POST /v1/events" {
		t.Errorf("by header: %+v", got)
	}
	e.event = accept.EventReceipt{ID: bareID, Callbacks: []string{}, Replayed: true}
	if rec := f.do("POST", "/v1/events", body); rec.Code != 200 || rec.Body.String() != `{"id":"ev_`+bareID+`","callbacks":[],"replayed":true}` {
		t.Errorf("replayed: %d %s", rec.Code, rec.Body)
	}
	refuses(t, "POST", "/v1/events", map[string]string{`{"payload":1,"body":"x"}`: "body"})
	wantProblem(t, f.do("POST", "/v1/events", `{"topic":"t","body":"`+strings.Repeat("x", accept.MaxBody+1)+`"}`), 413, "payload_too_large")
	e.err = store.ErrIdempotencyMismatch
	wantProblem(t, f.do("POST", "/v1/events", body), 422, "idempotency_mismatch")
}

func TestExplainAndEvidence(t *testing.T) {
	t.Parallel()
	e := &engine{
		explanation: control.Explanation{Summary: "Its lane is paused.", NextAt: nowMS + 1, Blocking: []control.Block{
			{Code: control.BlockLanePaused, Until: store.Forever, Detail: "The lane is paused.", Cure: "POST /v1/lanes/m-1/resume"},
			{Code: control.BlockBreakerOpen, Since: nowMS - 1, Until: nowMS + 1, Detail: "No answer."},
		}},
		evidence: "callback: " + oneID + "\n<script>",
	}
	f := newFace(t, e)
	golden(t, f, "explain.json", "GET", "/v1/callbacks/"+oneID+"/explain", "")
	e.explanation = control.Explanation{Summary: "It was delivered."}
	if rec := f.do("GET", "/v1/callbacks/"+oneID+"/explain", ""); rec.Body.String() != `{"summary":"It was delivered.","next_at":null,"blocking":[]}` {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	rec := f.do("GET", "/v1/callbacks/"+oneID+"/evidence", "")
	h := rec.Header()
	if rec.Code != 200 || rec.Body.String() != e.evidence || h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %q %v", rec.Code, rec.Body, h)
	}
}

func TestMend(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	hour := time.Hour
	policy := accept.DefaultPolicy()
	policy.Tiers = []time.Duration{}
	for body, want := range map[string]control.MendRequest{
		`{"url":"https://b/"}`:                                 {URL: new("https://b/")},
		`{"headers":{}}`:                                       {Headers: &[]store.Header{}},
		`{"headers":{"A":"b"},"policy":"short"}`:               {Headers: &[]store.Header{{Name: "A", Value: "b"}}, Choice: accept.Choice{PolicyName: "short"}},
		`{"policy":{"tiers":[]},"expires_in":"1h"}`:            {Choice: accept.Choice{Policy: policy, PolicyGiven: true}, ExpiresIn: &hour},
		`{"expires_in":null,"url":null,"headers":null}`:        {NoExpiry: true},
		`{"policy":null,"expires_in":null,"reason":"forever"}`: {NoExpiry: true},
	} {
		if got := f.ask(t, 200, "PATCH", "/v1/callbacks/"+oneID, body); got["id"] != oneID || e.given.id != bareID {
			t.Errorf("%s: %v", body, got)
		}
		if diff := cmp.Diff(want, e.given.what); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	refuses(t, "PATCH", "/v1/callbacks/"+oneID, map[string]string{
		`{}`: "request", `{"reason":"r"}`: "request", `{"url":null}`: "request", `{"expires_in":"-1h"}`: "expires_in",
	})
}
