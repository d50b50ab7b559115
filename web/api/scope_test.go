package api_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// included has the scopes that each scope includes. The test repeats this table and does not read it from the
// code under test.
var included = map[store.Scope][]store.Scope{
	store.ScopeSend:    {store.ScopeSend},
	store.ScopeRead:    {store.ScopeRead},
	store.ScopeOperate: {store.ScopeOperate, store.ScopeRead},
	store.ScopeAdmin:   {store.ScopeAdmin, store.ScopeOperate, store.ScopeRead, store.ScopeSend},
}

// A want is what a route requires, according to testdata/routes.list.
type want struct {
	scope store.Scope
	// root: the route requires the admin key of the settings, because it concerns all projects.
	root       bool
	path, body string
}

var wants = sync.OnceValue(func() map[string]want {
	text, err := os.ReadFile("testdata/routes.list")
	if err != nil {
		panic(err)
	}
	all := make(map[string]want)
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\n\t", " ")) {
		part := append(strings.Fields(line), "")
		if part[0] == "#" {
			continue
		}
		w := want{scope: store.Scope(part[0]), root: part[0] == "root", path: part[3], body: part[4]}
		if w.root {
			w.scope = store.ScopeAdmin
		}
		if w.path == "=" {
			w.path = part[2]
		}
		all[part[1]+" "+part[2]] = w
	}
	return all
})

func name(r api.Route) string { return r.Method + " " + r.Path }

// pathOf returns a path of the route with ids that the stub has.
func pathOf(r api.Route) string { return wants()[name(r)].path }

// bodyOf returns a valid body for the route.
func bodyOf(r api.Route) string { return wants()[name(r)].body }

// routes returns the routes that need a key.
func routes(t testing.TB) (routes []api.Route) {
	t.Helper()
	a, err := api.New(optionsOf(newEngine(world{})))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range a.Routes() {
		if r.Scope != "" {
			routes = append(routes, r)
		}
	}
	if len(routes) < 75 {
		t.Fatalf("%d routes", len(routes))
	}
	return routes
}

// bearer returns the header with a key of the stub.
func bearer(project string, scope store.Scope) []string {
	return []string{"Authorization", "Bearer dk_" + project + "_" + string(scope)}
}

// TestEveryRouteAndEveryScope (case 48) calls every route with every scope. A key whose scope includes the
// required one gets a response. Other keys get a 403 that names the scope. An invalid key gets a 401 on every
// route. No call concerns another project.
func TestEveryRouteAndEveryScope(t *testing.T) {
	t.Parallel()
	for _, r := range routes(t) {
		needs := wants()[name(r)].scope
		if r.Scope != needs {
			t.Errorf("%s needs %s, want %s", name(r), r.Scope, needs)
		}
		invalid := newTestAPI(t, fullEngine()).do(r.Method, pathOf(r), "{", "Authorization",
			"Bearer dk_invalid_key")
		wantProblem(t, invalid, 401, "unauthorized")
		for _, scope := range store.Scopes {
			e := fullEngine()
			rec := newTestAPI(t, e).do(r.Method, pathOf(r), bodyOf(r), bearer("b", scope)...)
			root := wants()[name(r)].root
			isOther := func(project string) bool { return project != "b" }
			otherProject := slices.ContainsFunc(e.projects, isOther)
			// projects.txt covers the routes of projects. The stop is that of the installation.
			ofAll := strings.HasPrefix(r.Path, "/v1/projects") || r.Path == "/v1/stop"
			noProject := len(e.projects) == 0 && !ofAll
			switch allowed := slices.Contains(included[scope], needs); {
			case !allowed, root:
				wantProblem(t, rec, 403, "forbidden")
				required := "the scope " + string(needs)
				if allowed {
					required = "the admin key of the settings"
				}
				if !strings.Contains(rec.Body.String(), required) || len(e.calls) > 0 {
					t.Errorf("%s with %s: %s; calls %q", name(r), scope, rec.Body, e.calls)
				}
			case rec.Code >= 300:
				t.Errorf("%s with %s: %d %s", name(r), scope, rec.Code, rec.Body)
			case otherProject, noProject:
				t.Errorf("%s calls the engine for the projects %q", name(r), e.projects)
			}
		}
	}
}

// TestEveryRouteWithoutSQL checks that every route responds with 503 while the database is down.
func TestEveryRouteWithoutSQL(t *testing.T) {
	t.Parallel()
	for _, r := range routes(t) {
		e := fullEngine()
		e.err = fmt.Errorf("call: %w", store.ErrUnavailable)
		rec := newTestAPI(t, e).do(r.Method, pathOf(r), bodyOf(r))
		wantProblem(t, rec, 503, "unavailable")
		if rec.Header().Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", name(r))
		}
	}
}

// TestEveryRouteByAnID (case 92) checks that an invalid id, or an id of another kind, is not found, and that
// the engine is not called.
func TestEveryRouteByAnID(t *testing.T) {
	t.Parallel()
	for _, r := range routes(t) {
		if !strings.Contains(r.Path, ":id") || strings.HasPrefix(r.Path, "/v1/projects") {
			continue
		}
		right := pathOf(r)
		prefix, bare, _ := strings.Cut(strings.Split(right, "/")[3], "_")
		for _, id := range []string{
			"x", bare, prefix + "_", prefix + "_" + bare[1:], prefix + "_" + bare + "0",
			prefix + "_8" + bare[1:], "other_" + bare, strings.ToUpper(prefix) + "_" + bare,
			prefix + "_" + strings.ToLower(bare[:3]) + "o" + bare[4:],
			prefix + "_" + strings.Replace(bare, "J", "I", 1), "%00", "'%20or%201=1--",
			prefix + "_..%2f..%2fetc", strings.Repeat("A", 10_000), prefix + "_" + bare[:25] + "%00",
		} {
			e := fullEngine()
			path := strings.Replace(right, prefix+"_"+bare, id, 1)
			if rec := newTestAPI(t, e).do(r.Method, path, bodyOf(r)); rec.Code != 404 || len(e.calls) > 0 {
				t.Errorf("%s %.60s: %d %s; calls %q", r.Method, path, rec.Code, rec.Body, e.calls)
			}
		}
	}
}

// TestGETChangesNothing (case 56) checks that no GET changes anything, because a link or an image on another
// site can make a browser send a GET. Calls that change something name their actor. The only exception is
// reading a secret, which the audit log records.
func TestGETChangesNothing(t *testing.T) {
	t.Parallel()
	for _, r := range routes(t) {
		if r.Method != "GET" || slices.Contains([]string{"/v1/secret", "/v1/endpoints/:id/secret"}, r.Path) {
			continue
		}
		e := fullEngine()
		if rec := newTestAPI(t, e).do("GET", pathOf(r), ""); len(e.actors) > 0 || rec.Code >= 300 {
			t.Errorf("%s: %d; calls %q", r.Path, rec.Code, e.calls)
		}
	}
}

// TestGuessesUseOneCodePath (case 46) checks that the code path does not depend on how much of a valid key a
// guess contains: one look-up of the whole text, by its hash, and one response. The house test
// TestSecretsAreComparedInConstantTime checks that no comparison on the path is by bytes.
func TestGuessesUseOneCodePath(t *testing.T) {
	t.Parallel()
	e := fullEngine()
	f := newTestAPI(t, e)
	guesses := []string{
		adminKey[:1], adminKey[:len(adminKey)-1], adminKey + "x", "x" + adminKey[1:], " " + adminKey, "dk_",
		strings.Repeat("x", 8000),
	}
	first := f.do("GET", "/v1/callbacks", "", "Authorization", "Bearer "+guesses[0])
	for i, guess := range guesses[1:] {
		rec := f.do("GET", "/v1/callbacks", "", "Authorization", "Bearer "+guess)
		wantProblem(t, rec, 401, "unauthorized")
		if rec.Body.String() != first.Body.String() || len(e.keys) != i+2 || e.keys[i+1] != guess {
			t.Errorf("%.40q: %s after looking up %.40q", guess, rec.Body, e.keys)
		}
	}
	for _, header := range []string{"", "Bearer", "Bearer ", adminKey, "Basic " + adminKey} {
		rec := f.do("POST", "/v1/callbacks", "not JSON", "Authorization", header)
		wantProblem(t, rec, 401, "unauthorized")
		if rec.Header().Get("WWW-Authenticate") != "Bearer" {
			t.Error("401 without WWW-Authenticate")
		}
	}
	rec := f.do("GET", "/openapi.yaml", "", "Authorization", "")
	if rec.Code != 200 || len(e.keys) != len(guesses) {
		t.Errorf("the document without a key: %d; looked up %.40q", rec.Code, e.keys)
	}
	e.authErr = fmt.Errorf("read a key: %w", store.ErrUnavailable)
	wantProblem(t, f.do("GET", "/v1/callbacks", "", "Authorization", "Bearer dk_any"), 503, "unavailable")
	if rec := f.do("GET", "/v1/callbacks", "", "Authorization", "bearer "+adminKey); rec.Code != 200 {
		t.Errorf("the admin key of the settings while keys cannot be read: %d %s", rec.Code, rec.Body)
	}
}
