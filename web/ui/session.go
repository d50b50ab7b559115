package ui

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Sessions keeps who has signed in, so that every process knows them.
type Sessions interface {
	// Session is store.ErrNotFound for one that does not exist, or has ended at now.
	Session(ctx context.Context, token string, now int64) (store.Session, error)
	PutSession(ctx context.Context, s store.Session) error
	DeleteSession(ctx context.Context, token string) error
}

// Keys says whose a key is, by the SHA-256 of its text; store.ErrNotFound for one that is not valid.
type Keys interface {
	AuthenticateHash(ctx context.Context, hash [sha256.Size]byte) (store.Key, error)
}

// What a session holds. The key's hash is no secret: nobody can sign in with it.
const (
	sessionKey     = "key"
	sessionProject = "project"
	sessionSeen    = "seen"
	sessionFlash   = "flash"
)

// seenEvery is how exactly it is known when somebody was last seen: a page view shall not be a write each time.
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

// newSessions is not the library's own constructor: that one starts a goroutine, for a store that is not used, which nothing ends.
func (u *UI) newSessions() *scs.SessionManager {
	return &scs.SessionManager{
		Store:            sessionRows{u.Sessions},
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

// sessionRows makes of the rows what the session library wants.
type sessionRows struct{ Sessions }

// sessionTime bounds what is asked without a context of its own.
const sessionTime = 5 * time.Second

func (s sessionRows) FindCtx(ctx context.Context, token string) ([]byte, bool, error) {
	found, err := s.Session(ctx, token, time.Now().UnixMilli())
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, nil
	}
	return found.Data, err == nil, err
}

func (s sessionRows) CommitCtx(ctx context.Context, token string, data []byte, expiry time.Time) error {
	return s.PutSession(ctx, store.Session{Token: token, Data: data, ExpiresAt: expiry.UnixMilli()})
}

func (s sessionRows) DeleteCtx(ctx context.Context, token string) error {
	return s.DeleteSession(ctx, token)
}

func (s sessionRows) Find(token string) ([]byte, bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sessionTime)
	defer cancel()
	return s.FindCtx(ctx, token)
}

func (s sessionRows) Commit(token string, data []byte, expiry time.Time) error {
	ctx, cancel := context.WithTimeout(context.Background(), sessionTime)
	defer cancel()
	return s.CommitCtx(ctx, token, data, expiry)
}

func (s sessionRows) Delete(token string) error {
	ctx, cancel := context.WithTimeout(context.Background(), sessionTime)
	defer cancel()
	return s.DeleteCtx(ctx, token)
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

// authenticate says who looks, by the session's key, as it is at this moment.
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
	r.who = who
	return err
}

// holder returns the viewer whose key has the hash, which is written in hexadecimal; errSignIn where it is not, or no longer, valid.
func (u *UI) holder(ctx context.Context, text, project string) (viewer, error) {
	var hash [sha256.Size]byte
	if n, err := hex.Decode(hash[:], []byte(text)); err != nil || n != len(hash) {
		return viewer{}, errSignIn
	}
	if subtle.ConstantTimeCompare(hash[:], u.keyHash[:]) == 1 {
		if project == "" {
			project = store.DefaultProject
		}
		return viewer{project: project}, nil
	}
	key, err := u.Keys.AuthenticateHash(ctx, hash)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return viewer{}, errSignIn
	case err != nil:
		return viewer{}, fmt.Errorf("authenticate: %w", err)
	}
	return viewer{project: key.Project, key: &key}, nil
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
