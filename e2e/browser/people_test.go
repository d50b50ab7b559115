package browser

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

const atProvider = "Sign in with your work account"

// peopleScene is a dispatcher whose people sign in at a stand-in. The group payments operates the default
// project, and bulk actions on more than three callbacks need an approval.
func peopleScene(t *testing.T) (*scene, *testserver.IdentityProvider) {
	t.Helper()
	address := "127.0.0.1:" + testserver.FreePort(t)
	idp := testserver.NewIdentityProvider(t, "http://"+address+"/ui/sign-in/callback")
	return launchScene(t, harness.Launch{
		On: harness.NewBackend(t, harness.SQLiteEmbedded), Listen: address,
		Args: []string{
			"--public-url", "http://" + address, "--oidc-issuer", idp.URL, "--oidc-client-id", idp.ClientID,
			"--oidc-client-secret", idp.ClientSecret, "--approval-above", "3", "--oidc-groups",
			`[{"group": "payments", "project": "default", "scopes": ["operate"]}]`,
		},
	}, nil), idp
}

// person returns the claims of a person of groups.
func person(subject, name string, groups ...string) map[string]any {
	return map[string]any{"sub": subject, "name": name, "email": subject + "@shop.example", "groups": groups}
}

// enter signs a person in, in a new private window.
func enter(s *scene, idp *testserver.IdentityProvider, claims map[string]any, next string) *tab {
	s.Helper()
	idp.SignIn(claims)
	b := newTab(s, s.Base)
	b.open(next)
	b.arrive("/ui/sign-in")
	b.click("a", atProvider)
	b.arrive(next)
	return b
}

// looks checks a page in every view and in both languages, and takes pictures.
func looks(b *tab, found *report, name string) {
	for _, language := range []string{"en", "zh-CN"} {
		b.prefer("language", language)
		b.open(b.where())
		for _, v := range views {
			b.setView(v)
			found.add(name+" "+language+" "+v.name, b.check())
			b.picture(name + "-" + language + "-" + v.name)
		}
		found.add(name+" "+language, b.checkNames())
	}
	b.prefer("language", "en")
	b.setView(views[0])
	b.open(b.where())
}

// A person signs in at the provider and comes back to the page that they asked for. Their name is on the page
// and in the audit log. Signing out ends the session in every tab.
func TestBrowserPersonSignsIn(t *testing.T) {
	t.Parallel()
	s, idp := peopleScene(t)
	var ep client.Endpoint
	s.Post("/v1/endpoints", harness.Submission{"external_id": "tea", "name": "Tea shop", "url": s.r.URL}, &ep)
	found := &report{}
	first := newTab(t, s.Base)
	first.open("/ui/sign-in?next=/ui/dead")
	looks(first, found, "people-sign-in")
	b := enter(s, idp, person("1001", "Wang Wei", "payments", "others"), "/ui/endpoints/"+ep.ID)
	b.see("header", "Wang Wei")
	b.open("/ui/endpoints/" + ep.ID + "/pause")
	b.fill("#f-reason", "it moves")
	b.click("main button", "Pause endpoint")
	b.see("main", "Resume")
	var audit struct{ Data []client.AuditEntry }
	_, err := s.Call(t.Context(), http.MethodGet, "/v1/audit", nil, &audit)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(audit.Data, func(e client.AuditEntry) bool {
		return e.Action == "endpoint.pause" && e.Actor == "Wang Wei (oidc:1001)" && e.Reason == "it moves"
	}) {
		t.Errorf("the audit log has %+v", audit.Data)
	}
	second := b.pageIn(b.ctx)
	second.open("/ui/callbacks")
	b.unfold("Wang Wei")
	b.click("header button", "Sign out")
	b.arrive("/ui/sign-in")
	second.open("/ui/callbacks?state=dead")
	second.arrive("/ui/sign-in?next=%2Fui%2Fcallbacks%3Fstate%3Ddead")

	idp.SignIn(person("1002", "Chen Hao", "guests"))
	b.allow("status of 40[0-3]")
	b.click("a", atProvider)
	b.see("[role=alert]", "You are signed in as Chen Hao (1002@shop.example), but none of your groups")
	for _, v := range views {
		b.setView(v)
		found.add("no group "+v.name, b.check())
		b.picture("people-no-group-" + v.name)
	}
	b.setView(views[0])
	b.open("/ui/callbacks")
	b.arrive("/ui/sign-in")
	found.fail(t)
}

// comesBack signs a person in with another browser, up to the last redirect, and returns the path of that.
func comesBack(s *scene) string {
	s.Helper()
	jar, err := cookiejar.New(nil)
	harness.Check(s, err)
	c := http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/callback") {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	res, err := c.Get(s.Base + "/ui/sign-in/begin?next=/ui/dead")
	harness.Check(s, err)
	harness.Check(s, res.Body.Close())
	back, err := res.Location()
	harness.Check(s, err)
	return back.RequestURI()
}

// Nothing but an own attempt at the provider signs a browser in, and no link to the sign-in leads elsewhere.
func TestBrowserForgedSignIns(t *testing.T) {
	t.Parallel()
	s, idp := peopleScene(t)
	idp.SignIn(person("1001", "Wang Wei", "payments"))
	b := newTab(t, s.Base)
	b.allow("status of 40[0-3]")
	signedOut := func(what string) {
		t.Helper()
		b.open("/ui/callbacks")
		if at := b.where(); !strings.HasPrefix(at, "/ui/sign-in") {
			t.Errorf("%s: signed in, at %s", what, at)
		}
	}
	another := comesBack(s)
	b.open(another)
	b.see("[role=alert]", "began in another browser")
	signedOut("the attempt of another browser")

	code, err := url.Parse(another)
	harness.Check(t, err)
	forged := code.Query()
	forged.Set("state", strings.Repeat("A", 43))
	b.open("/ui/sign-in/callback?" + forged.Encode())
	b.see("[role=alert]", "began in another browser")
	signedOut("another state")

	idp.Spoil(func(_, claims map[string]any) { claims["nonce"] = "of another attempt" })
	b.click("a", atProvider)
	b.see("[role=alert]", "The sign-in was not accepted")
	signedOut("another nonce")
	idp.Spoil(nil)

	for _, next := range []string{"//evil.example/", "https://evil.example/", "/ui/../../evil",
		`/\evil.example`} {
		b.open("/ui/sign-in?" + url.Values{"next": {next}}.Encode())
		b.click("a", atProvider)
		b.arrive("/ui/")
		b.see("h1", "Overview")
		b.unfold("Wang Wei")
		b.click("header button", "Sign out")
		b.arrive("/ui/sign-in")
	}
}

// A bulk action on many callbacks waits for a second person. The first one sees why, and cannot approve it.
func TestBrowserSecondPersonApproves(t *testing.T) {
	t.Parallel()
	s, idp := peopleScene(t)
	once := harness.Submission{"tiers": []string{}}
	for i := range 5 {
		s.Post("/v1/callbacks", harness.Submission{"url": s.r.URL + "/fails", "topic": "payment.succeeded",
			"ref": fmt.Sprint("order-", i), "payload": 1, "policy": once}, nil)
	}
	s.attempted()
	found := &report{}
	wang := enter(s, idp, person("1001", "Wang Wei", "payments"), "/ui/redrives/new?action=retry&state=dead")
	wang.see("main", "approval of a second person")
	looks(wang, found, "people-ask")
	wang.fill("#f-reason", "the shop works again")
	wang.click("main button", "Retry callbacks")
	wang.see(".badge", "Awaiting approval")
	wang.see("main", "someone else must approve it")
	wang.seeNot("main a", "Approve…")
	looks(wang, found, "people-awaiting-own")
	page := wang.where()
	wang.allow("status of 40[39]")
	wang.open(page + "/approve")
	wang.click("main button", "Approve bulk action")
	wang.see("main", "someone else")

	li := enter(s, idp, person("1003", "Li Na", "payments"), page)
	li.see("main", "Wang Wei")
	li.see("main", "the shop works again")
	looks(li, found, "people-awaiting")
	li.click("main a", "Approve…")
	li.see("h1", "Approve bulk action")
	li.see("dialog dd", "Wang Wei")
	li.picture("people-approve-dialog")
	li.click("dialog button", "Approve bulk action")
	li.see("main dd", "Li Na (oidc:1003)")
	li.see("main .badge", "Done")
	looks(li, found, "people-approved")
	found.fail(t)
}
