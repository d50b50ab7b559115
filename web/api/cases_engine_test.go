package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The tests of this file, and those that they name, are the cases of hostile callers that are of the API: one
// project and another, fields that are not a caller's, names that could mean something to a store.

// newProject makes a project, and returns the header of a key of its own with every scope.
func (f face) newProject(t *testing.T, id string) []string {
	t.Helper()
	f.ask(t, 201, "POST", "/v1/projects", `{"id":"`+id+`"}`)
	key := f.askAs(t, 201, "POST", "/v1/keys", `{"name":"its own","scopes":["admin"]}`, "Dispatcher-Project", id)
	return []string{"Authorization", "Bearer " + key["key"].(string)}
}

// TestCase49ListsShowNothingOfAnotherProject: what a project with nothing in it is answered does not depend
// on what another has, on any route without an id in its path. TestEveryRouteByIDsOfAnotherProject has those
// with one.
func TestCase49ListsShowNothingOfAnotherProject(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	before := f.newProject(t, "before")
	routes, paths := routes(t), []string{
		"/v1/callbacks?format=csv", "/v1/callbacks?order=due", "/v1/callbacks?state=canceled", "/v1/callbacks?ref=order-theirs",
		"/v1/callbacks?lock_key=lock-theirs", "/v1/callbacks?lane=lane-theirs", "/v1/callbacks?endpoint=merchant-theirs",
		"/v1/callbacks?topic=topic-theirs", "/v1/callbacks?label.shop=theirs", "/v1/endpoints?search=theirs",
		"/v1/lanes?search=theirs", "/v1/schedules?search=theirs", "/v1/outcomes?limit=500",
		"/v1/reconcile?from=2020-01-01&to=2100-01-01&group_by=topic",
	}
	for _, r := range routes {
		// Keys, the audit and projects have what is the project's own; a secret is made when it is first
		// read.
		own := []string{"/v1/keys", "/v1/audit", "/v1/projects", "/v1/secret", "/v1/reconcile"}
		if r.Method == "GET" && !strings.ContainsAny(r.Path, ":*") && !slices.Contains(own, r.Path) &&
			!slices.Contains(rootRoutes, "GET "+r.Path) {
			paths = append(paths, r.Path)
		}
	}
	if len(paths) < 22 {
		t.Fatalf("%d paths", len(paths))
	}
	empty := make(map[string]string)
	for _, path := range paths {
		empty[path] = f.do("GET", path, "", before...).Body.String()
	}

	f.ask(t, 201, "POST", "/v1/endpoints",
		`{"external_id":"merchant-theirs","name":"theirs","url":"https://theirs.example/"}`)
	const body = `"payload":1,"delay":"1h","ref":"order-theirs","topic":"topic-theirs","lock_key":"lock-theirs",
		"labels":{"shop":"theirs"}`
	f.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"merchant-theirs",`+body+`}`)
	ended := f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://theirs.example/","lane":"lane-theirs",`+body+`}`)
	f.ask(t, 200, "POST", "/v1/callbacks/"+ended["id"].(string)+"/cancel", `{"reason":"theirs"}`)
	f.ask(t, 202, "POST", "/v1/redrives", `{"action":"retry","filter":{"ref":"none-of-theirs"},"ladder":"once"}`)
	f.ask(t, 201, "POST", "/v1/schedules",
		`{"name":"theirs","cron":"@daily","callback":{"url":"https://theirs.example/","payload":1}}`)
	f.ask(t, 200, "PUT", "/v1/policies/theirs", `{"tiers":[]}`)
	f.ask(t, 200, "PUT", "/v1/success_rules/theirs", `{"status":[200]}`)
	f.ask(t, 200, "PUT", "/v1/profiles/theirs", `{"policy":"short"}`)
	f.ask(t, 201, "POST", "/v1/keys", `{"name":"theirs","scopes":["send"]}`)

	after := f.newProject(t, "after")
	for _, path := range paths {
		if got := f.do("GET", path, "", before...); got.Code != 200 || got.Body.String() != empty[path] {
			t.Errorf("%s: %d %s, and before the other project had anything %s", path, got.Code, got.Body, empty[path])
		}
		// Cursors of another project are signed otherwise.
		if got := f.do("GET", path, "", after...).Body.String(); len(got) != len(empty[path]) || strings.Contains(got, "theirs") {
			t.Errorf("%s of a new project: %s, and before the other one had anything %s", path, got, empty[path])
		}
	}
	for _, path := range []string{"/v1/keys", "/v1/audit?limit=500", "/v1/projects"} {
		if got := f.do("GET", path, "", after...).Body.String(); strings.Contains(got, "theirs") {
			t.Errorf("%s: %s", path, got)
		}
	}
	got := f.askAs(t, 200, "POST", "/v1/reconcile/compare", `{"from":"2020-01-01T00:00:00Z","refs":["order-theirs"]}`, after...)
	if got["matched"] != 0.0 || len(got["missing"].([]any)) != 1 || len(got["extra"].([]any)) != 0 {
		t.Errorf("compared: %v", got)
	}
}

// TestCase50ActsOnManyStayInTheProject: a filter picks nothing of another project, and cannot name one.
func TestCase50ActsOnManyStayInTheProject(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	f.ask(t, 201, "POST", "/v1/endpoints", `{"external_id":"merchant-7","url":"https://shop.example/"}`)
	theirs := f.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"merchant-7","payload":1,"delay":"1h","ref":"o-1"}`)
	b := f.newProject(t, "b")
	for _, action := range []string{"retry", "cancel"} {
		redrive := `{"action":"` + action + `","dry_run":true,"filter":{`
		for _, filter := range []string{`"state":["scheduled","dead"]`, `"ref":"o-1"`, `"from":"2020-01-01T00:00:00Z"`} {
			if got := f.askAs(t, 200, "POST", "/v1/redrives", redrive+filter+`}}`, b...); got["matched"] != 0.0 {
				t.Errorf("%s of %s picks %v callbacks of another project", action, filter, got["matched"])
			}
		}
		for filter, field := range map[string]string{
			`"state":"dead","project":"default"`: "filter.project", `"endpoint":"merchant-7"`: "filter.endpoint",
		} {
			if fields := f.refused(t, "POST", "/v1/redrives", redrive+filter+`}}`, b...); !slices.Equal(fields, []string{field}) {
				t.Errorf("%s of %s: refused for %q", action, filter, fields)
			}
		}
	}
	other := append([]string{"Dispatcher-Project", "default"}, b...)
	wantProblem(t, f.do("POST", "/v1/redrives", `{"action":"cancel","filter":{"ref":"o-1"}}`, other...), 404, "not_found")
	if got := f.askAs(t, 200, "POST", "/v1/callbacks/cancel", `{"ref":"o-1"}`, b...); len(got["data"].([]any)) != 0 {
		t.Errorf("canceled by reference: %v", got)
	}
	if got := f.ask(t, 200, "GET", "/v1/callbacks/"+theirs["id"].(string), ""); got["state"] != "scheduled" {
		t.Errorf("the other project's callback: %v", got)
	}
}

// TestCase54FieldsThatAreNotTheCallers: what the program keeps of a thing cannot be given with it.
func TestCase54FieldsThatAreNotTheCallers(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	const callback = `"url":"https://shop.example/","payload":1`
	for path, members := range map[string]string{
		"/v1/callbacks": callback, "/v1/events": `"topic":"a","payload":1`, "/v1/endpoints": `"url":"https://shop.example/"`,
		"/v1/polls":     `"ref":"o-1","request":{"url":"https://shop.example/"},"until":{"success":[{"status":[200]}]}`,
		"/v1/redrives":  `"action":"retry","filter":{"state":"dead"}`,
		"/v1/schedules": `"name":"a","cron":"@daily","callback":{` + callback + `}`,
		"/v1/keys":      `"name":"a","scopes":["send"]`,
	} {
		for _, field := range []string{
			"id", "project", "tenant_id", "state", "attempts", "attempt_count", "reason_code", "created_at", "matched", "hash",
		} {
			fields := f.refused(t, "POST", path, fmt.Sprintf(`{%s,%q:"x"}`, members, field))
			if !slices.Equal(fields, []string{field}) {
				t.Errorf("%s with %s: refused for %q", path, field, fields)
			}
		}
	}
	batch := f.do("POST", "/v1/callbacks/batch", `{"callbacks":[{`+callback+`,"state":"succeeded"},{`+callback+`,"project":"b"}]}`)
	results(t, batch, 422, 422)
}

// TestCase53TheSameKeyInTwoProjects: an idempotency key is a project's own. The store's suite has it in one
// batch.
func TestCase53TheSameKeyInTwoProjects(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	b := f.newProject(t, "b")
	const first = `{"url":"https://shop.example/","payload":1,"delay":"1h"}`
	const second = `{"url":"https://other.example/","payload":2,"delay":"1h"}`
	key := []string{"Idempotency-Key", "order-1"}
	ours := f.askAs(t, 202, "POST", "/v1/callbacks", first, key...)
	theirs := f.askAs(t, 202, "POST", "/v1/callbacks", second, append(key, b...)...)
	if ours["id"] == theirs["id"] {
		t.Errorf("one callback for both: %v", ours)
	}
	if again := f.askAs(t, 200, "POST", "/v1/callbacks", second, append(key, b...)...); again["id"] != theirs["id"] {
		t.Errorf("again: %v", again)
	}
}

// TestCase93NamesOfEndpoints: names with braces are names, those with a line end are none. Of either nothing
// is in a key of Redis: package redisq makes them of the prefix, the shard and words of its own.
func TestCase93NamesOfEndpoints(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	const braces = `}:{0}:delay`
	f.ask(t, 201, "POST", "/v1/endpoints",
		`{"external_id":"`+braces+`","name":"`+braces+`","url":"https://shop.example/"}`)
	for _, body := range []string{
		`{"endpoint":"` + braces + `","payload":1,"lock_key":"` + braces + `"}`,
		`{"url":"https://shop.example/","payload":1,"lane":"` + braces + `","lock_key":"` + braces + `"}`,
	} {
		f.settled(t, f.ask(t, 202, "POST", "/v1/callbacks", body)["id"].(string), "succeeded")
	}
	for field, body := range map[string]string{
		"external_id": `{"external_id":"a\nb","url":"https://shop.example/"}`,
		"name":        `{"name":"a\r","url":"https://shop.example/"}`,
	} {
		if fields := f.refused(t, "POST", "/v1/endpoints", body); !slices.Equal(fields, []string{field}) {
			t.Errorf("%s: refused for %q", body, fields)
		}
	}
	for _, field := range []string{"lane", "lock_key", "ref", "topic", "endpoint"} {
		body := `{"url":"https://shop.example/","payload":1,"` + field + `":"a\nb"}`
		if fields := f.refused(t, "POST", "/v1/callbacks", body); !slices.Contains(fields, field) {
			t.Errorf("%s: refused for %q", body, fields)
		}
	}
}

// TestCase77Wildcards: a search is for the text that it is. How long one may look is the store's to bound.
func TestCase77Wildcards(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	f.ask(t, 201, "POST", "/v1/endpoints", `{"external_id":"a","url":"https://shop.example/"}`)
	f.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"a","payload":1,"delay":"1h","ref":"o-1","labels":{"shop":"a"}}`)
	f.ask(t, 201, "POST", "/v1/schedules",
		`{"name":"a","cron":"@daily","callback":{"url":"https://shop.example/","payload":1}}`)
	for _, path := range []string{
		"/v1/endpoints?search=", "/v1/lanes?search=", "/v1/schedules?search=", "/v1/callbacks?ref=", "/v1/callbacks?topic=",
		"/v1/callbacks?label.shop=", "/v1/callbacks?lane=", "/v1/callbacks?lock_key=",
	} {
		for _, wildcard := range []string{"%25", "__", "*", "%25%25%25%25%25%25%25%25", "a%25", "%5C"} {
			if got := f.ask(t, 200, "GET", path+wildcard, "")["data"].([]any); len(got) != 0 {
				t.Errorf("%s%s finds %v", path, wildcard, got)
			}
		}
	}
}
