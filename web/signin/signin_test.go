package signin_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/web/signin"
)

const callbackURL = "https://dispatcher.example/ui/sign-in/callback"

// start returns a stand-in and a Provider that is registered with it.
func start(t *testing.T) (*testserver.IdentityProvider, *signin.Provider) {
	t.Helper()
	idp := testserver.NewIdentityProvider(t, callbackURL)
	return idp, provider(t, idp, idp.ClientSecret)
}

func provider(t *testing.T, idp *testserver.IdentityProvider, secret string) *signin.Provider {
	t.Helper()
	p := signin.New(signin.Options{Issuer: idp.URL, ClientID: idp.ClientID, ClientSecret: secret,
		RedirectURL: callbackURL})
	t.Cleanup(p.CloseIdle)
	return p
}

// visit opens the provider's page as a browser does, and returns the query with which it is sent back.
func visit(t *testing.T, p *signin.Provider, a signin.Attempt) url.Values {
	t.Helper()
	to, err := p.URL(t.Context(), a, false)
	if err != nil {
		t.Fatal(err)
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	res, err := c.Get(to)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	back, err := res.Location()
	if err != nil {
		t.Fatalf("status %d: %v", res.StatusCode, err)
	}
	if !strings.HasPrefix(back.String(), callbackURL+"?") {
		t.Fatalf("sent back to %s", back)
	}
	return back.Query()
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	idp, p := start(t)
	idp.SignIn(map[string]any{"sub": "248289761001", "name": "王伟\u202e", "email": "wang@shop.example",
		"groups": []string{"payments", "support"}})
	a := signin.Begin()
	back := visit(t, p, a)
	if !a.Is(back.Get("state")) || signin.Begin().Is(back.Get("state")) {
		t.Error("the state does not tell the attempts apart")
	}
	got, err := p.Finish(t.Context(), a, back.Get("code"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Subject != "248289761001" || got.Name != "王伟" || got.Email != "wang@shop.example" ||
		!slices.Equal(got.Groups, []string{"payments", "support"}) {
		t.Errorf("got %+v", got)
	}
	asked := idp.Asked()[0]
	if asked.Get("scope") != "openid profile email groups" {
		t.Errorf("scope %q", asked.Get("scope"))
	}
	for _, value := range asked {
		if strings.Contains(value[0], a.Secret) {
			t.Error("the request shows the secret of the attempt")
		}
	}
	if _, err := p.Finish(t.Context(), a, back.Get("code")); !errors.Is(err, signin.ErrRefused) {
		t.Errorf("the code used twice: %v", err)
	}
	// For an unknown key, the keys are read again.
	idp.Rotate(t)
	if _, err := p.Finish(t.Context(), a, visit(t, p, a).Get("code")); err != nil {
		t.Errorf("after a rotation: %v", err)
	}
}

// TestCodeOfAnotherAttempt: an attacker who has the code of another person must not be able to use it.
func TestCodeOfAnotherAttempt(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	theirs := visit(t, p, signin.Begin())
	_, err := p.Finish(t.Context(), signin.Begin(), theirs.Get("code"))
	if !errors.Is(err, signin.ErrRefused) {
		t.Errorf("error %v", err)
	}
}

func TestIDTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	idp, p := start(t)
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	for name, spoil := range map[string]func(header, claims map[string]any){
		"algorithm none":         func(h, _ map[string]any) { h["alg"] = "none" },
		"signed with the secret": func(h, _ map[string]any) { h["alg"] = "HS256" },
		"an unknown key":         func(h, _ map[string]any) { h["kid"] = "another" },
		"a wrong signature":      func(h, _ map[string]any) { delete(h, "kid"); h["alg"] = "RS512" },
		"expired":                func(_, c map[string]any) { c["exp"] = at(-2 * time.Minute) },
		"not valid yet":          func(_, c map[string]any) { c["nbf"] = at(10 * time.Minute) },
		"another audience":       func(_, c map[string]any) { c["aud"] = "another client" },
		"another party":          func(_, c map[string]any) { c["azp"] = "another client" },
		"two audiences, no party": func(_, c map[string]any) {
			c["aud"] = []string{"dispatcher", "another client"}
		},
		"another issuer": func(_, c map[string]any) { c["iss"] = "https://login.example" },
		"another nonce":  func(_, c map[string]any) { c["nonce"] = "of another attempt" },
		"no nonce":       func(_, c map[string]any) { delete(c, "nonce") },
		"no subject":     func(_, c map[string]any) { c["sub"] = "" },
		"a long subject": func(_, c map[string]any) { c["sub"] = strings.Repeat("1", 256) },
	} {
		idp.Spoil(spoil)
		a := signin.Begin()
		who, err := p.Finish(t.Context(), a, visit(t, p, a).Get("code"))
		if !errors.Is(err, signin.ErrRefused) {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
	for name, spoil := range map[string]func(header, claims map[string]any){
		"ended within the clock skew": func(_, c map[string]any) { c["exp"] = at(-30 * time.Second) },
		"begins within the skew":      func(_, c map[string]any) { c["nbf"] = at(time.Minute) },
		"two audiences": func(_, c map[string]any) {
			c["aud"], c["azp"] = []string{"dispatcher", "another client"}, "dispatcher"
		},
		"one group as text":        func(_, c map[string]any) { c["groups"] = "payments" },
		"groups that are no texts": func(_, c map[string]any) { c["groups"] = []int{1} },
	} {
		idp.Spoil(spoil)
		a := signin.Begin()
		if _, err := p.Finish(t.Context(), a, visit(t, p, a).Get("code")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnavailable: failures that are not the person's are no refusals, and the next sign-in after the failure
// works.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	idp, _ := start(t)
	for name, respond := range map[string]http.HandlerFunc{
		"500":      func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", 500) },
		"not JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"too long": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2<<20)) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, idp.URL, http.StatusFound)
		},
		"not its own": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"issuer":"x"}`))
		},
		"plain http": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"issuer":"` + idp.URL + `",
				"authorization_endpoint":"http://login.example/a",
				"token_endpoint":"http://login.example/t","jwks_uri":"http://login.example/k"}`))
		},
	} {
		idp.Respond(respond)
		p := provider(t, idp, idp.ClientSecret)
		if _, err := p.URL(t.Context(), signin.Begin(), false); !errors.Is(err, signin.ErrUnavailable) ||
			len(err.Error()) > 500 {
			t.Errorf("%s: %v", name, err)
		}
	}
	idp.Respond(nil)
	p := provider(t, idp, "a wrong secret")
	a := signin.Begin()
	_, err := p.Finish(t.Context(), a, visit(t, p, a).Get("code"))
	if !errors.Is(err, signin.ErrUnavailable) {
		t.Errorf("a wrong client secret: %v", err)
	}
	p = provider(t, idp, idp.ClientSecret)
	code := visit(t, p, a).Get("code")
	idp.Respond(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", http.StatusBadGateway) })
	if _, err := p.Finish(t.Context(), a, code); !errors.Is(err, signin.ErrUnavailable) {
		t.Errorf("the token endpoint fails: %v", err)
	}
	idp.Respond(nil)
	if _, err := p.Finish(t.Context(), a, code); err != nil {
		t.Errorf("when it works again: %v", err)
	}
}

// TestUnreadableKeys: while the provider's keys cannot be read, no ID token is refused.
func TestUnreadableKeys(t *testing.T) {
	t.Parallel()
	idp, p := start(t)
	hangs := make(chan struct{})
	defer close(hangs)
	ctx, cancel := context.WithCancel(t.Context())
	for _, c := range []struct {
		name    string
		ctx     context.Context
		respond http.HandlerFunc
	}{
		{"500", t.Context(), func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", 500) }},
		{"404", t.Context(), func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "gone", 404) }},
		{"a page", t.Context(), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>"))
		}},
		{"a bad key", t.Context(), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys": [{"kty": "RSA", "n": 1}]}`))
		}},
		{"too long", t.Context(), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 2<<20))
		}},
		{"aborted", t.Context(), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"too late", ctx, func(http.ResponseWriter, *http.Request) { cancel(); <-hangs }},
	} {
		idp.RespondAt("/keys", c.respond)
		a := signin.Begin()
		_, err := p.Finish(c.ctx, a, visit(t, p, a).Get("code"))
		if !errors.Is(err, signin.ErrUnavailable) || errors.Is(err, signin.ErrRefused) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	idp.RespondAt("/keys", nil)
	p = provider(t, idp, idp.ClientSecret) // the request that hangs is shared
	a := signin.Begin()
	if _, err := p.Finish(t.Context(), a, visit(t, p, a).Get("code")); err != nil {
		t.Errorf("when it works again: %v", err)
	}
}

// TestUnreachableProviderEnds: a provider that hangs holds a sign-in no longer than its caller waits.
func TestUnreachableProviderEnds(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hangs }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hangs) })
	p := signin.New(signin.Options{Issuer: server.URL, ClientID: "d", RedirectURL: callbackURL})
	go func() { _ = p.Check(context.WithoutCancel(t.Context())) }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for range 2 {
		if _, err := p.URL(ctx, signin.Begin(), false); !errors.Is(err, signin.ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

func TestIssuers(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"https://login.example":             true,
		"https://login.example/realms/shop": true,
		"http://127.0.0.1:8082":             true,
		"http://localhost:8082/dex":         true,
		"http://[::1]:8082":                 true,
		"http://login.example":              false,
		"http://127.0.0.1.example":          false,
		"https://user:secret@login.example": false,
		"https://login.example/?tenant=1":   false,
		"login.example":                     false,
		"":                                  false,
	} {
		if err := signin.CheckIssuer(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestGrants(t *testing.T) {
	t.Parallel()
	all, err := signin.ParseGrants(`[{"group": "payments", "project": "default", "scopes": ["operate"]},
		{"group": "support", "project": "shop", "scopes": ["read", "send"]},
		{"group": "platform", "root": true}]`)
	if err != nil {
		t.Fatal(err)
	}
	if got := signin.Granted(all, []string{"support", "others", "platform"}); len(got) != 2 ||
		got[0].Project != "shop" || !got[1].Root {
		t.Errorf("granted %+v", got)
	}
	for _, text := range []string{
		"", "payments", "{}", "[]", "[]x",
		`[{"group": "a", "project": "b", "scopes": ["operate"], "root": true}]`,
		`[{"group": "a"}]`, `[{"group": "a", "project": "b"}]`,
		`[{"group": "a", "project": "b", "scopes": ["send"]}]`,
		`[{"group": "a", "project": "b", "scopes": ["root"]}]`, `[{"project": "b", "scopes": ["read"]}]`,
		`[{"group": "a", "root": true, "admin": true}]`,
	} {
		if got, err := signin.ParseGrants(text); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
