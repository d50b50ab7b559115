package ui

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// What a session holds. The key's hash is no secret: it is no key to sign in with.
const (
	sessionKey     = "key"
	sessionProject = "project"
	sessionSeen    = "seen"
	sessionFlash   = "flash"
)

// seenEvery is how exactly it is known when somebody was last seen: a page view shall not be a write each
// time.
const seenEvery = time.Minute

// The cookies. Those beside the session's are no secrets.
const (
	sessionCookie  = "dispatcher_session"
	languageCookie = "dispatcher_language"
	zoneCookie     = "dispatcher_zone"
	themeCookie    = "dispatcher_theme"
)

// hostPrefix begins a cookie's name that a browser takes from this host alone: over https, with no other path
// than /. Another host below the same name cannot plant such a one.
const hostPrefix = "__Host-"

// cookieName is a cookie's name as the browser has it. Without https a browser would refuse the prefix.
func (u *UI) cookieName(name string) string {
	if u.https {
		return hostPrefix + name
	}
	return name
}

// cookiePath is the path of every cookie.
func (u *UI) cookiePath() string {
	if u.https {
		return "/"
	}
	return Root
}

// newSessions is not the library's own constructor: that one starts a goroutine, for a store that is not
// used, which nothing ends.
func (u *UI) newSessions() *scs.SessionManager {
	return &scs.SessionManager{
		Store:            sessionRows{rows: u.Store},
		Codec:            scs.GobCodec{},
		HashTokenInStore: true,
		Lifetime:         u.Lifetime,
		Cookie: scs.SessionCookie{
			Name:     u.cookieName(sessionCookie),
			Path:     u.cookiePath(),
			HttpOnly: true,
			// Lax: a link in a chat must find the operator signed in. What changes something is refused when
			// it comes from another site.
			SameSite: http.SameSiteLaxMode,
			Secure:   u.https,
		},
	}
}

// sessionRows makes of the rows what the session library wants. It asks with a context wherever the rows can
// take one, and never without: there is nothing behind the methods of scs.Store.
type sessionRows struct {
	scs.Store
	rows Store
}

// sessionTime bounds a look whether a session goes on.
const sessionTime = 5 * time.Second

func (s sessionRows) FindCtx(ctx context.Context, token string) ([]byte, bool, error) {
	found, err := s.rows.Session(ctx, token, time.Now().UnixMilli())
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, nil
	}
	return found.Data, err == nil, err
}

func (s sessionRows) CommitCtx(ctx context.Context, token string, data []byte, expiry time.Time) error {
	return s.rows.PutSession(ctx, store.Session{Token: token, Data: data, ExpiresAt: expiry.UnixMilli()})
}

func (s sessionRows) DeleteCtx(ctx context.Context, token string) error {
	return s.rows.DeleteSession(ctx, token)
}

// loadSession puts the request's session, or a new one, into its context.
func (u *UI) loadSession(ctx context.Context, r *http.Request) (context.Context, error) {
	token := ""
	if c, err := r.Cookie(u.cookieName(sessionCookie)); err == nil {
		token = c.Value
	}
	loaded, err := u.sessions.Load(ctx, token)
	if err != nil {
		// A page that says what is wrong needs a session too: an empty one.
		if empty, again := u.sessions.Load(ctx, ""); again == nil {
			return empty, fmt.Errorf("read the session: %w", err)
		}
		return ctx, fmt.Errorf("read the session: %w", err)
	}
	return loaded, nil
}

// storeSession writes what has changed of the session, before the answer's first byte.
func (u *UI) storeSession(ctx context.Context, w http.ResponseWriter) error {
	switch u.sessions.Status(ctx) {
	case scs.Modified:
		token, expiry, err := u.sessions.Commit(ctx)
		if err != nil {
			return fmt.Errorf("write the session: %w", err)
		}
		u.sessions.WriteSessionCookie(ctx, w, token, expiry)
	case scs.Destroyed:
		u.sessions.WriteSessionCookie(ctx, w, "", time.Time{})
	case scs.Unmodified:
	}
	return nil
}

// authenticate fills in the caller by the session's key, as it is at this moment.
func (u *UI) authenticate(r *request) error {
	text := u.sessions.GetString(r.ctx, sessionKey)
	if text == "" {
		return errSignIn
	}
	seen := time.UnixMilli(u.sessions.GetInt64(r.ctx, sessionSeen))
	now := time.Now()
	if now.Sub(seen) > u.IdleTimeout {
		return errors.Join(errSignIn, u.sessions.Destroy(r.ctx))
	}
	if now.Sub(seen) > seenEvery {
		u.sessions.Put(r.ctx, sessionSeen, now.UnixMilli())
	}
	who, err := u.holder(r.ctx, text, u.sessions.GetString(r.ctx, sessionProject))
	if errors.Is(err, errSignIn) {
		return errors.Join(err, u.sessions.Destroy(r.ctx))
	}
	r.who.Project, r.who.Key = who.Project, who.Key
	return err
}

// holder returns the viewer whose key has the hash, which is written in hexadecimal; errSignIn where it is
// not, or no longer, valid.
func (u *UI) holder(ctx context.Context, text, project string) (query.Caller, error) {
	var hash [sha256.Size]byte
	if n, err := hex.Decode(hash[:], []byte(text)); err != nil || n != len(hash) {
		return query.Caller{}, errSignIn
	}
	if subtle.ConstantTimeCompare(hash[:], u.keyHash[:]) == 1 {
		return query.Caller{Project: cmp.Or(project, store.DefaultProject)}, nil
	}
	key, err := u.Engine.AuthenticateHash(ctx, hash)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return query.Caller{}, errSignIn
	case err != nil:
		return query.Caller{}, fmt.Errorf("authenticate: %w", err)
	}
	return query.Caller{Project: key.Project, Key: &key}, nil
}

// A flash is what the next page says of what was just done.
type flash struct {
	// kind is good or bad.
	Kind, Text string
}

// say has the next page say that something was done.
func (u *UI) say(r *request, text string) { u.put(r, flash{"good", text}) }

// warn has the next page say that something was not done.
func (u *UI) warn(r *request, text string) { u.put(r, flash{"bad", text}) }

func (u *UI) put(r *request, f flash) {
	u.sessions.Put(r.ctx, sessionFlash, f.Kind+" "+f.Text)
}

// flashOf takes what there is to say.
func (u *UI) flashOf(r *request) *flash {
	if r.live || r.http == nil {
		return nil
	}
	text := u.sessions.PopString(r.ctx, sessionFlash)
	if kind, rest, ok := strings.Cut(text, " "); ok {
		return &flash{kind, rest}
	}
	return nil
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

// signInWith is POST /ui/sign-in. A wrong key says nothing about why it is wrong, and is slow to be tried
// again.
func (u *UI) signInWith(r *request) (*answer, error) {
	next := local(r.form.Get("next"), Root+"/")
	var who query.Caller
	var text string
	right, wait, err := u.Guesses.Try(r.who.Address, r.value("key"),
		func(hash [sha256.Size]byte) (bool, error) {
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
	case !who.Allows(store.ScopeRead):
		return u.signInSaying(r, http.StatusForbidden, next, r.lang.text("signin.scope"))
	}
	// A new token: an attacker who planted one before learns nothing of this session.
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
			return nil, invalid("zone", "is not a time zone, such as Asia/Shanghai")
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
	if !r.who.Root() {
		return nil, fmt.Errorf("%w: the key belongs to one project", httperr.ErrForbidden)
	}
	p, err := u.Store.Project(r.ctx, r.value("project"))
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
