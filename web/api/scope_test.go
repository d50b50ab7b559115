package api_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// included says what scopes each one includes, itself among them. It is written out here, and not asked of the code under test.
var included = map[store.Scope][]store.Scope{
	store.ScopeSend:    {store.ScopeSend},
	store.ScopeRead:    {store.ScopeRead},
	store.ScopeOperate: {store.ScopeOperate, store.ScopeRead},
	store.ScopeAdmin:   {store.ScopeAdmin, store.ScopeOperate, store.ScopeRead, store.ScopeSend},
}

// routeScopes says what every route needs, as SPEC has it.
var routeScopes = map[string]store.Scope{
	"POST /v1/callbacks": store.ScopeSend, "POST /v1/callbacks/batch": store.ScopeSend, "POST /v1/events": store.ScopeSend,
	"POST /v1/polls": store.ScopeSend, "POST /v1/polls/:id/resolve": store.ScopeSend,
	"GET /v1/secret": store.ScopeAdmin, "POST /v1/secret/rotate": store.ScopeAdmin, "POST /v1/secret/reencrypt": store.ScopeAdmin, "GET /v1/audit": store.ScopeAdmin,
	"GET /v1/audit/verify": store.ScopeAdmin,
	"GET /v1/projects":     store.ScopeAdmin, "POST /v1/projects": store.ScopeAdmin,
	"GET /v1/projects/:id":   store.ScopeAdmin,
	"PATCH /v1/projects/:id": store.ScopeAdmin, "GET /v1/keys": store.ScopeAdmin, "POST /v1/keys": store.ScopeAdmin,
	"DELETE /v1/keys/:id": store.ScopeAdmin, "POST /v1/index/verify": store.ScopeAdmin, "POST /v1/index/rebuild": store.ScopeAdmin,
	"POST /v1/reconcile/compare":   store.ScopeRead,
	"GET /v1/endpoints/:id/secret": store.ScopeAdmin, "POST /v1/endpoints/:id/rotate_secret": store.ScopeAdmin,
}

// rootRoutes are for the settings' admin key alone: what they show or do is of all projects.
var rootRoutes = []string{
	"POST /v1/projects", "POST /v1/index/verify", "POST /v1/index/rebuild", "POST /v1/secret/reencrypt",
	"GET /v1/audit/verify",
}

// scopeOf is what a route needs: what is not in the table is read by GET, and operated on by the rest.
func scopeOf(r api.Route) store.Scope {
	if s, ok := routeScopes[r.Method+" "+r.Path]; ok {
		return s
	}
	if r.Method == "GET" {
		return store.ScopeRead
	}
	return store.ScopeOperate
}

// pathOf fills the parameters of a route with what the stub has.
func pathOf(r api.Route) string {
	id := oneID
	switch {
	case strings.HasPrefix(r.Path, "/v1/endpoints"):
		id = oneEndpoint
	case strings.HasPrefix(r.Path, "/v1/keys"):
		id = "key_" + bareID
	case strings.HasPrefix(r.Path, "/v1/redrives"):
		id = oneRedrive
	case strings.HasPrefix(r.Path, "/v1/schedules"):
		id = oneSchedule
	case strings.HasPrefix(r.Path, "/v1/projects"):
		id = "b"
	}
	path := strings.NewReplacer(":id", id, ":name", "own", ":lane", "m-1", "*external_id", "merchant-7").Replace(r.Path)
	switch path {
	case "/v1/reconcile":
		path += "?from=2026-11-20"
	case "/v1/secret":
		path += "?lane=m-1"
	}
	return path
}

// routes are those that need a key.
func routes(t *testing.T) (routes []api.Route) {
	t.Helper()
	a, err := api.New(optionsOf(&engine{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range a.Routes() {
		if r.Path != "/openapi.yaml" {
			routes = append(routes, r)
		}
	}
	if len(routes) < 75 {
		t.Fatalf("%d routes", len(routes))
	}
	return routes
}

// TestEveryRouteAndEveryScope, case 48: with a scope that includes what a route needs it answers; without it,
// 403 that names the scope. Without a key it is 401 whatever the route.
func TestEveryRouteAndEveryScope(t *testing.T) {
	t.Parallel()
	for _, r := range routes(t) {
		needs := scopeOf(r)
		if r.Scope != needs {
			t.Errorf("%s %s needs %s, want %s", r.Method, r.Path, r.Scope, needs)
		}
		wantProblem(t, newFace(t, &engine{}).do(r.Method, pathOf(r), "{", "Authorization", "Bearer dk_nobody_knows_this"), 401, "unauthorized")
		for _, scope := range store.Scopes {
			e := &engine{endpoint: someEndpoint(), presets: somePresets()}
			rec := newFace(t, e).do(r.Method, pathOf(r), "{", "Authorization", "Bearer "+keyOf("b", scope))
			switch allowed := slices.Contains(included[scope], needs); {
			case !allowed:
				wantProblem(t, rec, 403, "forbidden")
				if !strings.Contains(rec.Body.String(), "the scope "+string(needs)) || e.given.call != "" {
					t.Errorf("%s %s with %s: %s; the engine was asked for %q", r.Method, r.Path, scope, rec.Body, e.given.call)
				}
			case slices.Contains(rootRoutes, r.Method+" "+r.Path):
				wantProblem(t, rec, 403, "forbidden")
				if !strings.Contains(rec.Body.String(), "the admin key of the settings") || e.given.call != "" {
					t.Errorf("%s %s with %s: %s; asked for %q", r.Method, r.Path, scope, rec.Body, e.given.call)
				}
			case rec.Code == 401 || rec.Code == 403:
				t.Errorf("%s %s with %s: %d %s", r.Method, r.Path, scope, rec.Code, rec.Body)
			}
		}
	}
}

// TestEveryRouteIsOfTheKeysProject: nothing that a route asks for is another project's.
func TestEveryRouteIsOfTheKeysProject(t *testing.T) {
	t.Parallel()
	for _, r := range routes(t) {
		if strings.HasPrefix(r.Path, "/v1/projects") || strings.HasPrefix(r.Path, "/v1/index") ||
			r.Path == "/v1/audit/verify" || r.Path == "/v1/secret/reencrypt" {
			continue // TestProjectsThatAKeySees; the index has no project, the chain all
		}
		e := fullEngine()
		rec := newFace(t, e).do(r.Method, pathOf(r), bodyOf(r), "Authorization", "Bearer "+keyOf("b", store.ScopeAdmin))
		if len(e.projects) == 0 || slices.ContainsFunc(e.projects, func(asked string) bool { return asked != "b" }) {
			t.Errorf("%s %s asks for projects %q: %d %s", r.Method, r.Path, e.projects, rec.Code, rec.Body)
		}
	}
}

// TestTheProjectIsTheKeys: what reaches the engine is of the project that the key belongs to, or that the settings' admin key names.
func TestTheProjectIsTheKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header []string
		want   string
		actor  string
	}{
		{[]string{"Authorization", "Bearer " + keyOf("b", store.ScopeAdmin)}, "b", "till (key_" + bareID + ")"},
		{[]string{"Authorization", "Bearer " + keyOf("b", store.ScopeAdmin), client.ProjectHeader, "b"}, "b", "till (key_" + bareID + ")"},
		{nil, "default", "admin key"},
		{[]string{client.ProjectHeader, "b"}, "b", "admin key"},
	} {
		e := &engine{endpoint: someEndpoint()}
		f := newFace(t, e)
		for range 2 { // the second time the project is known
			f.askAs(t, 200, "POST", "/v1/endpoints/"+oneEndpoint+"/pause", "", c.header...)
			if e.given.project != c.want || e.actor.Name != c.actor {
				t.Errorf("%q: of project %q by %q", c.header, e.given.project, e.actor.Name)
			}
		}
	}
	for _, header := range [][]string{
		{client.ProjectHeader, "c"}, {client.ProjectHeader, ""}, {client.ProjectHeader, "b", client.ProjectHeader, "default"}, {client.ProjectHeader, "\xff"},
		{"Authorization", "Bearer " + keyOf("b", store.ScopeAdmin), client.ProjectHeader, "default"},
		{"Authorization", "Bearer " + keyOf("b", store.ScopeAdmin), client.ProjectHeader, "nowhere"},
	} {
		e := &engine{}
		wantProblem(t, newFace(t, e).do("POST", "/v1/pause", "", header...), 404, "not_found")
		if e.given.call != "" {
			t.Errorf("%q reached the engine", header)
		}
	}
}

// TestASecretIsNotForOperators: who may change endpoints may make them with a secret, but not replace one.
func TestASecretIsNotForOperators(t *testing.T) {
	t.Parallel()
	operate := []string{"Authorization", "Bearer " + keyOf("b", store.ScopeOperate)}
	e := &engine{endpoint: someEndpoint()}
	f := newFace(t, e)
	for _, c := range [][3]string{
		{"PATCH", "/v1/endpoints/" + oneEndpoint, `{"secret":"whsec_x"}`},
		{"PUT", "/v1/endpoints/by-external-id/x", `{"secret":"whsec_x"}`},
		{"POST", "/v1/endpoints/batch", `{"endpoints":[{"external_id":"a"},{"external_id":"x","secret":"whsec_x"}]}`},
	} {
		wantProblem(t, f.do(c[0], c[1], c[2], operate...), 403, "forbidden")
		if e.given.call != "" {
			t.Errorf("%q reached the engine", c)
		}
	}
	f.askAs(t, 201, "POST", "/v1/endpoints", `{"url":"u","secret":"whsec_x"}`, operate...)
	f.askAs(t, 200, "PATCH", "/v1/endpoints/"+oneEndpoint, `{"url":"u"}`, operate...)
}

// lost are keys whose database is away.
type lost struct{ *engine }

func (lost) Authenticate(context.Context, string) (store.Key, error) {
	return store.Key{}, fmt.Errorf("read a key: %w", store.ErrUnavailable)
}

func TestKeysThatCannotBeRead(t *testing.T) {
	t.Parallel()
	o := optionsOf(&engine{})
	o.Engine = lost{&engine{}}
	f := newFaceOf(t, o)
	wantProblem(t, f.do("GET", "/v1/callbacks", "", "Authorization", "Bearer dk_any"), 503, "unavailable")
	if rec := f.do("GET", "/v1/callbacks", ""); rec.Code != 200 {
		t.Errorf("the settings' admin key while keys cannot be read: %d %s", rec.Code, rec.Body)
	}
}
