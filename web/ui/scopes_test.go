package ui

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestRoutes lists the routes with their scopes. "root" is only for the admin key of the settings, "live" has
// a stream.
func TestRoutes(t *testing.T) {
	t.Parallel()
	transcript.File(t, "testdata/routes.txt", func(*testing.T, string) string {
		var all strings.Builder
		for _, r := range allRoutes() {
			line := fmt.Sprint(r.Method, " ", r.Path, " ", cmp.Or(r.Scope, "anyone"))
			if r.Root {
				line += " root"
			}
			if r.live {
				line += " live"
			}
			fmt.Fprintln(&all, line)
		}
		return all.String()
	})
}

// keyScopes are the scopes that each of testKeys includes.
var keyScopes = map[string][]store.Scope{
	"admin":  {store.ScopeAdmin, store.ScopeOperate, store.ScopeRead, store.ScopeSend, ""},
	"reader": {store.ScopeRead, ""}, "operator": {store.ScopeOperate, store.ScopeRead, ""},
	"sender": {store.ScopeSend, store.ScopeRead, ""},
}

// testKeys returns keys by their texts, one for each set of scopes that the tests need.
func testKeys() map[string]store.Key {
	key := func(n int, scopes ...store.Scope) store.Key {
		return store.Key{ID: testID(n), Name: "support", Project: store.DefaultProject, Scopes: scopes}
	}
	return map[string]store.Key{
		"admin": key(7, store.ScopeAdmin), "reader": key(5, store.ScopeRead),
		"operator": key(6, store.ScopeOperate),
		"sender":   key(4, store.ScopeSend, store.ScopeRead), "only": key(3, store.ScopeSend),
	}
}

func TestRoutesCheckScopes(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, newWorld())
	if res := b.post("/ui/sign-in", "key", "only"); res.status != http.StatusForbidden {
		t.Errorf("sign-in with a key that may only send: status %d", res.status)
	}
	for who, included := range keyScopes {
		b.signIn(who)
		for _, r := range b.ui.Routes() {
			if slices.Contains(included, r.Scope) && !r.Root {
				continue // allowed: the scripts of the page test it
			}
			res := result{}
			path := strings.ReplaceAll(r.Path, ":id", "x_"+testID(1))
			if r.Method == http.MethodPost {
				res = b.post(path)
			} else {
				res = b.get(path)
			}
			if res.status != http.StatusForbidden {
				t.Errorf("%s gets %d for %s %s", who, res.status, r.Method, r.Path)
			}
		}
	}
}

// allRoutes returns the routes of a UI.
var allRoutes = sync.OnceValue(func() []Route {
	u, err := newPages()
	if err != nil {
		panic(err)
	}
	defer u.Close()
	return u.Routes()
})

// mayUse reports whether a key may use a URL, and which scope the URL needs. It returns true if no route has
// the URL.
func (u *UI) mayUse(who, method, address string) (bool, store.Scope) {
	path, _, _ := strings.Cut(address, "?")
	found, _, _ := u.match(method, path)
	return slices.Contains(keyScopes[who], found.Scope) && !found.Root, found.Scope
}

// checkOffers checks that a page offers only links and forms that the viewer's key may use.
func checkOffers(t *testing.T, w *world, path string) {
	t.Helper()
	b := newBrowser(t, w)
	for _, who := range []string{"reader", "operator", "admin"} {
		b.signIn(who)
		res := b.get(path)
		if allowed, _ := b.ui.mayUse(who, http.MethodGet, path); !allowed && res.status == http.StatusOK {
			t.Errorf("%s gets the page without its scope", who)
		}
		if res.status != http.StatusOK {
			continue
		}
		for _, n := range slices.Concat(find(res.doc, "a[href]"), find(res.doc, "form"),
			find(res.doc, "button[formaction]")) {
			method, address := http.MethodGet, attr(n, "href")+attr(n, "action")+attr(n, "formaction")
			if n.Data == "button" || strings.EqualFold(attr(n, "method"), "post") {
				method = http.MethodPost
			}
			if allowed, scope := b.ui.mayUse(who, method, address); !allowed {
				t.Errorf("the page offers %s %s to %s, but it needs %s", method, address, who, scope)
			}
		}
	}
}
