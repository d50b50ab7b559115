package ui

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/signin"
)

// The public URL of the tests, and where the provider sends a browser back.
const (
	publicURL   = "http://127.0.0.1:8080"
	callbackURL = publicURL + signin.CallbackPath
)

// withProvider returns a world whose pages sign people in at a stand-in. The group payments operates the
// default project, support reads the default project and other-project, platform has all rights.
func withProvider(t *testing.T) (*world, *testserver.IdentityProvider) {
	t.Helper()
	idp := testserver.NewIdentityProvider(t, callbackURL)
	w := newWorld()
	w.has.Projects = []string{"shop"}
	w.PublicURL = publicURL
	w.SignIn = signin.New(signin.Options{Issuer: idp.URL, ClientID: idp.ClientID,
		ClientSecret: idp.ClientSecret, RedirectURL: callbackURL})
	t.Cleanup(w.SignIn.CloseIdle)
	var err error
	w.Grants, err = signin.ParseGrants(`[
		{"group": "payments", "project": "default", "scopes": ["operate"]},
		{"group": "support", "project": "default", "scopes": ["read"]},
		{"group": "support", "project": "shop", "scopes": ["read"]},
		{"group": "gone", "project": "no-such-project", "scopes": ["read"]},
		{"group": "platform", "root": true}]`)
	if err != nil {
		t.Fatal(err)
	}
	return w, idp
}

// member returns the claims of a person in groups.
func member(groups ...string) map[string]any {
	return map[string]any{"sub": "1001", "name": "Wang Wei", "email": "wang@shop.example", "groups": groups}
}

// atProvider follows a link to the provider and returns the path to which it sends the browser back.
func atProvider(t *testing.T, to string) string {
	t.Helper()
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	res, err := c.Get(to)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	back, err := res.Location()
	if err != nil || !strings.HasPrefix(back.String(), callbackURL+"?") {
		t.Fatalf("status %d, to %v: %v", res.StatusCode, back, err)
	}
	return back.RequestURI()
}

// toProvider begins a sign-in and returns the provider's URL.
func (b *browser) toProvider(next string) string {
	b.t.Helper()
	res := b.get(link("/sign-in/begin", "next", next))
	if res.status != http.StatusSeeOther {
		b.t.Fatalf("status %d\n%s", res.status, res.text())
	}
	return res.header.Get("Location")
}

// callback requests the callback's path as a browser does that comes from another site.
func (b *browser) callback(path string) result {
	b.t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	req.Header.Set("Sec-Fetch-Mode", "navigate")
	return b.do(req)
}

func (b *browser) signInAtProvider(next string) result {
	b.t.Helper()
	return b.callback(atProvider(b.t, b.toProvider(next)))
}

func TestPersonSignsIn(t *testing.T) {
	t.Parallel()
	w, idp := withProvider(t)
	idp.SignIn(member("others", "payments"))
	b := newBrowser(t, w)
	page := b.get("/ui/sign-in?next=/ui/dead").ok()
	if n := page.count(`a[href=` + publicURL + `/ui/sign-in/begin?next=%2Fui%2Fdead]`); n != 1 {
		t.Errorf("%d links to the provider in\n%s", n, page.body)
	}
	planted := "planted"
	b.cookies[sessionCookie] = planted
	b.signInAtProvider("/ui/dead").redirects("/ui/dead")
	if b.cookies[sessionCookie] == planted || b.cookies[attemptsCookie] != "" {
		t.Errorf("cookies %v", b.cookies)
	}
	page = b.get("/ui/dead").ok()
	page.has("header", "Wang Wei")
	b.post("/ui/redrives/new", "action", "retry", "filter", "state=dead")
	if len(w.changes) != 1 || !strings.Contains(w.changes[0], "Wang Wei (oidc:1001)") {
		t.Errorf("changes %q", w.changes)
	}
	if res := b.get("/ui/audit"); res.status != http.StatusForbidden {
		t.Errorf("the scope operate opens the audit log: %d", res.status)
	}
	for _, row := range w.sessions {
		if strings.Contains(string(row.Data), "others") {
			t.Error("the session has groups without a grant")
		}
	}
	b.post("/ui/sign-out").redirects("/ui/sign-in")
	b.get("/ui/dead").redirects("/ui/sign-in?next=%2Fui%2Fdead")
}

// TestPersonOfSeveralProjects: a person sees and enters the projects of their groups only, with the scopes of
// each.
func TestPersonOfSeveralProjects(t *testing.T) {
	t.Parallel()
	w, idp := withProvider(t)
	idp.SignIn(member("support", "payments"))
	b := newBrowser(t, w)
	b.signInAtProvider("").redirects("/ui/")
	if n := b.get("/ui/callbacks").ok().count("select#project option"); n != 2 {
		t.Errorf("%d projects, want 2", n)
	}
	b.get("/ui/endpoints/new").ok()
	b.post("/ui/project", "project", "shop").redirects("/ui/")
	if res := b.get("/ui/endpoints/new"); res.status != http.StatusForbidden {
		t.Errorf("the scope of one project is valid in another: %d", res.status)
	}
	if res := b.post("/ui/project", "project", "no-such-project"); res.status != http.StatusForbidden {
		t.Errorf("a project without a group: %d", res.status)
	}
	idp.SignIn(member("platform"))
	b = newBrowser(t, w)
	b.signInAtProvider("").redirects("/ui/")
	b.get("/ui/system/migrations").ok()
	b.post("/ui/project", "project", "shop").redirects("/ui/")
}

// TestAccountWithoutAccess: the page names the account, and no session begins.
func TestAccountWithoutAccess(t *testing.T) {
	t.Parallel()
	w, idp := withProvider(t)
	for _, groups := range [][]string{nil, {"others"}, {"gone"}} {
		claims := member(groups...)
		claims["name"] = hostile
		idp.SignIn(claims)
		b := newBrowser(t, w)
		res := b.signInAtProvider("")
		if res.status != http.StatusForbidden {
			t.Errorf("groups %v: status %d", groups, res.status)
		}
		res.has("[role=alert]", "wang@shop.example")
		b.get("/ui/").redirects("/ui/sign-in?next=%2Fui%2F")
	}
}

// TestRemovedGroupEndsTheSession: what a person may do follows from the settings of now, and a session ends
// 12 hours after the sign-in, however much it is used. Then the provider's groups are read again.
func TestRemovedGroupEndsTheSession(t *testing.T) {
	t.Parallel()
	w, idp := withProvider(t)
	idp.SignIn(member("payments"))
	w.Lifetime = 12 * time.Hour
	b := newBrowser(t, w)
	b.signInAtProvider("").redirects("/ui/")
	for _, row := range w.sessions {
		if left := time.Until(time.UnixMilli(row.ExpiresAt)); left > 12*time.Hour || left < 11*time.Hour {
			t.Errorf("the session ends in %s", left)
		}
	}
	b.ui.Grants = b.ui.Grants[1:]
	b.get("/ui/").redirects("/ui/sign-in?next=%2Fui%2F")
	if len(w.sessions) != 0 {
		t.Error("the session was not deleted")
	}
}

// TestCallbackWithoutAttempt is login CSRF: an attacker must not be able to sign a victim's browser in with
// the attacker's account, nor to use a callback twice.
func TestCallbackWithoutAttempt(t *testing.T) {
	t.Parallel()
	w, idp := withProvider(t)
	idp.SignIn(member("payments"))
	attacker, victim := newBrowser(t, w), newBrowser(t, w)
	path := atProvider(t, attacker.toProvider(""))
	refused := func(b *browser, path, why string) {
		t.Helper()
		if res := b.callback(path); res.status != http.StatusBadRequest || b.cookies[sessionCookie] != "" {
			t.Errorf("%s: status %d, cookies %v", why, res.status, b.cookies)
		}
	}
	refused(victim, path, "no attempt")
	victim.toProvider("")
	refused(victim, path, "another attempt")
	refused(victim, "/ui/sign-in/callback?code=x", "no state")
	attempts := attacker.cookies[attemptsCookie]
	mixed := strings.Replace(path, "iss=", "iss=https%3A%2F%2Flogin.example&", 1)
	refused(attacker, mixed, "another issuer")
	attacker.cookies[attemptsCookie] = attempts
	attacker.callback(path).redirects("/ui/")
	attacker.post("/ui/sign-out")
	refused(attacker, path, "used")
	attacker.cookies[attemptsCookie] = attempts // a browser that kept its cookie
	if res := attacker.callback(path); res.status != http.StatusUnauthorized {
		t.Errorf("the code used twice: %d", res.status)
	}
}

// TestTwoTabs: attempts of two tabs do not disturb each other, in any order, and each leads to its own page.
func TestTwoTabs(t *testing.T) {
	t.Parallel()
	w, idp := withProvider(t)
	idp.SignIn(member("payments"))
	b := newBrowser(t, w)
	first, second := b.toProvider("/ui/dead"), b.toProvider("/ui/lanes")
	b.callback(atProvider(t, second)).redirects("/ui/lanes")
	b.callback(atProvider(t, first)).redirects("/ui/dead")
	for range 5 {
		b.toProvider("/ui/dead?q=" + strings.Repeat("x", 590))
	}
	if n := len(b.cookies[attemptsCookie]); n > 4000 {
		t.Errorf("the cookie has %d bytes", n)
	}
	for _, next := range []string{
		"https://evil.example/", "//evil.example", "/ui/../x", strings.Repeat("/ui/", 200),
	} {
		b.signInAtProvider(next).redirects("/ui/")
	}
	b.cookies[attemptsCookie] = "e30" // {}
	b.get("/ui/sign-in").ok()
}

// TestDeclined: the provider's error is in the log, not on the page.
func TestDeclined(t *testing.T) {
	t.Parallel()
	w, _ := withProvider(t)
	b := newBrowser(t, w)
	to, err := url.Parse(b.toProvider(""))
	if err != nil {
		t.Fatal(err)
	}
	q := url.Values{"error": {"access_denied"}, "error_description": {hostile},
		"state": {to.Query().Get("state")}}
	res := b.callback(signin.CallbackPath + "?" + q.Encode())
	if res.status != http.StatusForbidden || strings.Contains(res.body, "access_denied") {
		t.Errorf("status %d\n%s", res.status, res.text())
	}
}

// TestProviderIsDown: the page says so, keys still work, and nothing is kept.
func TestProviderIsDown(t *testing.T) {
	t.Parallel()
	w, idp := withProvider(t)
	idp.Respond(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", http.StatusBadGateway) })
	b := newBrowser(t, w)
	res := b.get("/ui/sign-in/begin?next=/ui/dead")
	if res.status != http.StatusServiceUnavailable || b.cookies[attemptsCookie] != "" {
		t.Errorf("status %d, cookies %v", res.status, b.cookies)
	}
	res.has("[role=alert]", strings.TrimPrefix(idp.URL, "http://"))
	b.signIn(testKey)
}

// TestCodesAreGuesses: refused codes count like wrong keys, by address.
func TestCodesAreGuesses(t *testing.T) {
	t.Parallel()
	w, _ := withProvider(t)
	b := newBrowser(t, w)
	limited := false
	for range 12 {
		to, err := url.Parse(b.toProvider(""))
		if err != nil {
			t.Fatal(err)
		}
		q := url.Values{"code": {"guess"}, "state": {to.Query().Get("state")}}
		switch res := b.callback(signin.CallbackPath + "?" + q.Encode()); res.status {
		case http.StatusUnauthorized:
		case http.StatusTooManyRequests:
			limited = true
		default:
			t.Fatalf("status %d", res.status)
		}
	}
	if !limited {
		t.Error("12 wrong codes were all answered")
	}
}

// TestSessionOfAnotherHolder: a sign-in replaces the session, it does not add to it.
func TestSessionOfAnotherHolder(t *testing.T) {
	t.Parallel()
	w, idp := withProvider(t)
	idp.SignIn(member("support"))
	b := newBrowser(t, w)
	b.signIn(testKey)
	b.post("/ui/project", "project", "shop").redirects("/ui/")
	b.signInAtProvider("").redirects("/ui/")
	page := b.get("/ui/").ok()
	page.has("header", store.DefaultProject)
	if res := b.get("/ui/system/migrations"); res.status != http.StatusForbidden {
		t.Errorf("the rights of the key are left: %d", res.status)
	}
	b.signIn(testKey)
	b.get("/ui/system/migrations").ok()
}

// TestWithoutProvider: the routes lead to the sign-in with a key.
func TestWithoutProvider(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, newWorld())
	b.get("/ui/sign-in/begin").redirects("/ui/sign-in")
	b.get("/ui/sign-in/callback?code=x&state=y").redirects("/ui/sign-in")
	b.get("/ui/sign-in").ok().hasNot(".or")
}
