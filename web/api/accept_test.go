package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// submit posts one callback and returns what reached the engine.
func submit(t *testing.T, body string, header ...string) accept.Submission {
	t.Helper()
	e := &engine{}
	rec := newFace(t, e).do("POST", "/v1/callbacks", body, header...)
	if len(e.subs) != 1 {
		t.Fatalf("%d submissions reached the engine; the answer was %d %s", len(e.subs), rec.Code, rec.Body)
	}
	return e.subs[0]
}

func TestEveryFieldArrives(t *testing.T) {
	t.Parallel()
	got := submit(t, `{"url": "https://shop.example/notify", "endpoint": "ep_1", "profile": "alipay", "method": "put", "headers": {"X-Shop": "7", "A": "é"},
		"topic": "payment.succeeded", "ref": "订单\u002d1", "payload": {"paid": 10000}, "content_type": "application/json",
		"policy": {"tiers": ["15s","3m","1.5d"], "repeat_last": true, "deadline": "2d", "timeout": "1s", "jitter": 0.25,
		           "retry_after_cap": "2h", "overload_floor": "60s", "stop_on": [404]},
		"success": "body-success", "signer": "none", "due_at": "2026-11-21t16:00:00.0001+08:00", "delay": "1h30m", "expires_in": "2d",
		"lock_key": "k", "order": "strict", "lane": "m1", "supersede": true, "version": -3, "start_attempt": 4,
		"idempotency_key": "i-1", "labels": {"channel": "alipay"}}`)
	due, version, delay, expires := int64(nowMS+1), int64(-3), 90*time.Minute, 48*time.Hour
	want := accept.Submission{
		URL: "https://shop.example/notify", Endpoint: "ep_1", Method: "put", Headers: []store.Header{{Name: "X-Shop", Value: "7"}, {Name: "A", Value: "é"}},
		Topic: "payment.succeeded", Ref: "订单-1", Body: []byte(`{"paid": 10000}`), BodyField: "payload", ContentType: "application/json",
		Choice: accept.Choice{
			Policy: store.Policy{
				Tiers: []time.Duration{15 * time.Second, 3 * time.Minute, 36 * time.Hour}, RepeatLast: true, Deadline: 48 * time.Hour,
				Timeout: time.Second, Jitter: 0.25, RetryAfterCap: 2 * time.Hour, OverloadFloor: time.Minute, StopOn: []int{404},
			},
			PolicyGiven: true, Success: "body-success", Signer: "none", Profile: "alipay",
		},
		DueAt: &due, Delay: &delay, ExpiresIn: &expires,
		LockKey: "k", Order: "strict", Lane: "m1", Supersede: true, Version: &version, StartAttempt: 4,
		Labels: map[string]string{"channel": "alipay"}, IdempotencyKey: "i-1", Route: "POST /v1/callbacks", Fingerprint: got.Fingerprint,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(got.Fingerprint) != 32 {
		t.Errorf("fingerprint has %d bytes", len(got.Fingerprint))
	}
}

func TestPolicyObjectStartsFromTheDefaults(t *testing.T) {
	t.Parallel()
	got := submit(t, `{"url":"u","policy":{"tiers":[],"deadline":null,"stop_on":[]}}`)
	want := accept.DefaultPolicy()
	want.Tiers, want.StopOn = []time.Duration{}, []int{}
	if diff := cmp.Diff(want, got.Policy); diff != "" || !got.PolicyGiven {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := submit(t, `{"url":"u","policy":"payment"}`); got.PolicyName != "payment" || got.PolicyGiven {
		t.Errorf("by name: %+v", got)
	}
}

// TestObjectsInPlaceOfNamesArriveAsTheyStand: what they mean is the engine's to read, and what is wrong with them its to say.
func TestObjectsInPlaceOfNamesArriveAsTheyStand(t *testing.T) {
	t.Parallel()
	const rule, signer = `{ "status" : ["200-299", 409], "status": [] }`, `{"type":"sorted-kv", "alg":"md5"}`
	got := submit(t, `{"url":"u","success": `+rule+` ,"signer":`+signer+`}`)
	want := accept.Choice{SuccessRule: []byte(rule), Signer: signer}
	if diff := cmp.Diff(want, got.Choice); diff != "" || len(got.Invalid) > 0 {
		t.Errorf("(-want +got):\n%s%v", diff, got.Invalid)
	}
}

func TestPayloadBytesAreUntouched(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"paid":10000}`,
		"{  \"b\" :\t1,\r\n \"a\":2 , \"b\" : 1 }", // odd spacing, keys that stand twice
		`{"n":12345678901234567890.123456789012345678901234567890e-400}`,
		`"\u4e2d\u6587 \ud83d\ude00 \/ \u0000 \ud800"`,
		`["中文", "\\\"}]", {"}":"{"}]`,
		`0`, `false`, `""`, `[]`, `{}`, `-0.0`,
	} {
		for _, around := range []string{`{"url":"u","payload":%s}`, "{\"payload\" :\n  %s\t,\"url\":\"u\"}"} {
			got := submit(t, fmt.Sprintf(around, payload))
			if string(got.Body) != payload || got.BodyField != "payload" || len(got.Invalid) > 0 {
				t.Errorf("payload %q arrived as %q (%s), %v", payload, got.Body, got.BodyField, got.Invalid)
			}
			if cap(got.Body) != len(got.Body) {
				t.Errorf("payload %q can be appended to within the request", payload)
			}
		}
	}
}

func TestOtherBodies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ field, value, want string }{
		{"body", `"a=1&b=2"`, "a=1&b=2"},
		{"body", `"line\r\n\tline \u4e2d"`, "line\r\n\tline 中"},
		{"body", `""`, ""},
		{"body_base64", `"AAEC/w=="`, "\x00\x01\x02\xff"},
		{"body_base64", `""`, ""},
	} {
		got := submit(t, fmt.Sprintf(`{"url":"u",%q:%s}`, c.field, c.value))
		if got.Body == nil || string(got.Body) != c.want || got.BodyField != c.field || len(got.Invalid) > 0 {
			t.Errorf("%s %s: got %q (%s), %v", c.field, c.value, got.Body, got.BodyField, got.Invalid)
		}
	}
}

func TestStrictness(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000)
	for _, c := range []struct{ body, field string }{
		{`[]`, "request"}, {`"x"`, "request"}, {`null`, "request"}, {` 12 `, "request"},
		{`{"state":"succeeded"}`, "state"}, {`{"attempts":1}`, "attempts"}, {`{"tenant_id":"x"}`, "tenant_id"}, {`{"URL":"u"}`, "URL"}, {`{"":1}`, ""},
		{`{"url":"u","url":"u"}`, "url"}, {`{"url":"u","\u0075rl":"u"}`, "url"}, {`{"payload":1,"payload":1}`, "payload"},
		{`{"labels":{"a":"1","a":"1"}}`, "labels.a"}, {`{"headers":{"A":"1","A":"2"}}`, "headers.A"}, {`{"policy":{"tiers":[],"tiers":[]}}`, "policy.tiers"},
		{`{"url":1}`, "url"}, {`{"url":{}}`, "url"}, {`{"ref":["a"]}`, "ref"}, {`{"topic":true}`, "topic"},
		{`{"ref":"a\u0000b"}`, "ref"}, {`{"ref":"a\nb"}`, "ref"}, {"{\"ref\":\"a\x7fb\"}", "ref"}, {`{"ref":"\u0085"}`, "ref"}, {"{\"ref\":\"\xff\"}", "ref"}, {`{"ref":"\ud800"}`, "ref"},
		{`{"lock_key":"\u001b[31m"}`, "lock_key"}, {`{"url":"http://h/\r\nX: 1"}`, "url"}, {`{"url":"http://h/\tx"}`, "url"},
		{`{"headers":[]}`, "headers"}, {`{"headers":{"A":1}}`, "headers.A"}, {`{"headers":{"A":"a\r\nX: 1"}}`, "headers.A"}, {`{"headers":{"A\n":"a"}}`, "headers.A\n"},
		{`{"labels":"a"}`, "labels"}, {`{"labels":{"a":null}}`, "labels.a"}, {`{"labels":{"a":"\u0000"}}`, "labels.a"}, {`{"labels":{"a\u0000":"x"}}`, "labels.a\x00"},
		{"{\"payload\":\"\xff\"}", "payload"}, {`{"payload":1,"body":"x"}`, "body"}, {`{"body_base64":"","payload":null,"body":""}`, "body"},
		{`{"body":1}`, "body"}, {`{"body":"\u0000"}`, "body"}, {`{"body_base64":"AA"}`, "body_base64"}, {`{"body_base64":"AB=="}`, "body_base64"},
		{`{"body_base64":"A-A_"}`, "body_base64"}, {`{"body_base64":"AAAA\n"}`, "body_base64"}, {`{"body_base64":[]}`, "body_base64"},
		{`{"policy":1}`, "policy"}, {`{"policy":[]}`, "policy"}, {`{"policy":{}}`, "policy.tiers"}, {`{"policy":{"tiers":null}}`, "policy.tiers"},
		{`{"policy":{"tiers":"15s"}}`, "policy.tiers"}, {`{"policy":{"tiers":["1s",2,"3s"]}}`, "policy.tiers[1]"}, {`{"policy":{"tiers":["1s","2s","-3s"]}}`, "policy.tiers[2]"},
		{`{"policy":{"tiers":["1s",null]}}`, "policy.tiers[1]"}, {`{"policy":{"tiers":[],"color":1}}`, "policy.color"}, {`{"policy":{"tiers":[],"repeat_last":"yes"}}`, "policy.repeat_last"},
		{`{"policy":{"tiers":[],"timeout":15}}`, "policy.timeout"}, {`{"policy":{"tiers":[],"jitter":"0.1"}}`, "policy.jitter"}, {`{"policy":{"tiers":[],"jitter":1e999}}`, "policy.jitter"},
		{`{"policy":{"tiers":[],"stop_on":410}}`, "policy.stop_on"}, {`{"policy":{"tiers":[],"stop_on":[410,"x"]}}`, "policy.stop_on[1]"}, {`{"policy":{"tiers":[],"stop_on":[null]}}`, "policy.stop_on[0]"},
		{`{"policy":{"tiers":[],"deadline":"soon"}}`, "policy.deadline"},
		{`{"success":200}`, "success"}, {`{"success":["http-2xx"]}`, "success"}, {`{"success":"a\nb"}`, "success"}, {`{"signer":[]}`, "signer"}, {`{"signer":true}`, "signer"},
		{`{"signer":"{\"type\":\"none\"}"}`, "signer"}, {`{"signer":"\u0000"}`, "signer"}, {`{"profile":{}}`, "profile"}, {`{"success":{},"success":{}}`, "success"},
		{`{"due_at":"tomorrow"}`, "due_at"}, {`{"due_at":1795248000}`, "due_at"}, {`{"due_at":"2026-11-21"}`, "due_at"}, {`{"due_at":"2026-11-21T08:00:00"}`, "due_at"}, {`{"due_at":"2026-13-21T08:00:00Z"}`, "due_at"},
		{`{"delay":"-1s"}`, "delay"}, {`{"delay":"10"}`, "delay"}, {`{"delay":10}`, "delay"}, {`{"delay":""}`, "delay"}, {`{"expires_in":"never"}`, "expires_in"},
		{`{"supersede":"true"}`, "supersede"}, {`{"supersede":1}`, "supersede"}, {`{"version":1.5}`, "version"}, {`{"version":"1"}`, "version"}, {`{"version":1e3}`, "version"},
		{`{"version":9223372036854775808}`, "version"}, {`{"start_attempt":0}`, "start_attempt"}, {`{"start_attempt":-1}`, "start_attempt"}, {`{"start_attempt":true}`, "start_attempt"},
		{`{"idempotency_key":""}`, "idempotency_key"}, {`{"idempotency_key":7}`, "idempotency_key"}, {`{"idempotency_key":"\n"}`, "idempotency_key"},
		{`{"x":` + deep + `}`, "x"},
	} {
		rec := newFace(t, &engine{}).do("POST", "/v1/callbacks", c.body)
		if fields := wantProblem(t, rec, 422, "invalid"); !slices.Contains(fields, c.field) {
			t.Errorf("%.80q: wrong fields are %q, want %q", c.body, fields, c.field)
		}
	}
}

func TestNotJSONAtAll(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"", " ", "{", `{"url":}`, `{"url":"u",}`, `{'url':'u'}`, `url=u`, "\ufeff{}", `{} {}`, `{}x`, "{\"ref\":\"a\nb\"}", `{"n":01}`, `{"n":NaN}`,
		"\x00", strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001),
	} {
		e := &engine{}
		wantProblem(t, newFace(t, e).do("POST", "/v1/callbacks", body), 400, "bad_json")
		wantProblem(t, newFace(t, e).do("POST", "/v1/callbacks/batch", body), 400, "bad_json")
		if len(e.subs) > 0 {
			t.Errorf("%q reached the engine", body)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	rec := newFace(t, &engine{}).do("POST", "/v1/callbacks", `{"url":"u"}`)
	if rec.Code != http.StatusAccepted || !json.Valid(rec.Body.Bytes()) || strings.Contains(rec.Body.String(), "replayed") {
		t.Errorf("accepted: %d %s", rec.Code, rec.Body)
	}
	rec = newFace(t, &engine{replayed: true}).do("POST", "/v1/callbacks", `{"url":"u","idempotency_key":"k"}`)
	if rec.Code != http.StatusOK || !strings.HasSuffix(rec.Body.String(), `,"replayed":true}`) {
		t.Errorf("replayed: %d %s", rec.Code, rec.Body)
	}
	f := newFace(t, &engine{err: errors.New("disk on fire")})
	rec = f.do("POST", "/v1/callbacks", `{"url":"u"}`)
	wantProblem(t, rec, 500, "internal")
	if strings.Contains(rec.Body.String(), "fire") || !strings.Contains(f.log.String(), "disk on fire") {
		t.Errorf("the answer is %s, the log is %s", rec.Body, f.log)
	}
	wantProblem(t, f.do("POST", "/v1/callbacks/batch", `{"callbacks":[{"url":"u"}]}`), 500, "internal")
}

func TestIdempotencyKeyAndFingerprint(t *testing.T) {
	t.Parallel()
	body := `{"url":"u","idempotency_key":"k"}`
	first := submit(t, body)
	if again := submit(t, body, "Idempotency-Key", "k"); !bytes.Equal(first.Fingerprint, again.Fingerprint) {
		t.Error("the same bytes have two fingerprints")
	}
	if other := submit(t, `{"url":"u", "idempotency_key":"k"}`); bytes.Equal(first.Fingerprint, other.Fingerprint) {
		t.Error("other bytes have the same fingerprint")
	}
	if got := submit(t, `{"url":"u"}`, "Idempotency-Key", "h"); got.IdempotencyKey != "h" || got.Route == "" || got.Fingerprint == nil {
		t.Errorf("by header: %+v", got)
	}
	if got := submit(t, `{"url":"u"}`); got.IdempotencyKey != "" || got.Route != "" || got.Fingerprint != nil {
		t.Errorf("without: %+v", got)
	}
	for _, h := range [][]string{
		{"Idempotency-Key", "other"}, {"Idempotency-Key", ""}, {"Idempotency-Key", "\xff"},
		{"Idempotency-Key", "k", "Idempotency-Key", "l"},
	} {
		if got := submit(t, body, h...); len(got.Invalid) != 1 {
			t.Errorf("headers %q: %v", h, got.Invalid)
		}
	}
}

// oneResult is the answer to one of several.
type oneResult struct {
	Status             int
	Callback, Endpoint *struct{ ID, URL string }
	Problem            *httperr.Problem
}

// results reads the answer to several, which must have these statuses.
func results(t *testing.T, rec *httptest.ResponseRecorder, want ...int) []oneResult {
	t.Helper()
	var got struct{ Results []oneResult }
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != http.StatusMultiStatus {
		t.Fatalf("%d %.200s", rec.Code, rec.Body)
	}
	var statuses []int
	for i, r := range got.Results {
		statuses = append(statuses, r.Status)
		made := r.Callback != nil || r.Endpoint != nil
		if made == (r.Problem != nil) || r.Problem != nil && r.Problem.Status != r.Status {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	if diff := cmp.Diff(want, statuses); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	return got.Results
}

func TestBatch(t *testing.T) {
	t.Parallel()
	e := &engine{}
	large := strings.Repeat("x", accept.MaxBody)
	rec := newFace(t, e).do("POST", "/v1/callbacks/batch", `{"callbacks":[
		{"url":"u1","payload":{ "a" : 1 },"idempotency_key":"k"}, {"url":1}, 7, {"url":"u4","body":"`+large+`x"}, {"url":"u5"}]}`)
	got := results(t, rec, 202, 422, 422, 413, 202)
	if got[0].Callback.URL != "u1" || got[4].Callback.URL != "u5" || got[1].Problem.Errors[0].Field != "url" {
		t.Errorf("results are not in the place of their callbacks: %s", rec.Body)
	}
	if s := e.subs[0]; string(s.Body) != `{ "a" : 1 }` || s.Route != "POST /v1/callbacks" || len(s.Fingerprint) != 32 {
		t.Errorf("the first: %+v", s)
	}
}

func TestBatchAsAWhole(t *testing.T) {
	t.Parallel()
	item := `{"url":"u"}`
	of := func(n int) string {
		return `{"callbacks":[` + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + `]}`
	}
	for _, c := range []struct{ body, field string }{
		{`{}`, "callbacks"}, {`{"callbacks":null}`, "callbacks"}, {`{"callbacks":{}}`, "callbacks"}, {`{"callbacks":[]}`, "callbacks"},
		{`[]`, "request"}, {`{"callbacks":[],"callbacks":[]}`, "callbacks"}, {`{"callbacks":[` + item + `],"x":1}`, "x"}, {of(1001), "callbacks"},
	} {
		e := &engine{}
		if fields := wantProblem(t, newFace(t, e).do("POST", "/v1/callbacks/batch", c.body), 422, "invalid"); !slices.Contains(fields, c.field) {
			t.Errorf("%.60s: %q", c.body, fields)
		}
		if len(e.subs) > 0 {
			t.Errorf("%.60s reached the engine", c.body)
		}
	}
	wantProblem(t, newFace(t, &engine{}).do("POST", "/v1/callbacks/batch", of(1), "Idempotency-Key", "k"), 422, "invalid")
	e := &engine{}
	if rec := newFace(t, e).do("POST", "/v1/callbacks/batch", of(1000)); rec.Code != 207 || len(e.subs) != 1000 {
		t.Errorf("a thousand: %d, %d", rec.Code, len(e.subs))
	}
}
