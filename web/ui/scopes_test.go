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

// rootPaths are for the settings' admin key alone: what they show or do is of all projects.
var rootPaths = []string{"/ui/system/migrations", "/ui/system/verify", "/ui/system/rebuild"}

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
	"admin":  {store.ScopeAdmin, store.ScopeOperate, store.ScopeRead, store.ScopeSend, ""},
	"reader": {store.ScopeRead, ""}, "operator": {store.ScopeOperate, store.ScopeRead, ""}, "sender": {store.ScopeSend, store.ScopeRead, ""},
}

// holders is a key ring with one key for each set of scopes that the tests need.
func holders() *keyRing {
	return &keyRing{keys: map[string]store.Key{
		"admin":    {ID: testID(7), Project: store.DefaultProject, Scopes: []store.Scope{store.ScopeAdmin}},
		"reader":   {ID: testID(5), Name: "support", Project: store.DefaultProject, Scopes: []store.Scope{store.ScopeRead}},
		"operator": {ID: testID(6), Project: store.DefaultProject, Scopes: []store.Scope{store.ScopeOperate}},
		"sender":   {ID: testID(4), Project: store.DefaultProject, Scopes: []store.Scope{store.ScopeSend, store.ScopeRead}},
		"only":     {ID: testID(3), Project: store.DefaultProject, Scopes: []store.Scope{store.ScopeSend}},
	}}
}

func TestEveryRouteAndEveryScope(t *testing.T) {
	t.Parallel()
	o := parts()
	o.keyRing = holders()
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
			if slices.Contains(included, needs) && !slices.Contains(rootPaths, r.Path) {
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
	root    bool
}

// neededScopes are those of all routes, first those without a parameter.
var neededScopes = sync.OnceValue(func() (all []neededScope) {
	u, err := newPages()
	if err != nil {
		panic(err)
	}
	defer u.Close()
	parameter := regexp.MustCompile(`:[a-z_]+`)
	for _, exact := range []bool{true, false} {
		for _, r := range u.Routes() {
			if exact != strings.Contains(r.Path, ":") {
				pattern := "^" + parameter.ReplaceAllString(regexp.QuoteMeta(r.Path), "[^/]+") + `(\?|$)`
				root := slices.Contains(rootPaths, r.Path)
				all = append(all, neededScope{r.Method, regexp.MustCompile(pattern), scopeOf(u.Routes(), r), root})
			}
		}
	}
	return all
})

// mayUse says whether somebody's key is enough for an address. Where no route has it, it is.
func mayUse(who, method, address string) (bool, store.Scope) {
	for _, n := range neededScopes() {
		if n.method == method && n.pattern.MatchString(address) {
			return slices.Contains(keyHolders[who], n.scope) && !n.root, n.scope
		}
	}
	return true, ""
}

// checkOffers checks that a page offers the keys of a project only what they allow.
func checkOffers(t *testing.T, o fakes, c pageCase) {
	t.Helper()
	o.keyRing = holders()
	b := open(t, o)
	for _, who := range []string{"reader", "operator", "admin"} {
		b.signIn(who)
		res := b.get(c.path)
		if allowed, _ := mayUse(who, http.MethodGet, c.path); !allowed && res.status == http.StatusOK {
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
			if allowed, scope := mayUse(who, method, address); !allowed {
				t.Errorf("a %s is offered %s %s, which needs %s", who, method, address, scope)
			}
		}
	}
}

// TestTheInstallationIsForItsOwnKey: the processes, the databases and the sizes of the index are those of all
// projects. Pages of a project's key do not even ask for them.
func TestTheInstallationIsForItsOwnKey(t *testing.T) {
	t.Parallel()
	secrets := wellIndex()
	for i := range secrets.processes {
		secrets.processes[i].Host, secrets.processes[i].Version = "pay-host", "9.9.9-own"
	}
	secrets.status.Prefix = "index-prefix"
	shown := map[string]bool{}
	look := func(who string, e indexEngine, path string) result {
		t.Helper()
		o := parts()
		o.keyRing, o.indexEngine = holders(), e
		b := open(t, o)
		b.signIn(who)
		return b.get(path).ok()
	}
	telling := []string{"pay-host", "9.9.9-own", "index-prefix", "1,234,567", "1,024"}
	for _, path := range []string{"/ui/", "/ui/system"} {
		root := look(testKey, secrets, path)
		for _, word := range telling {
			shown[word] = shown[word] || strings.Contains(root.body, word)
		}
		for _, who := range []string{"reader", "operator", "admin"} {
			res := look(who, secrets, path)
			for _, word := range telling {
				if strings.Contains(res.body, word) {
					t.Errorf("a %s is shown %q on %s", who, word, path)
				}
			}
			checkPage(t, res)
			look(who, indexEngine{err: errBroken, statsErr: errBroken}, path)
		}
	}
	for _, word := range telling {
		if !shown[word] {
			t.Errorf("the installation's own key is not shown %q", word)
		}
	}
}
