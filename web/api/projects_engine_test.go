package api_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestProjectsAndKeysThroughTheEngine: what is one project's does not exist for the key of another, whatever its scope.
func TestProjectsAndKeysThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	in := func(project string) []string { return []string{"Dispatcher-Project", project} }
	wantProblem(t, f.do("GET", "/v1/callbacks", "", in("b")...), 404, "not_found")
	f.ask(t, 201, "POST", "/v1/projects", `{"id":"b","name":"B","policy":"short","success":"http-200","headers":{"X-From":"b"}}`)
	wantProblem(t, f.do("POST", "/v1/projects", `{"id":"b"}`), 409, "exists")
	key := func(scopes, more string) (id string, header []string) {
		t.Helper()
		got := f.askAs(t, 201, "POST", "/v1/keys", `{"name":"till","scopes":[`+scopes+`]`+more+`}`, in("b")...)
		if got["project"] != "b" || !strings.HasPrefix(got["key"].(string), "dk_") {
			t.Errorf("a key: %v", got)
		}
		return got["id"].(string), []string{"Authorization", "Bearer " + got["key"].(string)}
	}
	sendID, send := key(`"send"`, "")
	_, admin := key(`"admin"`, `,"expires_in":"30d"`)

	theirs := f.askAs(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1,"delay":"1h"}`, send...)
	if theirs["project"] != "b" || theirs["policy"] != "short" || theirs["success"] != "http-200" {
		t.Errorf("accepted by the key of b: %v", theirs)
	}
	wantProblem(t, f.do("GET", "/v1/callbacks/"+theirs["id"].(string), "", send...), 403, "forbidden")
	f.askAs(t, 200, "GET", "/v1/callbacks/"+theirs["id"].(string), "", admin...)
	f.askAs(t, 200, "GET", "/v1/callbacks/"+theirs["id"].(string), "", in("b")...)
	wantProblem(t, f.do("GET", "/v1/callbacks/"+theirs["id"].(string), ""), 404, "not_found")
	wantProblem(t, f.do("GET", "/v1/projects/default", "", admin...), 404, "not_found")
	if got := f.askAs(t, 200, "PATCH", "/v1/projects/b", `{"policy":null,"reason":"the default will do"}`, admin...); got["policy"] != nil || got["success"] != "http-200" {
		t.Errorf("patched: %v", got)
	}
	if got := f.askAs(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1,"delay":"1h"}`, send...); got["policy"] != "payment" {
		t.Errorf("accepted after that: %v", got)
	}
	if got := f.askAs(t, 200, "DELETE", "/v1/keys/"+sendID, `{"reason":"lost"}`, admin...); got["revoked_at"] == nil {
		t.Errorf("revoked: %v", got)
	}
	wantProblem(t, f.do("POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1}`, send...), 401, "unauthorized")
	wantProblem(t, f.do("DELETE", "/v1/keys/"+sendID, ""), 404, "not_found")

	audit := f.do("GET", "/v1/audit?limit=500", "", admin...).Body.String()
	for _, want := range []string{"the default will do", "till (key_", `"admin key"`, "lost"} {
		if !strings.Contains(audit, want) {
			t.Errorf("the audit of b lacks %q: %s", want, audit)
		}
	}
	if audit := f.do("GET", "/v1/audit?limit=500", "").Body.String(); strings.Contains(audit, "lost") {
		t.Errorf("the audit of default has what is b's: %s", audit)
	}
}

// TestQuotasThroughTheEngine: what a quota has no room for is 429, alone and in a batch.
func TestQuotasThroughTheEngine(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	const one = `{"url":"https://shop.example/","payload":1,"delay":"1h","idempotency_key":"k"}`
	const other = `{"url":"https://other.example/","payload":1,"delay":"1h"}`
	f.ask(t, 202, "POST", "/v1/callbacks", one)
	wantProblem(t, f.do("PATCH", "/v1/projects/default", `{"quotas":{"lanes":-1}}`), 422, "invalid")
	f.ask(t, 200, "PATCH", "/v1/projects/default", `{"quotas":{"lanes":1}}`)
	wantRetry := func(method, path, body, code string) {
		t.Helper()
		rec := f.do(method, path, body)
		wantProblem(t, rec, 429, code)
		if rec.Header().Get("Retry-After") == "" {
			t.Errorf("%s has no Retry-After", code)
		}
	}
	wantRetry("POST", "/v1/callbacks", other, "lanes_quota")
	wantRetry("POST", "/v1/endpoints", `{"url":"https://shop.example/"}`, "lanes_quota")
	wantRetry("PUT", "/v1/endpoints/by-external-id/m-7", `{"url":"https://shop.example/"}`, "lanes_quota")
	f.ask(t, 200, "PATCH", "/v1/projects/default", `{"quotas":{"open_callbacks":1,"lanes":0}}`)
	wantRetry("POST", "/v1/callbacks", other, "open_callbacks_quota")
	answer := f.ask(t, 207, "POST", "/v1/callbacks/batch", `{"callbacks":[`+one+`,`+other+`]}`)
	for i, want := range []float64{200, 429} {
		if got := answer["results"].([]any)[i].(map[string]any); got["status"] != want {
			t.Errorf("callback %d of a batch: %v", i, got)
		}
	}
	got := f.ask(t, 200, "GET", "/v1/projects/default", "")["quotas"].(map[string]any)
	if want := map[string]any{"open_callbacks": 1.0, "lanes": nil}; !maps.Equal(got, want) {
		t.Errorf("quotas: %v", got)
	}
}

// TestEveryRouteByIDsOfAnotherProject, case 49: what the settings' admin key made in one project is not found
// by the admin key of another, on every route that has an id in its path, and is answered like what is
// nowhere.
func TestEveryRouteByIDsOfAnotherProject(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	ids := map[string]string{
		"/v1/callbacks": f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1,"delay":"1h"}`)["id"].(string),
		"/v1/endpoints": f.ask(t, 201, "POST", "/v1/endpoints", `{"external_id":"merchant-7","url":"https://shop.example/"}`)["id"].(string),
		"/v1/keys":      f.ask(t, 201, "POST", "/v1/keys", `{"name":"till","scopes":["send"]}`)["id"].(string),
		"/v1/polls": f.ask(t, 202, "POST", "/v1/polls", `{"ref":"o-1",
			"request":{"url":"https://shop.example/"},"delay":"1h","until":{"success":[{"status":[200]}]}}`)["id"].(string),
		"/v1/schedules": f.ask(t, 201, "POST", "/v1/schedules",
			`{"name":"a","cron":"@daily","callback":{"url":"https://shop.example/","payload":1}}`)["id"].(string),
		"/v1/projects": store.DefaultProject,
		"/v1/redrives": f.ask(t, 202, "POST", "/v1/redrives", `{"action":"retry","filter":{"ref":"nobody"},"ladder":"once"}`)["id"].(string),
	}
	f.ask(t, 200, "PUT", "/v1/policies/ours", `{"tiers":[]}`)
	f.ask(t, 200, "PUT", "/v1/success_rules/ours", `{"status":[200]}`)
	f.ask(t, 200, "PUT", "/v1/profiles/ours", `{"policy":"short"}`)
	f.ask(t, 201, "POST", "/v1/projects", `{"id":"b"}`)
	text := f.askAs(t, 201, "POST", "/v1/keys", `{"name":"b's","scopes":["admin"]}`, "Dispatcher-Project", "b")["key"].(string)
	bodies := map[string]string{"retry": "{}", "reschedule": `{"delay":"1s"}`}
	seen := 0
	for _, r := range routes(t) {
		named := strings.Contains(r.Path, ":name") && r.Method != "PUT"
		if !strings.Contains(r.Path, ":id") && !strings.Contains(r.Path, "*external_id") && !named || r.Method == "PUT" {
			continue // a PUT makes what is not there
		}
		seen++
		path := strings.NewReplacer(":name", "ours", "*external_id", "merchant-7").Replace(r.Path)
		none := strings.NewReplacer(":name", "never", "*external_id", "nobody").Replace(r.Path)
		for prefix, id := range ids {
			if strings.HasPrefix(path, prefix) {
				path = strings.Replace(path, ":id", id, 1)
				if kind, _, found := strings.Cut(id, "_"); found {
					id = kind + "_" + bareID
				} else {
					id = "c"
				}
				none = strings.Replace(none, ":id", id, 1)
			}
		}
		body := bodies[path[strings.LastIndexByte(path, '/')+1:]]
		if r.Method == "PATCH" {
			body = `{"expires_in":null}`
			if !strings.HasPrefix(path, "/v1/callbacks") {
				body = `{"name":"mine"}`
			}
		}
		theirs := f.do(r.Method, path, body, "Authorization", "Bearer "+text)
		nothing := f.do(r.Method, none, body, "Authorization", "Bearer "+text)
		same := maps.EqualFunc(theirs.Header(), nothing.Header(), slices.Equal)
		if !same || theirs.Body.String() != nothing.Body.String() {
			t.Errorf("%s is answered with %s, and %s with %s", path, theirs.Body, none, nothing.Body)
		}
		wantProblem(t, theirs, 404, "not_found")
	}
	if seen < 24 {
		t.Errorf("%d routes have an id in their path", seen)
	}
	for _, path := range []string{"/v1/callbacks", "/v1/endpoints", "/v1/lanes", "/v1/redrives"} {
		if got := f.askAs(t, 200, "GET", path, "", "Authorization", "Bearer "+text); len(got["data"].([]any)) != 0 {
			t.Errorf("%s of b: %v", path, got)
		}
	}
	for _, ep := range []string{ids["/v1/endpoints"], "merchant-7"} {
		if fields := f.refused(t, "POST", "/v1/callbacks", `{"endpoint":"`+ep+`","payload":1}`, "Authorization", "Bearer "+text); !slices.Equal(fields, []string{"endpoint"}) {
			t.Errorf("accepted for another's endpoint: %q", fields)
		}
		wantProblem(t, f.do("GET", "/v1/secret?endpoint="+ep, "", "Authorization", "Bearer "+text), 404, "not_found")
		if got := f.askAs(t, 200, "GET", "/v1/callbacks?endpoint="+ep, "", "Authorization", "Bearer "+text); len(got["data"].([]any)) != 0 {
			t.Errorf("callbacks of another's endpoint: %v", got)
		}
	}
	testserver.Until(t, "the redrive of nothing is done", func() bool {
		return f.ask(t, 200, "GET", "/v1/redrives/"+ids["/v1/redrives"], "")["state"] == "done"
	})
	wantProblem(t, f.do("POST", "/v1/redrives/"+ids["/v1/redrives"]+"/pause", ""), 409, "terminal")
	wantProblem(t, f.do("POST", "/v1/redrives/"+oneRedrive+"/pause", ""), 404, "not_found")
	// Nothing was changed by any of it.
	if got := f.ask(t, 200, "GET", "/v1/callbacks/"+ids["/v1/callbacks"], ""); got["state"] != "scheduled" || got["expires_at"] != nil {
		t.Errorf("the callback: %v", got)
	}
	if got := f.ask(t, 200, "GET", "/v1/endpoints/"+ids["/v1/endpoints"], ""); got["paused"] != false || got["name"] != nil {
		t.Errorf("the endpoint: %v", got)
	}
}

// TestACursorIsOfItsProject: a place in a list of one project is none in a list of another.
func TestACursorIsOfItsProject(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	f.ask(t, 201, "POST", "/v1/projects", `{"id":"b"}`)
	for range 2 {
		f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1,"delay":"1h"}`)
	}
	for _, path := range []string{
		"/v1/callbacks?limit=1", "/v1/callbacks?limit=1&order=due", "/v1/outcomes?limit=1",
	} {
		next, ok := f.ask(t, 200, "GET", path, "")["next_cursor"].(string)
		if !ok {
			t.Fatalf("%s has no next page", path)
		}
		f.ask(t, 200, "GET", path+"&cursor="+next, "")
		fields := f.refused(t, "GET", path+"&cursor="+next, "", "Dispatcher-Project", "b")
		if !slices.Equal(fields, []string{"cursor"}) {
			t.Errorf("%s: the cursor of another project is refused for %q", path, fields)
		}
	}
}

// TestAKeyExpires: at once, in this process and in others.
func TestAKeyExpires(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	text := f.ask(t, 201, "POST", "/v1/keys", `{"name":"short","scopes":["read"],"expires_in":"300ms"}`)["key"].(string)
	header := []string{"Authorization", "Bearer " + text}
	testserver.Until(t, "the key has expired", func() bool { return f.do("GET", "/v1/callbacks", "", header...).Code == 401 })
}
