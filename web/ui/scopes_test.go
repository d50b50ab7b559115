package ui

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// scopeOf is the scope that a route needs. The test has its own table: a page needs read, a change and its form need
// operate, and the exceptions are listed.
func scopeOf(all []Route, r Route) store.Scope {
	exceptions := map[string]store.Scope{
		"/ui/sign-in": "", "/ui/sign-out": "", "/ui/preferences": "", "/ui/project": store.ScopeRead, "/ui/books/compare": store.ScopeRead,
		"/ui/callbacks/:id/resolve": store.ScopeSend, "/ui/audit": store.ScopeAdmin, "/ui/endpoints/:id/secret": store.ScopeAdmin,
		"/ui/endpoints/:id/rotate_secret": store.ScopeAdmin, "/ui/system/keys": store.ScopeAdmin, "/ui/system/keys/new": store.ScopeAdmin,
		"/ui/system/keys/:id/revoke": store.ScopeAdmin, "/ui/system/verify": store.ScopeAdmin, "/ui/system/rebuild": store.ScopeAdmin,
	}
	if scope, ok := exceptions[r.Path]; ok {
		return scope
	}
	if slices.ContainsFunc(all, func(other Route) bool { return other.Path == r.Path && other.Method == http.MethodPost }) {
		return store.ScopeOperate
	}
	return store.ScopeRead
}

// keyHolders has the scopes that each key of holders includes.
var keyHolders = map[string][]store.Scope{
	"reader": {store.ScopeRead, ""}, "operator": {store.ScopeOperate, store.ScopeRead, ""}, "sender": {store.ScopeSend, store.ScopeRead, ""},
}

// holders is a key ring with one key for each set of scopes that the tests need.
func holders() *keyRing {
	return &keyRing{keys: map[string]store.Key{
		"reader":   {ID: testID(5), Name: "support", Project: store.DefaultProject, Scopes: []store.Scope{store.ScopeRead}},
		"operator": {ID: testID(6), Project: store.DefaultProject, Scopes: []store.Scope{store.ScopeOperate}},
		"sender":   {ID: testID(4), Project: store.DefaultProject, Scopes: []store.Scope{store.ScopeSend, store.ScopeRead}},
		"only":     {ID: testID(3), Project: store.DefaultProject, Scopes: []store.Scope{store.ScopeSend}},
	}}
}

func TestEveryRouteAndEveryScope(t *testing.T) {
	t.Parallel()
	o := parts()
	o.Keys = holders()
	b := open(t, o)
	if res := b.post("/ui/sign-in", "key", "only"); res.status != http.StatusForbidden {
		t.Errorf("a key that may only send signs in: %d", res.status)
	}
	for who, included := range keyHolders {
		b.signIn(who)
		for _, r := range b.ui.Routes() {
			needs := scopeOf(b.ui.Routes(), r)
			if r.Scope != needs {
				t.Errorf("%s %s needs %q, want %q", r.Method, r.Path, r.Scope, needs)
			}
			if slices.Contains(included, needs) {
				continue // what it does then, the tests of its page show
			}
			res := result{}
			if path := strings.ReplaceAll(r.Path, ":id", "x_"+testID(1)); r.Method == http.MethodPost {
				res = b.post(path)
			} else {
				res = b.get(path)
			}
			if res.status != http.StatusForbidden {
				t.Errorf("a %s gets %d for %s %s", who, res.status, r.Method, r.Path)
			}
		}
	}
}

// A neededScope is what the addresses of a pattern need.
type neededScope struct {
	method  string
	pattern *regexp.Regexp
	scope   store.Scope
}

// neededScopes are those of all routes, first those without a parameter.
var neededScopes = sync.OnceValue(func() (all []neededScope) {
	u, err := New(parts())
	if err != nil {
		panic(err)
	}
	defer u.Close()
	parameter := regexp.MustCompile(`:[a-z_]+`)
	for _, exact := range []bool{true, false} {
		for _, r := range u.Routes() {
			if exact != strings.Contains(r.Path, ":") {
				pattern := "^" + parameter.ReplaceAllString(regexp.QuoteMeta(r.Path), "[^/]+") + `(\?|$)`
				all = append(all, neededScope{r.Method, regexp.MustCompile(pattern), scopeOf(u.Routes(), r)})
			}
		}
	}
	return all
})

// neededFor is the scope that an address needs, none if no route has it.
func neededFor(method, address string) store.Scope {
	for _, n := range neededScopes() {
		if n.method == method && n.pattern.MatchString(address) {
			return n.scope
		}
	}
	return ""
}

// checkOffers checks that a page offers a reader and an operator only what their keys allow.
func checkOffers(t *testing.T, o Options, c pageCase) {
	t.Helper()
	o.Keys = holders()
	b := open(t, o)
	for _, who := range []string{"reader", "operator"} {
		b.signIn(who)
		res := b.get(c.path)
		if allowed := slices.Contains(keyHolders[who], neededFor(http.MethodGet, c.path)); !allowed && res.status == http.StatusOK {
			t.Errorf("a %s gets the page", who)
		}
		if res.status != http.StatusOK {
			continue
		}
		for _, n := range slices.Concat(find(res.doc, "a[href]"), find(res.doc, "form"), find(res.doc, "button[formaction]")) {
			method, address := http.MethodGet, attr(n, "href")+attr(n, "action")+attr(n, "formaction")
			if n.Data == "button" || strings.EqualFold(attr(n, "method"), "post") {
				method = http.MethodPost
			}
			if scope := neededFor(method, address); !slices.Contains(keyHolders[who], scope) {
				t.Errorf("a %s is offered %s %s, which needs %s", who, method, address, scope)
			}
		}
	}
}
