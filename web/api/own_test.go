package api_test

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// ownRoutes are the routes that a key of one endpoint may call, with the scope that it needs. The test
// repeats this table and does not read it from the code under test.
var ownRoutes = map[string]store.Scope{
	"GET /v1/callbacks": "read", "GET /v1/callbacks/:id": "read", "GET /v1/callbacks/:id/attempts": "read",
	"GET /v1/callbacks/:id/payload": "read", "GET /v1/callbacks/:id/evidence": "read",
	"POST /v1/callbacks/:id/retry": "resend",
}

// ownKey creates a key of one endpoint, and returns its header.
func (f testAPI) ownKey(t *testing.T, endpoint, scope string) []string {
	t.Helper()
	made := f.call(t, 201, "POST", "/v1/keys", fmt.Sprintf(
		`{"name":"merchant","scopes":[%q],"endpoint":%q}`, scope, endpoint))
	return []string{"Authorization", "Bearer " + made["key"].(string)}
}

// TestEveryRouteWithAKeyOfOneEndpoint calls every route with keys of one endpoint, with the ids of its own
// project. A route that is not in ownRoutes refuses them before it calls the engine.
func TestEveryRouteWithAKeyOfOneEndpoint(t *testing.T) {
	t.Parallel()
	allowed := 0
	for _, r := range routes(t) {
		for _, scope := range store.EndpointScopes {
			e := fullEngine()
			e.has.Callback.EndpointID = bareEndpoint
			e.has.Delivery = &control.Report{Callback: e.has.Callback}
			rec := newTestAPI(t, e).do(r.Method, pathOf(r), bodyOf(r), bearer("b", "own-"+scope)...)
			needs, own := ownRoutes[name(r)]
			switch {
			case !own:
				wantProblem(t, rec, 403, "forbidden")
				if len(e.calls) > 0 {
					t.Errorf("%s with %s calls %q", name(r), scope, e.calls)
				}
			case needs == store.ScopeResend && scope == store.ScopeRead:
				wantProblem(t, rec, 403, "forbidden")
			default:
				allowed++
				if rec.Code != 200 {
					t.Errorf("%s with %s: %d %s", name(r), scope, rec.Code, rec.Body)
				}
			}
		}
	}
	if allowed != 2*len(ownRoutes)-1 {
		t.Errorf("%d calls are allowed", allowed)
	}
}

// TestAKeyOfOneEndpointSeesNothingElse checks that the callbacks of another
// endpoint, of a plain URL and of another project are not found, and that its own lack internals.
func TestAKeyOfOneEndpointSeesNothingElse(t *testing.T) {
	t.Parallel()
	f := newEngineAPI(t, new(receiver))
	accept := func(body string, header ...string) string {
		return f.call(t, 202, "POST", "/v1/callbacks", body, header...)["id"].(string)
	}
	endpoint := func(name string) string {
		made := f.call(t, 201, "POST", "/v1/endpoints",
			fmt.Sprintf(`{"external_id":%q,"url":"https://own.example/?t=hunter2"}`, name))
		return made["id"].(string)
	}
	mine, other := endpoint("mine"), endpoint("other")
	f.call(t, 200, "POST", "/v1/endpoints/"+mine+"/pause", "{}")
	own := accept(`{"endpoint":"mine","payload":1,"ref":"shared","lock_key":"hidden-lock",
		"labels":{"channel":"hidden-label"},"headers":{"X-Hidden":"hidden-header"},"policy":"short",
		"success":"body-ok"}`)
	poll := f.call(t, 202, "POST", "/v1/polls", `{"ref":"shared","request":{"endpoint":"mine"},"delay":"1h",
		"until":{"success":[{"status":[200]}]}}`)["id"].(string)
	b := f.newProject(t, "b")
	foreign := []string{
		poll,
		accept(`{"endpoint":"mine","payload":1,"delay":"1h","ref":"shared"}`),
		accept(`{"endpoint":"other","payload":1,"delay":"1h","ref":"shared"}`),
		accept(`{"url":"https://own.example/","payload":1,"delay":"1h","ref":"shared"}`),
		accept(`{"url":"https://own.example/","payload":1,"delay":"1h","ref":"shared"}`, b...), oneID,
	}
	for _, id := range foreign {
		key := f.ownKey(t, mine, "resend") // one key makes 20 requests at once
		missing := f.do("GET", "/v1/callbacks/"+oneID, "", key...).Body.String()
		for route := range ownRoutes {
			method, path, _ := strings.Cut(strings.Replace(route, ":id", id, 1), " ")
			if !strings.Contains(path, id) {
				continue
			}
			rec := f.do(method, path, "{}", key...)
			wantProblem(t, rec, 404, "not_found")
			if rec.Body.String() != missing {
				t.Errorf("%s: %s, but %s for an id that does not exist", route, rec.Body, missing)
			}
		}
	}
	key := f.ownKey(t, mine, "resend")
	for _, query := range []string{"", "?ref=shared", "?state=scheduled", "?format=csv", "?limit=1"} {
		got := f.do("GET", "/v1/callbacks"+query, "", key...).Body.String()
		shows := func(text string) bool { return strings.Contains(got, text) }
		if !shows(own) || shows("hidden") || shows("hunter2") || shows("created_by") {
			t.Errorf("%s: %s", query, got)
		}
		if slices.ContainsFunc(foreign, shows) {
			t.Errorf("%s has callbacks of others: %s", query, got)
		}
	}
	for _, path := range []string{"", "/attempts"} {
		got := f.do("GET", "/v1/callbacks/"+own+path, "", key...)
		body := got.Body.String()
		if got.Code != 200 || strings.Contains(body, "hidden") || strings.Contains(body, "created_by") {
			t.Errorf("%s: %d %s", path, got.Code, body)
		}
	}
	for _, probe := range []string{
		"lock_key=hidden-lock", "label.channel=hidden-label", "lane=" + mine, "kind=poll", "min_attempts=1",
		"endpoint=" + other, "reason=requested", "order=due", "overdue=true", "unknown=1",
	} {
		wantProblem(t, f.do("GET", "/v1/callbacks?"+probe, "", key...), 422, "invalid")
	}
	if rec := f.do("DELETE", "/v1/endpoints/"+mine, ""); rec.Code != 204 {
		t.Fatalf("delete: %d %s", rec.Code, rec.Body)
	}
	wantProblem(t, f.do("GET", "/v1/callbacks", "", key...), 404, "not_found")
}

// TestCreatorOfCallbacks checks that reads have the key that created a callback: alone, in a batch, for an
// event and for a poll. The response to an accept and its replay do not have it.
func TestCreatorOfCallbacks(t *testing.T) {
	t.Parallel()
	f := newEngineAPI(t, new(receiver))
	f.call(t, 201, "POST", "/v1/endpoints", `{"external_id":"e","url":"https://own.example/","topics":["*"]}`)
	made := f.call(t, 201, "POST", "/v1/keys", `{"name":"checkout","scopes":["send"]}`)
	key := []string{"Authorization", "Bearer " + made["key"].(string)}
	const one = `{"url":"https://own.example/","payload":1,"delay":"1h","idempotency_key":"k"}`
	want := make(map[string]any)
	add := func(by any, status int, path, body string, header ...string) {
		rec := f.do("POST", path, body, header...)
		if rec.Code != status || strings.Contains(rec.Body.String(), "created_by") {
			t.Fatalf("%s: %d %s", path, rec.Code, rec.Body)
		}
		for _, id := range regexp.MustCompile(`cb_[0-9A-Z]{26}`).FindAllString(rec.Body.String(), -1) {
			want[id] = by
		}
	}
	add(made["id"], 202, "/v1/callbacks", one, key...)
	add(made["id"], 200, "/v1/callbacks", one) // a replay by another key
	add(made["id"], 207, "/v1/callbacks/batch", `{"callbacks":[
		{"endpoint":"e","payload":1,"delay":"1h"},{"endpoint":"e","payload":2,"delay":"1h"}]}`, key...)
	add(made["id"], 202, "/v1/events", `{"topic":"paid","payload":1,"delay":"1h"}`, key...)
	add(made["id"], 202, "/v1/polls", `{"ref":"r","request":{"endpoint":"e"},"delay":"1h",
		"until":{"success":[{"status":[200]}]}}`, key...)
	add("admin key", 202, "/v1/callbacks", `{"endpoint":"e","payload":1,"delay":"1h"}`)
	if len(want) != 6 {
		t.Fatalf("%d callbacks: %v", len(want), want)
	}
	listed := f.call(t, 200, "GET", "/v1/callbacks", "")["data"].([]any)
	for _, row := range listed {
		row := row.(map[string]any)
		id := row["id"].(string)
		got := f.call(t, 200, "GET", "/v1/callbacks/"+id, "")
		if row["created_by"] != want[id] || got["created_by"] != want[id] {
			t.Errorf("%s: %v in the list, %v alone, want %v", id, row["created_by"], got["created_by"],
				want[id])
		}
	}
	if len(listed) != len(want) {
		t.Errorf("the list has %d callbacks", len(listed))
	}
}

// An innerReceiver fails every attempt with an error that names hosts of the sender. Another host than
// own.example answers with what is internal there.
type innerReceiver struct{}

func (innerReceiver) Send(_ context.Context, r outbound.Request) outbound.Response {
	now := time.Now()
	res := outbound.Response{
		Class: store.ClassDNSError, Outcome: store.AttemptFailed, Charged: true, StartedAt: now, EndedAt: now,
		Error: "lookup own.example on hidden-resolver:53: server misbehaving",
		Rule:  &store.Rule{Name: "hidden-rule", Expected: "2xx", Saw: "nothing"},
	}
	if !strings.Contains(r.URL, "own.example") {
		hidden := []store.Header{{Name: "Server", Value: "hidden-server"}}
		res.Class, res.Status, res.Error = store.ClassRedirect, 302, "to hidden-place"
		res.RequestHeaders, res.ResponseHeaders, res.ResponseBody = hidden, hidden, "hidden-body"
		res.Rule = &store.Rule{Name: "hidden-rule", Expected: "hidden-expected", Saw: "hidden-saw"}
	}
	return res
}

// TestAKeyOfOneEndpointSeesNoInternals compares every response about one's own callback, after attempts that
// failed inside the sender's network and acts of operators, with all that is internal to the sender. The
// sender's own key sees it: else the test would check nothing.
func TestAKeyOfOneEndpointSeesNoInternals(t *testing.T) {
	t.Parallel()
	f := newEngineAPI(t, innerReceiver{})
	mine := f.call(t, 201, "POST", "/v1/endpoints", `{"external_id":"mine","name":"hidden-name",
		"url":"https://hidden-user:hidden-password@own.example/?t=hidden-query",
		"headers":{"X-Hidden":"hidden-header"}}`)["id"].(string)
	f.call(t, 200, "PUT", "/v1/policies/hidden-policy", `{"tiers":["20ms","1h"],"timeout":"3s"}`)
	id := f.call(t, 202, "POST", "/v1/callbacks", `{"endpoint":"mine","payload":{"paid":1},"ref":"order-1",
		"lock_key":"hidden-lock","labels":{"hidden-label":"hidden-value"},"policy":"hidden-policy",
		"success":{"status":[200,299]}}`)["id"].(string)
	attempts := func(n float64) {
		t.Helper()
		testserver.Until(t, "it has the attempts", func() bool {
			return f.call(t, 200, "GET", "/v1/callbacks/"+id, "")["attempt_count"] == n
		})
	}
	attempts(2)
	operator := f.call(t, 201, "POST", "/v1/keys", `{"name":"hidden-operator","scopes":["operate"]}`)
	act := func(act, body string) {
		t.Helper()
		f.call(t, 200, "POST", "/v1/callbacks/"+id+"/"+act, body,
			"Authorization", "Bearer "+operator["key"].(string))
	}
	act("reschedule", `{"delay":"1h","reason":"hidden-reason"}`)
	act("retry", `{"reason":"hidden-reason","url":"https://hidden-host.example/"}`)
	attempts(3)
	f.ownKeySeesNoInternals(t, mine, id, 3)
	act("retry", `{"reason":"hidden-reason","url":"https://own.example/"}`)
	attempts(4)
	f.call(t, 200, "POST", "/v1/endpoints/"+mine+"/pause", `{"reason":"hidden-pause"}`)
	f.ownKeySeesNoInternals(t, mine, id, 4)
}

// ownKeySeesNoInternals compares the responses about a callback with n attempts. With more than three the
// endpoint's key also sends it again.
func (f testAPI) ownKeySeesNoInternals(t *testing.T, endpoint, id string, n int) {
	t.Helper()
	key, inner := f.ownKey(t, endpoint, "resend"), 0
	for _, route := range append(slices.Collect(maps.Keys(ownRoutes)),
		"GET /v1/callbacks/:id/evidence?lang=zh-CN") {
		method, path, _ := strings.Cut(strings.Replace(route, ":id", id, 1), " ")
		body := map[string]string{"POST": "{}"}[method]
		if method == "POST" && n == 3 {
			continue
		}
		if method == "GET" && strings.Contains(f.do(method, path, body).Body.String(), "hidden") {
			inner++
		}
		res := f.do(method, path, body, key...)
		body = res.Body.String()
		if res.Code != 200 || body == "" {
			t.Errorf("%s: %d %s", route, res.Code, body)
		}
		if strings.HasSuffix(path, "/attempts") && strings.Count(body, `"lateness_ms":0,`) != n {
			t.Errorf("%s shows the delay in the queue: %s", route, body)
		}
		for _, internal := range []string{"hidden", "operator", "3s", store.KeyPrefix, "default"} {
			if strings.Contains(body, internal) {
				t.Errorf("%s shows %q: %s", route, internal, body)
			}
		}
	}
	if inner < 5 {
		t.Errorf("only %d responses to the sender's own key have internals", inner)
	}
}

// TestAKeyOfOneEndpointSendsAgain checks what retry allows, and its limits.
func TestAKeyOfOneEndpointSendsAgain(t *testing.T) {
	t.Parallel()
	f := newEngineAPI(t, new(receiver))
	endpoint := f.call(t, 201, "POST", "/v1/endpoints",
		`{"external_id":"mine","url":"https://own.example/","url_override":"any"}`)["id"].(string)
	key := f.ownKey(t, "mine", "resend")
	accept := func() string {
		return f.call(t, 202, "POST", "/v1/callbacks", `{"endpoint":"mine","payload":1}`)["id"].(string)
	}
	retry := func(id, body string) *httptest.ResponseRecorder {
		return f.do("POST", "/v1/callbacks/"+id+"/retry", body, key...)
	}
	succeeded := func(id string) {
		t.Helper()
		testserver.Until(t, id+" is succeeded", func() bool {
			return f.call(t, 200, "GET", "/v1/callbacks/"+id, "")["state"] == "succeeded"
		})
	}
	first := accept()
	succeeded(first)
	for _, body := range []string{`{"ladder":"restart"}`, `{"url":"https://elsewhere.example/"}`} {
		wantProblem(t, retry(first, body), 422, "invalid")
	}
	if rec := retry(first, `{"ladder":"once","reason":"lost"}`); rec.Code != 200 {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	succeeded(first)
	rec := retry(first, "{}")
	wantProblem(t, rec, 429, "resend_limited")
	if rec.Header().Get("Retry-After") != "60" {
		t.Errorf("Retry-After: %q", rec.Header().Get("Retry-After"))
	}
	moved := accept()
	succeeded(moved)
	f.call(t, 200, "POST", "/v1/callbacks/"+moved+"/retry", `{"url":"https://debug.example/"}`)
	succeeded(moved)
	wantProblem(t, retry(moved, "{}"), 409, "other_host")
	inner := f.call(t, 202, "POST", "/v1/callbacks",
		`{"endpoint":"mine","url":"https://debug.example/","payload":1}`)["id"].(string)
	wantProblem(t, f.do("GET", "/v1/callbacks/"+inner+"/payload", "", key...), 409, "other_host")
	if rec := f.do("GET", "/v1/callbacks/"+moved+"/payload", "", key...); rec.Code != 200 {
		t.Errorf("the payload of a callback that was here first: %d %s", rec.Code, rec.Body)
	}
	f.call(t, 200, "POST", "/v1/endpoints/"+endpoint+"/pause", "{}")
	canceled := accept()
	f.call(t, 200, "POST", "/v1/callbacks/"+canceled+"/cancel", "{}")
	wantProblem(t, retry(canceled, "{}"), 409, "terminal")
	f.call(t, 200, "POST", "/v1/endpoints/"+endpoint+"/resume", "{}")
	// The operator may send an older version again, the merchant may not.
	version := func(n string) string {
		id := f.call(t, 202, "POST", "/v1/callbacks", `{"endpoint":"mine","payload":1,"ref":"order",
			"topic":"paid","supersede":true,"version":`+n+`}`)["id"].(string)
		succeeded(id)
		return id
	}
	pending, paid := version("1"), version("2")
	wantProblem(t, retry(pending, "{}"), 409, "newer_version")
	for id, key := range map[string][]string{pending: nil, paid: key} {
		if rec := f.do("POST", "/v1/callbacks/"+id+"/retry", "{}", key...); rec.Code != 200 {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	}
	entries := f.do("GET", "/v1/audit", "").Body.String()
	for _, want := range []string{`"actor":"merchant (key_`, `"reason":"lost"`} {
		if !strings.Contains(entries, want) {
			t.Errorf("no %s in the audit: %s", want, entries)
		}
	}
}

// TestMerchantsAreSlowed checks the limit of requests of one key of one endpoint.
func TestMerchantsAreSlowed(t *testing.T) {
	t.Parallel()
	f := newTestAPI(t, fullEngine())
	codes := make(map[int]int)
	for range 40 {
		codes[f.do("GET", "/v1/callbacks", "", bearer("b", "own-read")...).Code]++
	}
	if codes[200] < 20 || codes[429] == 0 || codes[200]+codes[429] != 40 {
		t.Errorf("codes %v", codes)
	}
}

// TestViewLink checks the request and the response of a link.
func TestViewLink(t *testing.T) {
	t.Parallel()
	f := newEngineAPI(t, new(receiver))
	made := f.call(t, 201, "POST", "/v1/endpoints", `{"external_id":"mine","url":"https://own.example/"}`)
	path := "/v1/endpoints/" + made["id"].(string) + "/view_link"
	link := f.call(t, 200, "POST", path, `{"expires_in":"7d","resend":true,"embed":["https://p.example"]}`)
	if url := link["url"].(string); !strings.HasPrefix(url, query.ViewRoot+"/") || len(url) < 100 {
		t.Errorf("without public_url: %v", link)
	}
	for body, field := range map[string]string{
		`{"expires_in":"91d"}`: "expires_in", `{"expires_in":"1s"}`: "expires_in",
		`{"embed":["https://p.example/x"]}`: "embed[0]", `{"embed":["*"]}`: "embed[0]",
		`{"lang":"fr"}`: "lang", `{"resend":1}`: "resend",
	} {
		f.refused(t, []string{field}, "POST", path, body)
	}
}
