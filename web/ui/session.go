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

// The values of a session. sessionKey holds the hash of the viewer's key, or the account of a person as JSON
// (see account). Neither is a secret: they cannot be used to sign in.
const (
	sessionKey     = "key"
	sessionProject = "project"
	sessionSeen    = "seen"
	sessionFlash   = "flash"
)

// seenEvery is the resolution of sessionSeen. A coarse value avoids a write on each page view.
const seenEvery = time.Minute

// The cookies. Only the session's cookie is secret.
const (
	sessionCookie  = "dispatcher_session"
	languageCookie = "dispatcher_language"
	zoneCookie     = "dispatcher_zone"
	themeCookie    = "dispatcher_theme"
)

// hostPrefix begins the name of a cookie that a browser accepts only from this host, over https, with the
// path /. It prevents another host of the same domain from planting a cookie.
const hostPrefix = "__Host-"

// cookieName returns a cookie's name with the prefix. Without https a browser would refuse the prefix.
func (u *UI) cookieName(name string) string {
	if u.https {
		return hostPrefix + name
	}
	return name
}

// cookiePath returns the path of all cookies. hostPrefix requires /.
func (u *UI) cookiePath() string {
	if u.https {
		return "/"
	}
	return Root
}

// newSessions returns the session manager. It does not call scs.New: that starts a goroutine for an in-memory
// store that is not used here, and nothing can stop it.
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
			// Lax: an operator who opens a link from a chat must be signed in. admit refuses changes from
			// other sites.
			SameSite: http.SameSiteLaxMode,
			Secure:   u.https,
		},
	}
}

// sessionRows adapts the store to scs.CtxStore. The embedded scs.Store is nil: scs calls its methods only if
// a store has no methods with a context.
type sessionRows struct {
	scs.Store
	rows Store
}

// sessionTimeout bounds a check of whether a stream's session is still valid.
const sessionTimeout = 5 * time.Second

// foundRow is the key of a *string in a request's context: the hash by which it has found its session. Empty:
// it has none.
type foundRow struct{}

func (s sessionRows) FindCtx(ctx context.Context, hash string) ([]byte, bool, error) {
	found, err := s.rows.Session(ctx, hash, time.Now().UnixMilli())
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, nil
	}
	if of, ok := ctx.Value(foundRow{}).(*string); ok && err == nil {
		*of = hash
	}
	return found.Data, err == nil, err
}

// CommitCtx creates a session. It only updates the one that the request has loaded: if that one was deleted
// since, its holder has signed out, and it must not be valid again.
func (s sessionRows) CommitCtx(ctx context.Context, hash string, data []byte, expiry time.Time) error {
	row := store.Session{Token: hash, Data: data, ExpiresAt: expiry.UnixMilli()}
	of, ok := ctx.Value(foundRow{}).(*string)
	if ok && subtle.ConstantTimeCompare([]byte(*of), []byte(hash)) == 1 {
		return s.rows.UpdateSession(ctx, row)
	}
	return s.rows.CreateSession(ctx, row)
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
	ctx = context.WithValue(ctx, foundRow{}, new(string))
	loaded, err := u.sessions.Load(ctx, token)
	if err != nil {
		// The error page needs a session too. An empty one needs no read.
		if empty, emptyErr := u.sessions.Load(ctx, ""); emptyErr == nil {
			return empty, fmt.Errorf("read the session: %w", err)
		}
		return ctx, fmt.Errorf("read the session: %w", err)
	}
	return loaded, nil
}

// storeSession writes a changed session and its cookie. The caller has not written the response yet.
func (u *UI) storeSession(ctx context.Context, w http.ResponseWriter) error {
	switch u.sessions.Status(ctx) {
	case scs.Modified:
		token, expiry, err := u.sessions.Commit(ctx)
		if errors.Is(err, store.ErrNotFound) {
			return nil // it has ended during the request; the browser may have the cookie of another one
		}
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

// authenticate sets the caller from the session. It looks up the session's key on each request, so a session
// ends when its key is revoked; another process may still accept the key from its cache for a few seconds. It
// destroys a session that is idle or has an invalid key.
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
	caller, err := u.callerOf(r.ctx, text, u.sessions.GetString(r.ctx, sessionProject))
	if errors.Is(err, errSignIn) {
		return errors.Join(err, u.sessions.Destroy(r.ctx))
	}
	caller.Address = r.caller.Address
	r.caller = caller
	return err
}

// callerOf returns the caller of a session by its value of sessionKey. It returns errSignIn if the key or the
// person has no access any more. project is the one that the viewer has switched to, or empty.
func (u *UI) callerOf(ctx context.Context, text, project string) (query.Caller, error) {
	if strings.HasPrefix(text, "{") {
		return u.callerOfAccount(text, project)
	}
	return u.callerByHash(ctx, text, project)
}

// callerByHash returns the caller whose key has the hexadecimal hash. It returns errSignIn if no valid key
// has the hash. project selects the project of the admin key; empty means the default project.
func (u *UI) callerByHash(ctx context.Context, text, project string) (query.Caller, error) {
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

// A flash is a message that the next page shows once.
type flash struct {
	// Kind is good or bad.
	Kind, Text string
}

// flashDone sets a success message.
func (u *UI) flashDone(r *request, text string) { u.setFlash(r, flash{"good", text}) }

// flashFailed sets a failure message.
func (u *UI) flashFailed(r *request, text string) { u.setFlash(r, flash{"bad", text}) }

func (u *UI) setFlash(r *request, f flash) {
	u.sessions.Put(r.ctx, sessionFlash, f.Kind+" "+f.Text)
}

// popFlash removes the message from the session and returns it; nil means none. A rendering for a stream must
// not remove it.
func (u *UI) popFlash(r *request) *flash {
	if r.live || r.http == nil {
		return nil
	}
	text := u.sessions.PopString(r.ctx, sessionFlash)
	if kind, rest, ok := strings.Cut(text, " "); ok {
		return &flash{kind, rest}
	}
	return nil
}

// signInPage is the page with the form for a key, and the link to the identity provider if there is one.
type signInPage struct {
	base
	// Next is the path of the page after the sign-in.
	Next string
	// Wrong is the error of the last attempt, or empty. Advice are more sentences about it.
	Wrong  string
	Advice []string
	// Provider is the host of the identity provider, or empty. ProviderURL begins a sign-in there, OtherURL
	// lets the person choose another account there. They are absolute: the browser must be on the public URL,
	// to which the provider sends it back, because cookies belong to a host.
	Provider, ProviderURL, OtherURL string
}

// Here returns the sign-in page, for the form of the language. The page may be the response to a callback,
// which works once.
func (p *signInPage) Here() string { return link("/sign-in", "next", p.Next) }

// signIn is GET /ui/sign-in.
func (u *UI) signIn(r *request) (*response, error) {
	return u.signInForm(r, http.StatusOK, local(r.query("next"), Root+"/"), "")
}

// signInForm returns the sign-in page. next is the page after the sign-in, wrong the error of the last
// attempt.
func (u *UI) signInForm(r *request, status int, next, wrong string) (*response, error) {
	p := &signInPage{base: u.base(r, "", "signin.title"), Next: next, Wrong: wrong}
	if u.SignIn != nil {
		begin := strings.TrimSuffix(u.PublicURL, "/") + Root + "/sign-in/begin?"
		p.Provider, p.ProviderURL = u.SignIn.Host(), begin+url.Values{"next": {next}}.Encode()
		p.OtherURL = begin + url.Values{"next": {next}, "account": {"other"}}.Encode()
	}
	return &response{status: status, template: "signin", page: p}, nil
}

// signInWith is POST /ui/sign-in. The error for a wrong key does not say why the key is wrong. u.Guesses
// limits the rate of attempts.
func (u *UI) signInWith(r *request) (*response, error) {
	next := local(r.form.Get("next"), Root+"/")
	var caller query.Caller
	var text string
	right, wait, err := u.Guesses.Try(r.caller.Address, r.value("key"),
		func(hash [sha256.Size]byte) (bool, error) {
			var err error
			text = hex.EncodeToString(hash[:])
			caller, err = u.callerByHash(r.ctx, text, "")
			if errors.Is(err, errSignIn) {
				return false, nil
			}
			return err == nil, err
		})
	switch {
	case err != nil:
		return nil, err
	case wait > 0:
		message := r.lang.text("signin.slow", "d", r.lang.duration(max(wait.Round(time.Second), time.Second)))
		a, err := u.signInForm(r, http.StatusTooManyRequests, next, message)
		a.retryAfter = wait
		return a, err
	case !right:
		return u.signInForm(r, http.StatusUnauthorized, next, r.lang.text("signin.wrong"))
	case !caller.Allows(store.ScopeRead):
		return u.signInForm(r, http.StatusForbidden, next, r.lang.text("signin.scope"))
	}
	if err := u.beginSession(r, text, ""); err != nil {
		return nil, err
	}
	a, err := redirect(next)
	if zone := r.value("zone"); u.cookie(r.http, zoneCookie) == "" && zone != "" {
		if _, ok := zoneOf(zone); ok {
			a.cookies = append(a.cookies, u.preference(zoneCookie, zone))
		}
	}
	return a, err
}

// beginSession replaces the session. text is its value of sessionKey.
func (u *UI) beginSession(r *request, text, project string) error {
	// A new token prevents session fixation: an attacker may have planted the old one.
	err := u.sessions.RenewToken(r.ctx)
	if err == nil {
		err = u.sessions.Clear(r.ctx)
	}
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	u.sessions.Put(r.ctx, sessionKey, text)
	u.sessions.Put(r.ctx, sessionSeen, time.Now().UnixMilli())
	if project != "" {
		u.sessions.Put(r.ctx, sessionProject, project)
	}
	return nil
}

// signOut is POST /ui/sign-out.
func (u *UI) signOut(r *request) (*response, error) {
	if err := u.sessions.Destroy(r.ctx); err != nil {
		return nil, fmt.Errorf("sign out: %w", err)
	}
	return redirect(Root + "/sign-in")
}

// prefer is POST /ui/preferences. It sets cookies for language, time zone and theme.
func (u *UI) prefer(r *request) (*response, error) {
	a, err := redirect(r.back(Root + "/"))
	if code := r.value("language"); code != "" {
		a.cookies = append(a.cookies, u.preference(languageCookie, u.languages.choose(code, "").code))
	}
	if name := r.value("zone"); name != "" {
		zone, ok := zoneOf(name)
		if !ok {
			return nil, invalid("zone", "is not a time zone; use a name such as Asia/Shanghai")
		}
		a.cookies = append(a.cookies, u.preference(zoneCookie, zone.name))
	}
	if theme := r.value("theme"); theme != "" {
		a.cookies = append(a.cookies, u.preference(themeCookie, themeOf(theme)))
	}
	return a, err
}

// preferenceAge is the lifetime of a preference cookie.
const preferenceAge = 365 * 24 * time.Hour

func (u *UI) preference(name, value string) *http.Cookie {
	return &http.Cookie{
		Name: u.cookieName(name), Value: url.QueryEscape(value), Path: u.cookiePath(),
		MaxAge: int(preferenceAge.Seconds()), SameSite: http.SameSiteLaxMode, Secure: u.https,
	}
}

// switchProject is POST /ui/project. The admin key of the settings can switch to every project, a person to
// those of their groups.
func (u *UI) switchProject(r *request) (*response, error) {
	if !r.caller.Root() && !u.mayEnter(r, r.value("project")) {
		return nil, fmt.Errorf("%w: the key belongs to one project", httperr.ErrForbidden)
	}
	p, err := u.Store.Project(r.ctx, r.value("project"))
	if err != nil {
		return nil, err
	}
	u.sessions.Put(r.ctx, sessionProject, p.ID)
	return redirect(Root + "/")
}

// themeOf returns a theme: light, dark, or auto for any other text. Auto follows the operating system.
func themeOf(s string) string {
	if s == "light" || s == "dark" {
		return s
	}
	return "auto"
}
