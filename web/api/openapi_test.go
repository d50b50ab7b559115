package api_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
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

func TestDocumentHasExactlyTheRoutes(t *testing.T) {
	t.Parallel()
	e := &engine{}
	a, err := api.New(api.Options{Callbacks: e, Secrets: e, Index: e, Reads: e, AdminKey: adminKey})
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, r := range a.Routes() {
		want = append(want, r.Method+" "+strings.ReplaceAll(r.Path, ":id", "{id}"))
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
	f := newFace(t, &engine{attempts: []store.Attempt{{Number: 1}}})
	var callback map[string]any
	var attempts struct{ Data []map[string]any }
	if err := json.Unmarshal(f.do("GET", "/v1/callbacks/"+oneID, "").Body.Bytes(), &callback); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(f.do("GET", "/v1/callbacks/"+oneID+"/attempts", "").Body.Bytes(), &attempts); err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]map[string]any{"Callback": callback, "Attempt": attempts.Data[0]} {
		schema := at(t, doc, "components", "schemas", name)
		var required []string
		for _, r := range schema["required"].([]any) {
			required = append(required, r.(string))
		}
		slices.Sort(required)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(answer)), required); diff != "" {
			t.Errorf("%s (-answer +document):\n%s", name, diff)
		}
	}
}

// TestDocumentHasTheFieldsOfARequest gives every field of the document, and one more, to the decoder.
func TestDocumentHasTheFieldsOfARequest(t *testing.T) {
	t.Parallel()
	properties := at(t, document(t), "components", "schemas", "Submission", "properties")
	all := make(map[string]any, len(properties))
	for name := range properties {
		all[name] = nil
	}
	body, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if s := accept(t, string(body)); len(s.Invalid) > 0 {
		t.Errorf("the document has fields that the decoder does not know: %v", s.Invalid)
	}
	if len(all) != 24 {
		t.Errorf("the document has %d fields of a callback, the decoder 24", len(all))
	}
}

func TestDocumentHasTheClassesAndStates(t *testing.T) {
	t.Parallel()
	doc := document(t)
	list := func(name string) (out []string) {
		for _, v := range at(t, doc, "components", "schemas", name)["enum"].([]any) {
			out = append(out, v.(string))
		}
		return out
	}
	var classes, states []string
	for _, c := range store.Classes {
		classes = append(classes, string(c))
	}
	for _, s := range store.States {
		states = append(states, string(s))
	}
	if diff := cmp.Diff(classes, list("Class")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(states, list("State")); diff != "" {
		t.Error(diff)
	}
}
