package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func document(t *testing.T) map[string]any {
	t.Helper()
	rec := newFace(t, &engine{}).do("GET", "/openapi.yaml", "")
	var doc map[string]any
	if err := yaml.Unmarshal(rec.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// at walks nested mappings.
func at(t *testing.T, doc map[string]any, path ...string) map[string]any {
	t.Helper()
	for _, key := range path {
		next, ok := doc[key].(map[string]any)
		if !ok {
			t.Fatalf("no mapping %q in %q", key, path)
		}
		doc = next
	}
	return doc
}

// pathParam is a parameter as the router writes it.
var pathParam = regexp.MustCompile(`[:*]([a-z_]+)`)

func TestDocumentHasExactlyTheRoutes(t *testing.T) {
	t.Parallel()
	want, got := []string{"GET /openapi.yaml"}, []string(nil)
	for _, r := range routes(t) {
		want = append(want, r.Method+" "+pathParam.ReplaceAllString(r.Path, "{$1}"))
	}
	for path, item := range at(t, document(t), "paths") {
		for method := range item.(map[string]any) {
			if method != "parameters" {
				got = append(got, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-routes +document):\n%s", diff)
	}
}

func TestDocumentHasTheFieldsOfTheAnswers(t *testing.T) {
	t.Parallel()
	doc := document(t)
	e := fullEngine()
	e.explanation = control.Explanation{Blocking: []control.Block{{}}}
	f := newFace(t, e)
	for _, c := range []struct{ schema, method, path, body string }{
		{"Callback", "GET", "/v1/callbacks/" + oneID, ""},
		{"Attempt", "GET", "/v1/callbacks/" + oneID + "/attempts", ""},
		{"Explanation", "GET", "/v1/callbacks/" + oneID + "/explain", ""},
		{"Endpoint", "GET", "/v1/endpoints/" + oneEndpoint, ""},
		{"Endpoint", "GET", "/v1/endpoints", ""},
		{"Secret", "GET", "/v1/endpoints/" + oneEndpoint + "/secret", ""},
		{"LaneView", "GET", "/v1/lanes", ""},
		{"Lane", "POST", "/v1/lanes/m-1/pause", ""},
		{"ProjectPause", "POST", "/v1/pause", ""},
		{"NamedPolicy", "GET", "/v1/policies", ""},
		{"NamedRule", "GET", "/v1/success_rules", ""},
		{"NamedProfile", "GET", "/v1/profiles", ""},
		{"Project", "GET", "/v1/projects", ""},
		{"Key", "GET", "/v1/keys", ""},
		{"Redrive", "GET", "/v1/redrives", ""},
		{"Outcome", "GET", "/v1/outcomes", ""},
		{"GroupBooks", "GET", "/v1/reconcile?from=2026-11-20&group_by=topic", ""},
		{"Comparison", "POST", "/v1/reconcile/compare", `{"from":"2026-11-20T00:00:00Z","refs":[]}`},
		{"Resolved", "POST", "/v1/polls/" + oneID + "/resolve", ""},
		{"Schedule", "GET", "/v1/schedules/" + oneSchedule, ""},
		{"Schedule", "GET", "/v1/schedules", ""},
		{"ScheduleRun", "GET", "/v1/schedules/" + oneSchedule + "/runs", ""},
		{"RedriveTried", "POST", "/v1/redrives", `{"action":"retry","filter":{"state":"dead"},"dry_run":true}`},
	} {
		rec := f.do(c.method, c.path, c.body)
		var answer map[string]any
		if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil || rec.Code != 200 {
			t.Fatalf("%s %s: %d %s", c.method, c.path, rec.Code, rec.Body)
		}
		if data, list := answer["data"].([]any); list {
			answer = data[0].(map[string]any)
		}
		wantFields(t, doc, c.schema, answer)
	}
	poll := f.ask(t, 200, "GET", "/v1/polls/"+oneID, "")
	wantFields(t, doc, "PollDetail", poll["poll"].(map[string]any))
}

// wantFields checks an object to have exactly the fields that a schema requires.
func wantFields(t *testing.T, doc map[string]any, name string, object map[string]any) {
	t.Helper()
	schema := at(t, doc, "components", "schemas", name)
	var required []string
	for _, r := range schema["required"].([]any) {
		required = append(required, r.(string))
		at(t, schema, "properties", r.(string))
	}
	slices.Sort(required)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(object)), required); diff != "" {
		t.Errorf("%s (-answer +document):\n%s", name, diff)
	}
}

// TestDocumentSaysWhatScopeARouteNeeds, has no reference that leads nowhere, no two operations of one name, and no sentence cut in two.
func TestDocumentSaysWhatScopeARouteNeeds(t *testing.T) {
	t.Parallel()
	doc := document(t)
	seen := map[string]bool{}
	for _, r := range routes(t) {
		op := at(t, doc, "paths", pathParam.ReplaceAllString(r.Path, "{$1}"), strings.ToLower(r.Method))
		if scope, _ := op["x-scope"].(string); scope != string(r.Scope) {
			t.Errorf("%s %s needs %q, the document says %q", r.Method, r.Path, r.Scope, scope)
		}
		if root, _ := op["x-root"].(bool); root != slices.Contains(rootRoutes, r.Method+" "+r.Path) {
			t.Errorf("%s %s: the document says that only the settings' admin key may: %v", r.Method, r.Path, root)
		}
		id, _ := op["operationId"].(string)
		if id == "" || seen[id] {
			t.Errorf("%s %s: the name %q is missing or another's too", r.Method, r.Path, id)
		}
		seen[id] = true
		for _, tag := range op["tags"].([]any) {
			if !slices.ContainsFunc(doc["tags"].([]any), func(known any) bool { return known.(map[string]any)["name"] == tag }) {
				t.Errorf("%s has the tag %s, which is not in the list", id, tag)
			}
		}
	}
	var follow func(node any)
	follow = func(node any) {
		switch n := node.(type) {
		case map[string]any:
			if ref, ok := n["$ref"].(string); ok {
				at(t, doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
			for key, v := range n {
				if strings.Contains(key, " ") { // a comma in a sentence without quotes makes two keys of it
					t.Errorf("%q is no key", key)
				}
				follow(v)
			}
		case []any:
			for _, v := range n {
				follow(v)
			}
		}
	}
	follow(doc)
}

func TestDocumentHasTheClassesAndStates(t *testing.T) {
	t.Parallel()
	schemas := at(t, document(t), "components", "schemas")
	for name, known := range map[string]any{"Class": store.Classes, "State": store.States} {
		want := fmt.Sprint(known)
		if got := fmt.Sprint(at(t, schemas, name)["enum"]); got != want {
			t.Errorf("%s: the document has %s, want %s", name, got, want)
		}
	}
	codes := at(t, schemas, "HoldCode")["enum"]
	if got, want := fmt.Sprint(codes), fmt.Sprint(control.BlockCodes); got != want {
		t.Errorf("the document has the codes %s, want %s", got, want)
	}
}
