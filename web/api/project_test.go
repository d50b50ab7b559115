package api_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestProjects(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	got := f.ask(t, 201, "POST", "/v1/projects", `{"id":"c","name":"C","policy":"short",
		"success":{"status":[200]},"signer":"none","headers":{"A":"b"},
		"quotas":{"open_callbacks":1000,"lanes":null},"reason":"new"}`)
	want := control.ProjectChange{
		ID: "c", Name: new("C"), Choice: accept.Choice{PolicyName: "short", SuccessRule: []byte(`{"status":[200]}`), Signer: "none"},
		Headers: &[]store.Header{{Name: "A", Value: "b"}}, Reason: "new",
		Quotas: store.QuotaChange{OpenCallbacks: new(int64(1000)), Lanes: new(int64)},
	}
	if diff := cmp.Diff(want, e.given.what); diff != "" || e.actor.Reason != "new" || got["id"] != "c" {
		t.Errorf("POST by %+v, answered %v (-want +got):\n%s", e.actor, got, diff)
	}
	f.ask(t, 200, "PATCH", "/v1/projects/b",
		`{"name":null,"policy":null,"success":null,"signer":null,"headers":null,"quotas":null}`)
	want = control.ProjectChange{
		Name: new(""), Headers: &[]store.Header{}, Clear: []string{"policy", "success", "signer"},
		Quotas: store.QuotaChange{OpenCallbacks: new(int64), Lanes: new(int64)},
	}
	if diff := cmp.Diff(want, e.given.what); diff != "" || e.given.id != "b" {
		t.Errorf("PATCH of %s (-want +got):\n%s", e.given.id, diff)
	}
	refuses(t, "POST", "/v1/projects", map[string]string{`{"id":"c","project":"x"}`: "project", `{"id":"c","headers":{"Cookie":"***"}}`: "headers.Cookie"})
	seven := control.ProjectChange{Quotas: store.QuotaChange{Lanes: new(int64(7))}}
	f.arrives(t, e, 200, "PATCH", "/v1/projects/b", `{"quotas":{"lanes":7}}`, seven)
	refuses(t, "PATCH", "/v1/projects/b", map[string]string{
		`{"id":"c"}`: "id", `{"quotas":{"callbacks":1}}`: "quotas.callbacks",
		`{"quotas":{"lanes":"1"}}`: "quotas.lanes", `{"quotas":1}`: "quotas",
	})
	wantProblem(t, f.do("GET", "/v1/projects/nobody", ""), 404, "not_found")
	e.err = store.ErrExists
	wantProblem(t, f.do("POST", "/v1/projects", `{"id":"b"}`), 409, "exists")
}

// TestProjectsThatAKeySees: its own; the settings' admin key sees all.
func TestProjectsThatAKeySees(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	ids := func(got map[string]any) (ids []string) {
		for _, p := range got["data"].([]any) {
			ids = append(ids, p.(map[string]any)["id"].(string))
		}
		return ids
	}
	if all := ids(f.ask(t, 200, "GET", "/v1/projects", "")); !slices.Equal(all, []string{"b", "default"}) {
		t.Errorf("all projects: %q", all)
	}
	b := []string{"Authorization", "Bearer " + keyOf("b", store.ScopeAdmin)}
	if got := f.askAs(t, 200, "GET", "/v1/projects", "", b...); !slices.Equal(ids(got), []string{"b"}) {
		t.Errorf("of a key: %v", got)
	}
	if got := f.askAs(t, 200, "PATCH", "/v1/projects/b", `{"name":"B"}`, b...); got["id"] != "b" {
		t.Errorf("its own: %v", got)
	}
	e.given = given{}
	wantProblem(t, f.do("GET", "/v1/projects/default", "", b...), 404, "not_found")
	wantProblem(t, f.do("PATCH", "/v1/projects/default", `{"name":"mine"}`, b...), 404, "not_found")
	wantProblem(t, f.do("POST", "/v1/projects", `{"id":"c"}`, b...), 403, "forbidden")
	for _, quotas := range []string{`{"lanes":1000}`, `{"open_callbacks":null}`, `{}`, `null`} {
		body := `{"name":"B","quotas":` + quotas + `}`
		wantProblem(t, f.do("PATCH", "/v1/projects/b", body, b...), 403, "forbidden")
	}
	if e.given.call != "" {
		t.Errorf("the engine was asked: %+v", e.given)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	golden(t, f, "key_created.json", "POST", "/v1/keys", `{"name":"till","scopes":["send","read"],"expires_in":"1d","reason":"new till"}`)
	day := 24 * time.Hour
	want := control.KeyRequest{Name: "till", Scopes: []string{"send", "read"}, ExpiresIn: &day}
	if diff := cmp.Diff(want, e.given.what); diff != "" || e.actor.Reason != "new till" {
		t.Errorf("POST by %+v (-want +got):\n%s", e.actor, diff)
	}
	golden(t, f, "keys.json", "GET", "/v1/keys", "")
	id := "key_" + bareID
	if got := f.ask(t, 200, "DELETE", "/v1/keys/"+id, `{"reason":"lost"}`); got["id"] != id || e.given.id != bareID || e.actor.Reason != "lost" {
		t.Errorf("DELETE: %v, %+v by %+v", got, e.given, e.actor)
	}
	refuses(t, "POST", "/v1/keys", map[string]string{
		`{"name":7}`: "name", `{"scopes":"send"}`: "scopes", `{"scopes":["send",1]}`: "scopes[1]", `{"expires_in":"-1s"}`: "expires_in", `{"key":"dk_mine"}`: "key",
	})
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	e := &engine{endpoint: someEndpoint()}
	f := newFace(t, e)
	for path, want := range map[string]control.SecretQuery{
		"/v1/secret?lane=m-1":                      {Lane: "m-1"},
		"/v1/secret?lane=m-1&signer=t-v1":          {Lane: "m-1", Signer: "t-v1"},
		"/v1/secret?use=rsa":                       {Use: "rsa"},
		"/v1/secret?endpoint=" + oneEndpoint:       {Endpoint: bareEndpoint},
		"/v1/secret?endpoint=merchant-7":           {Endpoint: bareEndpoint},
		"/v1/secret?lane=" + oneEndpoint:           {Endpoint: bareEndpoint},
		"/v1/endpoints/" + oneEndpoint + "/secret": {Endpoint: bareEndpoint},
	} {
		f.arrives(t, e, 200, "GET", path, "", want)
	}
	golden(t, f, "endpoint_secret.json", "GET", "/v1/endpoints/"+oneEndpoint+"/secret", "")
	wantProblem(t, f.do("GET", "/v1/secret?endpoint=nobody", ""), 404, "not_found")
	zero, day := time.Duration(0), 24*time.Hour
	for _, c := range []struct {
		path, body string
		want       rotation
	}{
		{"/v1/secret/rotate", "", rotation{}},
		{"/v1/secret/rotate", `{"use":"rsa","secret":"a\npem","label":"sn","hosts":["a.example"],"overlap":"0s","reason":"leaked"}`, rotation{
			control.SecretQuery{Use: "rsa"}, control.Rotation{Secret: "a\npem", Label: "sn", Hosts: &[]string{"a.example"}, Overlap: &zero, Reason: "leaked"}}},
		{"/v1/endpoints/" + oneEndpoint + "/rotate_secret", `{"overlap":"1d"}`, rotation{
			control.SecretQuery{Endpoint: bareEndpoint}, control.Rotation{Overlap: &day}}},
	} {
		f.ask(t, 200, "POST", c.path, c.body)
		if diff := cmp.Diff(c.want, e.given.what, cmp.AllowUnexported(rotation{})); diff != "" || e.actor.Reason != c.want.asked.Reason {
			t.Errorf("%s by %+v (-want +got):\n%s", c.path, e.actor, diff)
		}
	}
	golden(t, f, "rotate_endpoint.json", "POST", "/v1/endpoints/"+oneEndpoint+"/rotate_secret", "")
	refuses(t, "POST", "/v1/endpoints/"+oneEndpoint+"/rotate_secret", map[string]string{`{"use":"hmac"}`: "use"})
}
