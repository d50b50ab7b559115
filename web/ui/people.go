package ui

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/signin"
)

// An account is a person in a session. What the person may do is not in it: it follows from the groups and
// the settings of the process that handles the request.
type account struct {
	// Issuer is the provider. An account of another one has no access.
	Issuer  string `json:"iss"`
	Subject string `json:"sub"`
	Name    string `json:"name"`
	// Groups are those of the person's groups that the settings named at the sign-in.
	Groups []string `json:"groups"`
}

// grantsOf returns what an account may do by the settings.
func (u *UI) grantsOf(a *account) []signin.Grant {
	if u.SignIn == nil || a.Issuer != u.SignIn.Issuer() {
		return nil
	}
	return signin.Granted(u.Grants, a.Groups)
}

// callerOfAccount returns the caller of a session's account. It returns errSignIn if no group of the account
// has a grant. project is the one that the person has switched to.
func (u *UI) callerOfAccount(text, project string) (query.Caller, error) {
	var a account
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return query.Caller{}, errSignIn
	}
	grants := u.grantsOf(&a)
	if len(grants) == 0 {
		return query.Caller{}, errSignIn
	}
	who := &query.Person{Subject: a.Subject, Name: a.Name}
	if slices.ContainsFunc(grants, func(g signin.Grant) bool { return g.Root }) {
		who.Root = true
		return query.Caller{Project: cmp.Or(project, store.DefaultProject), Person: who}, nil
	}
	if !slices.Contains(projectsIn(grants), project) {
		project = grants[0].Project
	}
	for _, g := range grants {
		if g.Project == project {
			who.Scopes = append(who.Scopes, g.Scopes...)
		}
	}
	return query.Caller{Project: project, Person: who}, nil
}

// projectsIn returns the projects of grants, each once.
func projectsIn(grants []signin.Grant) (projects []string) {
	for _, g := range grants {
		if !g.Root && !slices.Contains(projects, g.Project) {
			projects = append(projects, g.Project)
		}
	}
	return projects
}

// ownProjects returns the projects of the groups of the session's person. A key has none.
func (u *UI) ownProjects(r *request) []string {
	var a account
	if err := json.Unmarshal([]byte(u.sessions.GetString(r.ctx, sessionKey)), &a); err != nil {
		return nil
	}
	return projectsIn(u.grantsOf(&a))
}

// mayEnter reports whether the session's person may switch to a project.
func (u *UI) mayEnter(r *request, project string) bool {
	return slices.Contains(u.ownProjects(r), project)
}

// projectsOf returns the projects of the session's person for the frame's list.
func (u *UI) projectsOf(r *request) (projects []store.Project) {
	for _, id := range u.ownProjects(r) {
		projects = append(projects, store.Project{ID: id})
	}
	return projects[:min(len(projects), maxProjects)]
}

// attemptsCookie holds the attempts to sign in that a browser has begun. It is Lax, so the browser sends it
// when the provider sends the person back. It is no secret of the server: a browser that changes it only
// spoils its own attempts.
const attemptsCookie = "dispatcher_signin"

const (
	// maxBegun is how many attempts a browser may have begun at once, one a tab. attemptAge is how long
	// the person has at the provider.
	maxBegun   = 3
	attemptAge = 10 * time.Minute
	// maxNext bounds the page after the sign-in, because the cookie holds it.
	maxNext = 600
)

// A begun is an attempt in the cookie.
type begun struct {
	Secret string `json:"s"`
	Next   string `json:"n"`
	At     int64  `json:"t"`
}

// attempts returns the attempts of the browser that are not too old.
func (u *UI) attempts(r *request) (all []begun) {
	raw, err := base64.RawURLEncoding.DecodeString(u.cookie(r.http, attemptsCookie))
	if err != nil || json.Unmarshal(raw, &all) != nil {
		return nil
	}
	all = slices.DeleteFunc(all, func(b begun) bool {
		age := time.Since(time.UnixMilli(b.At))
		return age < 0 || age > attemptAge
	})
	return all[max(0, len(all)-maxBegun):]
}

// attemptsCookieOf returns the cookie with attempts. Without any the browser removes it.
func (u *UI) attemptsCookieOf(all []begun) (*http.Cookie, error) {
	c := &http.Cookie{Name: u.cookieName(attemptsCookie), Path: u.cookiePath(), HttpOnly: true, MaxAge: -1,
		SameSite: http.SameSiteLaxMode, Secure: u.https}
	if len(all) > 0 {
		raw, err := json.Marshal(all)
		if err != nil {
			return nil, fmt.Errorf("sign in: %w", err)
		}
		c.Value, c.MaxAge = base64.RawURLEncoding.EncodeToString(raw), int(attemptAge.Seconds())
	}
	return c, nil
}

// beginSignIn is GET /ui/sign-in/begin: it sends the browser to the identity provider. It is a link and no
// form, because the content policy also stops a form whose response leads to another site.
func (u *UI) beginSignIn(r *request) (*response, error) {
	next := local(r.query("next"), Root+"/")
	if u.SignIn == nil || r.http.Method == http.MethodHead {
		return redirect(Root + "/sign-in")
	}
	if len(next) > maxNext {
		next = Root + "/"
	}
	a := signin.Begin()
	to, err := u.SignIn.URL(r.ctx, a, r.query("account") == "other")
	if err != nil {
		return u.signInFailed(r, next, err)
	}
	all := append(u.attempts(r), begun{a.Secret, next, time.Now().UnixMilli()})
	c, err := u.attemptsCookieOf(all[max(0, len(all)-maxBegun):])
	if err != nil {
		return nil, err
	}
	return &response{status: http.StatusSeeOther, to: to, cookies: []*http.Cookie{c}}, nil
}

// finishSignIn is GET /ui/sign-in/callback: the provider has sent the browser back. Only an attempt that this
// browser has begun, and that has not come back yet, can sign it in.
func (u *UI) finishSignIn(r *request) (*response, error) {
	if u.SignIn == nil || r.http.Method == http.MethodHead {
		return redirect(Root + "/sign-in")
	}
	all := u.attempts(r)
	state := r.query("state")
	at := slices.IndexFunc(all, func(b begun) bool { return signin.Attempt{Secret: b.Secret}.Is(state) })
	if at < 0 {
		return u.signInForm(r, http.StatusBadRequest, Root+"/", r.lang.text("signin.unknown"))
	}
	attempt := all[at]
	next := local(attempt.Next, Root+"/")
	c, err := u.attemptsCookieOf(slices.Delete(all, at, at+1))
	if err != nil {
		return nil, err
	}
	a, err := u.signInPerson(r, signin.Attempt{Secret: attempt.Secret}, next)
	if err == nil {
		a.cookies = append(a.cookies, c)
	}
	return a, err
}

// signInPerson exchanges the code of the callback and begins a session. Refused codes count as wrong keys.
func (u *UI) signInPerson(r *request, attempt signin.Attempt, next string) (*response, error) {
	if iss := r.query("iss"); iss != "" && iss != u.SignIn.Issuer() {
		return u.signInForm(r, http.StatusBadRequest, next, r.lang.text("signin.unknown"))
	}
	code := r.query("code")
	if code == "" {
		u.Logger.Info("sign-in declined by the provider", "request_id", r.id,
			"error", cutText(r.query("error")))
		return u.signInForm(r, http.StatusForbidden, next, r.lang.text("signin.declined"))
	}
	// Guesses also counts by the beginning of a text. Codes of one provider may all begin alike.
	hash := sha256.Sum256([]byte(code))
	var who signin.Person
	var refused error
	right, wait, err := u.Guesses.Try(r.caller.Address, hex.EncodeToString(hash[:]),
		func([sha256.Size]byte) (bool, error) {
			var err error
			who, err = u.SignIn.Finish(r.ctx, attempt, code)
			if errors.Is(err, signin.ErrRefused) {
				refused = err
				return false, nil
			}
			return err == nil, err
		})
	switch {
	case err != nil:
		return u.signInFailed(r, next, err)
	case wait > 0:
		message := r.lang.text("signin.slow", "d", r.lang.duration(max(wait.Round(time.Second), time.Second)))
		a, err := u.signInForm(r, http.StatusTooManyRequests, next, message)
		a.retryAfter = wait
		return a, err
	case !right:
		return u.signInFailed(r, next, refused)
	}
	return u.enter(r, who, next)
}

// enter begins the session of a person, or says why the person has no access.
func (u *UI) enter(r *request, who signin.Person, next string) (*response, error) {
	grants := signin.Granted(u.Grants, who.Groups)
	a := account{Issuer: u.SignIn.Issuer(), Subject: who.Subject, Name: who.Name}
	for _, g := range grants {
		if !slices.Contains(a.Groups, g.Group) {
			a.Groups = append(a.Groups, g.Group)
		}
	}
	project, err := u.firstProject(r.ctx, grants)
	if err != nil {
		return nil, err
	}
	if project == "" {
		u.Logger.Info("sign-in of an account without access", "request_id", r.id,
			"subject", cutText(who.Subject), "groups", len(who.Groups), "granted", len(grants))
		name := who.Name
		if who.Email != "" && who.Email != name {
			name += " (" + who.Email + ")"
		}
		res, err := u.signInForm(r, http.StatusForbidden, next, r.lang.text("signin.nogroup", "name", name))
		if p, ok := res.page.(*signInPage); ok {
			p.Advice = []string{r.lang.text("signin.nogroup.what")}
		}
		return res, err
	}
	text, err := json.Marshal(&a)
	if err != nil {
		return nil, fmt.Errorf("sign in: %w", err)
	}
	if err := u.beginSession(r, string(text), project); err != nil {
		return nil, err
	}
	return redirect(next)
}

// firstProject returns the first project of the grants that exists, or the default project for a grant of
// everything. It returns "" if there is none.
func (u *UI) firstProject(ctx context.Context, grants []signin.Grant) (string, error) {
	if slices.ContainsFunc(grants, func(g signin.Grant) bool { return g.Root }) {
		return store.DefaultProject, nil
	}
	for _, project := range projectsIn(grants) {
		_, err := u.Store.Project(ctx, project)
		switch {
		case err == nil:
			return project, nil
		case !errors.Is(err, store.ErrNotFound):
			return "", err
		}
		u.Logger.Warn("a group of oidc_groups has a project that does not exist", "project", project)
	}
	return "", nil
}

// signInFailed returns the sign-in page after an error of package signin. The page says whose fault it is,
// the log has the cause.
func (u *UI) signInFailed(r *request, next string, cause error) (*response, error) {
	if errors.Is(cause, signin.ErrRefused) {
		u.Logger.Info("sign-in refused", "request_id", r.id, "error", cause)
		return u.signInForm(r, http.StatusUnauthorized, next, r.lang.text("signin.refused"))
	}
	if !errors.Is(cause, signin.ErrUnavailable) {
		return nil, cause
	}
	u.Logger.Warn("sign-in service not available", "request_id", r.id, "error", cause)
	a, err := u.signInForm(r, http.StatusServiceUnavailable, next,
		r.lang.text("signin.unavailable", "host", u.SignIn.Host()))
	if p, ok := a.page.(*signInPage); ok {
		p.Advice = []string{r.lang.text("signin.unavailable.what")}
	}
	return a, err
}

// cutText returns the beginning of a text from outside, for the log.
func cutText(s string) string { return s[:min(len(s), 100)] }
