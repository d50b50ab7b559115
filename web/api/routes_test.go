package api_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// The tests of this file hold for every route, for every field of every request and for every list.

// bodies are what the routes take that need one.
var bodies = map[string]string{
	"POST /v1/callbacks/batch":          `{"callbacks":[{}]}`,
	"POST /v1/callbacks/cancel":         `{"ref":"a"}`,
	"POST /v1/callbacks/:id/reschedule": `{"delay":"1s"}`,
	"PATCH /v1/callbacks/:id":           `{"url":"u"}`,
	"POST /v1/endpoints/batch":          `{"endpoints":[{}]}`,
	"PUT /v1/lanes/:lane/limits":        `{"rate":null}`,
	"PUT /v1/policies/:name":            `{"tiers":[]}`,
	"POST /v1/reconcile/compare":        `{"from":"2026-11-20T00:00:00Z","refs":[]}`,
}

// bodyOf is a request that the route takes.
func bodyOf(r api.Route) string {
	if body, ok := bodies[r.Method+" "+r.Path]; ok {
		return body
	}
	if r.Method == "GET" {
		return ""
	}
	return `{}`
}

// TestEveryRouteTellsWhatTheEngineCannot: with a database that is away every route answers 503.
func TestEveryRouteTellsWhatTheEngineCannot(t *testing.T) {
	t.Parallel()
	for _, r := range routes(t) {
		e := fullEngine()
		e.err = fmt.Errorf("ask: %w", store.ErrUnavailable)
		rec := newFace(t, e).do(r.Method, pathOf(r), bodyOf(r))
		if rec.Code != 503 || rec.Header().Get("Retry-After") == "" {
			t.Errorf("%s %s: %d %s", r.Method, pathOf(r), rec.Code, rec.Body)
		}
	}
}

// TestEveryRouteByAnID, case 92: what is no id, or one of another kind, is not found, and the engine is not
// asked.
func TestEveryRouteByAnID(t *testing.T) {
	t.Parallel()
	for _, r := range routes(t) {
		if !strings.Contains(r.Path, ":id") || strings.HasPrefix(r.Path, "/v1/projects") {
			continue
		}
		right := pathOf(r)
		prefix, bare, _ := strings.Cut(strings.Split(right, "/")[3], "_")
		for _, id := range []string{
			"x", bare, prefix + "_", prefix + "_" + bare[1:], prefix + "_" + bare + "0", prefix + "_8" + bare[1:], "other_" + bare,
			strings.ToUpper(prefix) + "_" + bare, prefix + "_" + strings.ToLower(bare[:3]) + "o" + bare[4:],
			prefix + "_" + strings.Replace(bare, "J", "I", 1), "%00", "'%20or%201=1--", prefix + "_..%2f..%2fetc",
			strings.Repeat("A", 10_000), prefix + "_" + bare[:25] + "%00",
		} {
			e := fullEngine()
			path := strings.Replace(right, prefix+"_"+bare, id, 1)
			rec := newFace(t, e).do(r.Method, path, bodyOf(r))
			if rec.Code != 404 || e.given.call != "" {
				t.Errorf("%s %.60s: %d %s; the engine was asked for %q", r.Method, path, rec.Code, rec.Body, e.given.call)
			}
		}
	}
}

// kindOf is the type that the document gives a property: its first one, "" for any.
func kindOf(t *testing.T, doc map[string]any, property any) string {
	t.Helper()
	p, _ := property.(map[string]any)
	if ref, ok := p["$ref"].(string); ok {
		return kindOf(t, doc, at(t, doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...))
	}
	switch kind := p["type"].(type) {
	case string:
		return kind
	case []any:
		return kind[0].(string)
	}
	if p["enum"] != nil || p["anyOf"] != nil || p["oneOf"] != nil {
		return "several"
	}
	return ""
}

// TestEveryFieldOfEveryRequest gives every field that the document has to the route that it is for: null is as if it
// were not given, but in a PATCH; a value of another type, the field a second time, and a field that the document does not have are refused by name.
func TestEveryFieldOfEveryRequest(t *testing.T) {
	t.Parallel()
	doc := document(t)
	for _, c := range []struct{ schema, method, path, needed, within string }{
		{"Submission", "POST", "/v1/callbacks", "", ""},
		{"Event", "POST", "/v1/events", "", ""},
		{"Mend", "PATCH", "/v1/callbacks/" + oneID, "", ""},
		{"EndpointNew", "POST", "/v1/endpoints", "", ""},
		{"EndpointNew", "PUT", "/v1/endpoints/by-external-id/x", "", ""},
		{"EndpointPatch", "PATCH", "/v1/endpoints/" + oneEndpoint, "", ""},
		{"PolicyPut", "PUT", "/v1/policies/own", `"tiers":[]`, ""},
		{"ProfilePut", "PUT", "/v1/profiles/own", "", ""},
		{"ProjectNew", "POST", "/v1/projects", "", ""},
		{"ProjectPatch", "PATCH", "/v1/projects/b", "", ""},
		{"Rotation", "POST", "/v1/endpoints/" + oneEndpoint + "/rotate_secret", "", ""},
		{"ProjectRotation", "POST", "/v1/secret/rotate", "", ""},
		{"RedriveNew", "POST", "/v1/redrives", "", ""},
		{"RedriveFilter", "POST", "/v1/redrives", "", "filter"},
		{"PollNew", "POST", "/v1/polls", "", ""},
		{"PollRequest", "POST", "/v1/polls", "", "request"},
		{"ResultCallback", "POST", "/v1/polls", "", "on_result"},
		{"Resolve", "POST", "/v1/polls/" + oneID + "/resolve", "", ""},
		{"ScheduleNew", "POST", "/v1/schedules", "", ""},
		{"SchedulePatch", "PATCH", "/v1/schedules/" + oneSchedule, "", ""},
		{"ReferenceList", "POST", "/v1/reconcile/compare", `"from":"2026-11-20T00:00:00Z","refs":[]`, ""},
	} {
		properties := at(t, doc, "components", "schemas", c.schema, "properties")
		prefix := ""
		if c.within != "" {
			prefix = c.within + "."
		}
		send := func(e *engine, members ...string) *httptest.ResponseRecorder {
			body := "{" + strings.Join(members, ",") + "}"
			if c.within != "" {
				body = `{"` + c.within + `":` + body + `}`
			}
			return newFace(t, e).do(c.method, c.path, body)
		}
		refused := func(field string, members ...string) {
			t.Helper()
			e := fullEngine()
			if fields := wantProblem(t, send(e, members...), 422, "invalid"); !slices.Contains(fields, prefix+field) {
				t.Errorf("%s %s %q: refused for %q, want %q", c.method, c.path, members, fields, prefix+field)
			}
			if e.given.call != "" && e.given.call != "PutEndpoints" { // the engine answers for each of several
				t.Errorf("%s %s %q: the engine was asked", c.method, c.path, members)
			}
		}
		var all []string
		if c.needed != "" {
			all = append(all, c.needed)
		}
		for name, property := range properties {
			needed := strings.Contains(c.needed, `"`+name+`":`)
			if !needed {
				all = append(all, `"`+name+`":null`)
			}
			wrong := "true"
			if kindOf(t, doc, property) == "boolean" {
				wrong = `"yes"`
			}
			if kindOf(t, doc, property) != "" {
				refused(name, `"`+name+`":`+wrong)
			}
			refused(name, `"`+name+`":null`, `"`+name+`":null`)
		}
		nulls, none := fullEngine(), fullEngine()
		if rec := send(nulls, all...); rec.Code >= 300 {
			t.Errorf("%s: %s %s answers %d %s", c.schema, c.method, c.path, rec.Code, rec.Body)
		}
		send(none, strings.Fields(c.needed)...)
		if c.method != "PATCH" { // where null takes away what is there
			if diff := cmp.Diff(none.given.what, nulls.given.what, unexported) + cmp.Diff(none.subs, nulls.subs); diff != "" {
				t.Errorf("%s: %s %s: null is not as if it were not given (-not given +null):\n%s", c.schema, c.method, c.path, diff)
			}
		}
		refused("unheard_of", append(all, `"unheard_of":null`)...)
		if c.within != "" { // it is an object, and nothing else
			f := newFace(t, fullEngine())
			for _, body := range []string{`[]`, `"x"`, `7`} {
				fields := wantProblem(t, f.do(c.method, c.path, `{"`+c.within+`":`+body+`}`), 422, "invalid")
				if !slices.Contains(fields, c.within) {
					t.Errorf("%s is %s: %q", c.within, body, fields)
				}
			}
		} else {
			for body, code := range map[string]string{`[]`: "invalid", `"x"`: "invalid", `{`: "bad_json"} {
				rec := newFace(t, fullEngine()).do(c.method, c.path, body)
				wantProblem(t, rec, map[string]int{"invalid": 422, "bad_json": 400}[code], code)
			}
		}
	}
}

// TestEveryListHasPages: a page ends with the cursor of the next one, which no other list takes.
func TestEveryListHasPages(t *testing.T) {
	t.Parallel()
	f := newFace(t, fullEngine())
	cursors := make(map[string]string)
	for path, key := range map[string]string{
		"/v1/endpoints": "id", "/v1/lanes": "lane", "/v1/redrives": "id", "/v1/schedules": "id", "/v1/projects": "id", "/v1/keys": "id",
		"/v1/audit": "id", "/v1/policies": "name", "/v1/success_rules": "name", "/v1/profiles": "name",
	} {
		// read follows the pages of so many.
		read := func(limit int) (keys []any) {
			for cursor := ""; len(keys) < 100; {
				got := f.ask(t, 200, "GET", fmt.Sprintf("%s?limit=%d%s", path, limit, cursor), "")
				data := got["data"].([]any)
				if len(data) > limit {
					t.Errorf("%s: a page of %d has %d", path, limit, len(data))
				}
				for _, one := range data {
					keys = append(keys, one.(map[string]any)[key])
				}
				next, more := got["next_cursor"].(string)
				if !more {
					return keys
				}
				cursors[path], cursor = next, "&cursor="+next
			}
			t.Fatalf("%s: the pages do not end", path)
			return nil
		}
		whole := read(500)
		for _, limit := range []int{1, 2} {
			if diff := cmp.Diff(whole, read(limit)); diff != "" || len(whole) < 2 {
				t.Errorf("%s by %d (-whole +pages):\n%s", path, limit, diff)
			}
		}
	}
	for path := range cursors {
		queries := map[string]string{
			"limit=0": "limit", "limit=501": "limit", "limit=x": "limit", "limit=5&limit=6": "limit", "cursor=x": "cursor", "cursor=": "cursor",
			"cursor=" + cursors[path] + "A": "cursor", "unheard_of=1": "unheard_of",
		}
		for other, cursor := range cursors {
			if other != path {
				queries["cursor="+cursor] = "cursor"
			}
		}
		for query, field := range queries {
			if fields := wantProblem(t, f.do("GET", path+"?"+query, ""), 422, "invalid"); !slices.Contains(fields, field) {
				t.Errorf("%s?%s: %q", path, query, fields)
			}
		}
	}
}
