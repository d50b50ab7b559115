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

func TestGoldenEndpoints(t *testing.T) {
	t.Parallel()
	bare := store.Endpoint{ID: bareEndpoint, URL: "https://shop.example/", DisabledReason: "gone", PausedUntil: store.Forever, PauseReason: "moving", CreatedAt: nowMS, UpdatedAt: nowMS}
	given := store.Policy{Name: "alipay", Tiers: []time.Duration{4 * time.Minute}, Timeout: 5 * time.Second, RetryAfterCap: time.Hour}
	paused := someEndpoint()
	paused.Policy, paused.Success = store.PolicyChoice{Given: &given}, store.Success{Rule: `{"status":[200]}`}
	paused.PausedUntil, paused.FailingSince, paused.LastSuccessAt, paused.LastFailureAt = nowMS+dayMS, nowMS-5, nowMS-9, nowMS-1
	over := someEndpoint()
	over.PausedUntil, over.PauseReason = nowMS, "long over"
	for name, ep := range map[string]store.Endpoint{
		"endpoint.json": someEndpoint(), "endpoint_bare.json": bare, "endpoint_paused.json": paused, "endpoint_resumed.json": over,
	} {
		golden(t, newFace(t, &engine{endpoint: ep}), name, "GET", "/v1/endpoints/"+oneEndpoint, "")
	}
}

const everyFieldOfAnEndpoint = `{"external_id":"merchant-7","name":"Tea shop","url":"https://shop.example/","url_override":"any","topics":["payment.*","*"],
	"profile":"alipay","policy":{"tiers":["1s"]},"success":{"status":[200]},"signer":{"type":"t-v1"},"headers":{"X-Shop":"7","Authorization":"Basic x"},
	"rate":"50/s","concurrency":8,"enabled":false,"secret":"whsec_x","secret_label":"sn-1","reason":"new"}`

func TestEveryFieldOfAnEndpointArrives(t *testing.T) {
	t.Parallel()
	policy := accept.DefaultPolicy()
	policy.Tiers = []time.Duration{time.Second}
	want := control.EndpointChange{
		ExternalID: new("merchant-7"), Name: new("Tea shop"), URL: new("https://shop.example/"), URLOverride: new("any"),
		Topics: &[]string{"payment.*", "*"}, Choice: accept.Choice{
			Profile: "alipay", Policy: policy, PolicyGiven: true, SuccessRule: []byte(`{"status":[200]}`), Signer: `{"type":"t-v1"}`,
		},
		Headers: &[]store.Header{{Name: "X-Shop", Value: "7"}, {Name: "Authorization", Value: "Basic x"}},
		Rate:    new("50/s"), Concurrency: new(8), Enabled: new(false), Secret: "whsec_x", SecretLabel: "sn-1",
	}
	for _, c := range []struct {
		method, path, call string
		status             int
		many               bool
	}{
		{"POST", "/v1/endpoints", "CreateEndpoint", 201, false},
		{"PATCH", "/v1/endpoints/" + oneEndpoint, "PatchEndpoint", 200, false},
		{"PUT", "/v1/endpoints/by-external-id/merchant-7", "PutEndpoints", 200, true},
	} {
		e := &engine{endpoint: someEndpoint()}
		rec := newFace(t, e).do(c.method, c.path, everyFieldOfAnEndpoint)
		if rec.Code != c.status || e.given.call != c.call || e.given.project != store.DefaultProject || e.actor.Reason != "new" {
			t.Fatalf("%s %s: %d %s, %+v by %+v", c.method, c.path, rec.Code, rec.Body, e.given, e.actor)
		}
		want := want
		want.Admin = c.method != "POST" // the test's key has every scope; a new endpoint has nothing to guard
		var expect any = want
		if c.many {
			expect = []control.EndpointChange{want}
		}
		if diff := cmp.Diff(expect, e.given.what); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.method, c.path, diff)
		}
	}
}

// TestNullsOfEndpoints: in a PATCH they take away what can be taken away.
func TestNullsOfEndpoints(t *testing.T) {
	t.Parallel()
	const nulls = `{"external_id":null,"name":null,"url":null,"url_override":null,"topics":null,"profile":null,"policy":null,"success":null,
		"signer":null,"headers":null,"rate":null,"concurrency":null,"enabled":null,"secret":null,"secret_label":null,"reason":null}`
	e := &engine{endpoint: someEndpoint()}
	f := newFace(t, e)
	f.do("PATCH", "/v1/endpoints/"+oneEndpoint, nulls)
	got, _ := e.given.what.(control.EndpointChange)
	slices.Sort(got.Clear)
	want := control.EndpointChange{
		Name: new(""), URLOverride: new("deny"), Topics: &[]string{}, Headers: &[]store.Header{},
		Clear: []string{"concurrency", "external_id", "policy", "rate", "signer", "success"}, Admin: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("PATCH (-want +got):\n%s", diff)
	}
}

func TestEndpointsRefuse(t *testing.T) {
	t.Parallel()
	for _, r := range [][2]string{
		{"POST", "/v1/endpoints"}, {"PATCH", "/v1/endpoints/" + oneEndpoint}, {"PUT", "/v1/endpoints/by-external-id/x"},
	} {
		refuses(t, r[0], r[1], map[string]string{
			`{"id":"ep_1"}`: "id", `{"name":"a\u0000"}`: "name", `{"topics":["a",1]}`: "topics[1]", `{"topics":[null]}`: "topics[0]",
			`{"headers":{"Authorization":"***"}}`: "headers.Authorization", `{"concurrency":0}`: "concurrency",
			`{"policy":{"tiers":["x"]}}`: "policy.tiers[0]", `{"paused_until":null}`: "paused_until",
			`{"reason":"` + strings.Repeat("r", 1025) + `"}`: "reason",
		})
	}
	refuses(t, "PUT", "/v1/endpoints/by-external-id/x", map[string]string{`{"external_id":"y"}`: "external_id"})
	f := newFace(t, fullEngine())
	for _, path := range []string{"by-external-id/", "by-external-id/nobody", "by-external-id/%00", "by-external-id/%ff", "ep_01JD6QZ0000000000000000008"} {
		wantProblem(t, f.do("GET", "/v1/endpoints/"+path, ""), 404, "not_found")
	}
}

// TestExternalIDsMayHaveAnything that is text: also what looks like a path.
func TestExternalIDsMayHaveAnything(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, want string }{
		{"merchant-7", "merchant-7"}, {"a%2Fb", "a/b"}, {"a/b", "a/b"}, {"secret", "secret"}, {"a%20%2B%25b+c", "a +%b+c"}, {"%E5%95%86%E6%88%B7", "商户"},
		{"..%2F..", "../.."}, {"https://shop.example:443/", "https://shop.example:443/"},
	} {
		ep := someEndpoint()
		ep.ExternalID = c.want
		e := &engine{endpoint: ep}
		f := newFace(t, e)
		if rec := f.do("GET", "/v1/endpoints/by-external-id/"+c.path, ""); rec.Code != 200 {
			t.Errorf("GET %s: %d %s", c.path, rec.Code, rec.Body)
		}
		f.do("PUT", "/v1/endpoints/by-external-id/"+c.path, `{"url":"https://shop.example/"}`)
		if got, _ := e.given.what.([]control.EndpointChange); len(got) != 1 || *got[0].ExternalID != c.want {
			t.Errorf("PUT %s arrived as %+v", c.path, got)
		}
	}
}

func TestEndpointAnswers(t *testing.T) {
	t.Parallel()
	e := &engine{endpoint: someEndpoint(), created: true}
	f := newFace(t, e)
	if got := f.ask(t, 201, "POST", "/v1/endpoints", `{"url":"u"}`); got["secret"] != "whsec_once" || got["id"] != oneEndpoint {
		t.Errorf("made: %v", got)
	}
	if got := f.ask(t, 201, "PUT", "/v1/endpoints/by-external-id/x", `{"url":"u"}`); got["secret"] != nil {
		t.Errorf("made by PUT: %v", got)
	}
	e.created = false
	f.ask(t, 200, "PUT", "/v1/endpoints/by-external-id/x", `{"url":"u"}`)
	rec := f.do("DELETE", "/v1/endpoints/"+oneEndpoint, `{"reason":"closed"}`)
	if rec.Code != 204 || rec.Body.Len() != 0 || e.given.call != "DeleteEndpoint" || e.given.id != bareEndpoint || e.actor.Reason != "closed" {
		t.Errorf("DELETE: %d %s, %+v by %+v", rec.Code, rec.Body, e.given, e.actor)
	}
	if rec := f.do("DELETE", "/v1/endpoints/"+oneEndpoint, ""); rec.Code != 204 {
		t.Errorf("DELETE without a body: %d %s", rec.Code, rec.Body)
	}
	f.ask(t, 202, "POST", "/v1/endpoints/"+oneEndpoint+"/test", `{"reason":"new address"}`)
	if e.given.call != "TestEndpoint" ||
		e.actor != (store.Actor{Name: "admin key", Address: "192.0.2.1", Reason: "new address"}) {
		t.Errorf("%s by %+v", e.given.call, e.actor)
	}
	wantProblem(t, f.do("POST", "/v1/endpoints/"+oneEndpoint+"/test", `{"url":"u"}`), 422, "invalid")
	if got := f.ask(t, 202, "POST", "/v1/endpoints/"+oneEndpoint+"/test", ""); got["id"] != oneID || e.given.id != bareEndpoint {
		t.Errorf("test: %v", got)
	}
}

func TestEndpointBatch(t *testing.T) {
	t.Parallel()
	e := &engine{endpoint: someEndpoint(), created: true}
	rec := newFace(t, e).do("POST", "/v1/endpoints/batch", `{"reason":"import","endpoints":[{"external_id":"a","url":"u"},{"url":7},"x",{"external_id":"b","url":"u"}]}`)
	if results(t, rec, 201, 422, 422, 201); e.actor.Reason != "import" {
		t.Errorf("by %+v", e.actor)
	}
	item := `{"external_id":"a","url":"u"}`
	refuses(t, "POST", "/v1/endpoints/batch", map[string]string{
		`{}`: "endpoints", `{"endpoints":[]}`: "endpoints", `{"endpoints":{}}`: "endpoints", `{"endpoints":[` + item + `],"x":1}`: "x",
		`{"endpoints":[` + strings.TrimSuffix(strings.Repeat(item+",", 1001), ",") + `]}`: "endpoints",
	})
}

func TestEndpointFilters(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]store.EndpointFilter{
		"":                           {Now: nowMS, Limit: 51},
		"search=tea&topic=a.b":       {Now: nowMS, Limit: 51, Search: "tea", Topic: "a.b"},
		"held=true&failing=true":     {Now: nowMS, Limit: 51, Held: true, Failing: true},
		"held=false&limit=7":         {Now: nowMS, Limit: 8},
		"failing=false&search=%3a//": {Now: nowMS, Limit: 51, Search: "://"},
	} {
		e := &engine{endpoint: someEndpoint()}
		newFace(t, e).arrives(t, e, 200, "GET", "/v1/endpoints?"+query, "", want)
	}
	refuses(t, "GET", "/v1/endpoints?", map[string]string{"held=yes": "held", "failing=1": "failing", "search=": "search"})
}
