package ui

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

func (u *UI) sessionRoutes() []Route {
	return []Route{
		still("/sign-in", "", u.signIn),
		post("/sign-in", "", u.signInWith),
		post("/sign-out", "", u.signOut),
		post("/preferences", "", u.prefer),
		post("/project", store.ScopeRead, u.switchProject),
	}
}

// signInPage asks for a key.
type signInPage struct {
	base
	Next string
	// Wrong is what was wrong with the last attempt; empty: nothing.
	Wrong string
}

// signIn is GET /ui/sign-in.
func (u *UI) signIn(r *request) (*answer, error) {
	return u.signInSaying(r, http.StatusOK, local(r.query("next"), Root+"/"), "")
}

func (u *UI) signInSaying(r *request, status int, next, wrong string) (*answer, error) {
	p := &signInPage{base: u.base(r, "", "signin.title"), Next: next, Wrong: wrong}
	return &answer{status: status, template: "signin", page: p}, nil
}

// signInWith is POST /ui/sign-in. A wrong key says nothing about why it is wrong, and is slow to be tried again.
func (u *UI) signInWith(r *request) (*answer, error) {
	next := local(r.form.Get("next"), Root+"/")
	var who viewer
	var text string
	address, _ := netip.ParseAddr(r.remote) // none is an address too, which all without one share
	right, wait, err := u.Guesses.Try(address, r.value("key"), func(hash [sha256.Size]byte) (bool, error) {
		var err error
		text = hex.EncodeToString(hash[:])
		who, err = u.holder(r.ctx, text, "")
		if errors.Is(err, errSignIn) {
			return false, nil
		}
		return err == nil, err
	})
	switch {
	case err != nil:
		return nil, err
	case wait > 0:
		says := r.lang.text("signin.slow", "d", shortDuration(max(wait.Round(time.Second), time.Second)))
		a, err := u.signInSaying(r, http.StatusTooManyRequests, next, says)
		a.retryAfter = wait
		return a, err
	case !right:
		return u.signInSaying(r, http.StatusUnauthorized, next, r.lang.text("signin.wrong"))
	case !who.allows(store.ScopeRead):
		return u.signInSaying(r, http.StatusForbidden, next, r.lang.text("signin.scope"))
	}
	// A new token: whoever planted one before knows nothing of this session.
	if err := u.sessions.RenewToken(r.ctx); err != nil {
		return nil, fmt.Errorf("sign in: %w", err)
	}
	u.sessions.Put(r.ctx, sessionKey, text)
	u.sessions.Put(r.ctx, sessionSeen, time.Now().UnixMilli())
	a, err := redirect(next)
	if zone := r.value("zone"); u.cookie(r.http, zoneCookie) == "" && zone != "" {
		if _, ok := zoneOf(zone); ok {
			a.cookies = append(a.cookies, u.preference(zoneCookie, zone))
		}
	}
	return a, err
}

// signOut is POST /ui/sign-out.
func (u *UI) signOut(r *request) (*answer, error) {
	if err := u.sessions.Destroy(r.ctx); err != nil {
		return nil, fmt.Errorf("sign out: %w", err)
	}
	return redirect(Root + "/sign-in")
}

// prefer is POST /ui/preferences: language, time zone and colours, which the browser keeps.
func (u *UI) prefer(r *request) (*answer, error) {
	a, err := redirect(r.back(Root + "/"))
	if code := r.value("language"); code != "" {
		a.cookies = append(a.cookies, u.preference(languageCookie, u.languages.choose(code, "").code))
	}
	if name := r.value("zone"); name != "" {
		zone, ok := zoneOf(name)
		if !ok {
			return nil, &store.InvalidError{Fields: []store.FieldError{{Field: "zone", Message: "is not a time zone, such as Asia/Shanghai"}}}
		}
		a.cookies = append(a.cookies, u.preference(zoneCookie, zone.name))
	}
	if theme := r.value("theme"); theme != "" {
		a.cookies = append(a.cookies, u.preference(themeCookie, themeOf(theme)))
	}
	return a, err
}

// preferenceAge is how long a browser keeps a preference.
const preferenceAge = 365 * 24 * time.Hour

func (u *UI) preference(name, value string) *http.Cookie {
	return &http.Cookie{
		Name: u.cookieName(name), Value: url.QueryEscape(value), Path: u.cookiePath(),
		MaxAge: int(preferenceAge.Seconds()), SameSite: http.SameSiteLaxMode, Secure: u.https,
	}
}

// switchProject is POST /ui/project: the holder of the settings' key looks at another project.
func (u *UI) switchProject(r *request) (*answer, error) {
	if !r.who.root() {
		return nil, fmt.Errorf("%w: the key belongs to one project", httperr.ErrForbidden)
	}
	p, err := u.Projects.Project(r.ctx, r.value("project"))
	if err != nil {
		return nil, err
	}
	u.sessions.Put(r.ctx, sessionProject, p.ID)
	return redirect(Root + "/")
}

// themes are the colours that there are: those that the system asks for, light and dark.
func themeOf(s string) string {
	if s == "light" || s == "dark" {
		return s
	}
	return "auto"
}
