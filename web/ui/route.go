package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// Root is where everything is.
const Root = "/ui"

// A handler fills a page, or returns the error that is to be shown in its place.
type handler func(r *request) (*answer, error)

// A Route is one method and path that is answered. A parameter of the path is written ":id".
type Route struct {
	Method, Path string
	// Scope is what a key must have; empty: no session is needed.
	Scope store.Scope
	// Root: only the settings' admin key may, because it shows or does what is of all projects.
	Root bool
	// live says that an open page is kept up to date.
	live    bool
	handler handler
	// most is how much longer than others it may take: it reads, or writes, everything that there is.
	most time.Duration
}

// page is a page that changes nothing and is kept up to date while it is open.
func page(path string, h handler) Route {
	return Route{Method: http.MethodGet, Path: Root + path, Scope: store.ScopeRead, live: true, handler: h}
}

// still is a page that is not kept up to date: a form, a download, a search.
func still(path string, scope store.Scope, h handler) Route {
	return Route{Method: http.MethodGet, Path: Root + path, Scope: scope, handler: h}
}

// post is what changes something.
func post(path string, scope store.Scope, h handler) Route {
	return Route{Method: http.MethodPost, Path: Root + path, Scope: scope, handler: h}
}

// forRoot keeps routes to the settings' admin key.
func forRoot(routes ...Route) []Route {
	for i := range routes {
		routes[i].Root = true
	}
	return routes
}

// lasting gives routes that much more time than others have.
func lasting(most time.Duration, routes ...Route) []Route {
	for i := range routes {
		routes[i].most = most
	}
	return routes
}

// Routes returns every route of the pages.
func (u *UI) Routes() []Route { return u.routes }

// table is every route, first those of sessions, then in the order of the menu. Acts on objects stand with
// their kind.
func (u *UI) table() []Route {
	return slices.Concat(
		[]Route{
			still("/sign-in", "", u.signIn),
			post("/sign-in", "", u.signInWith),
			post("/sign-out", "", u.signOut),
			post("/preferences", "", u.prefer),
			post("/project", store.ScopeRead, u.switchProject),
			page("/", u.overview),
			still("/search", store.ScopeRead, u.search),
			page("/orders", u.order),
			page("/callbacks", u.callbacks),
			page("/callbacks/:id", u.callback),
			// what has ended stays as it is
			still("/callbacks/:id/attempts/:number", store.ScopeRead, u.attempt),
			still("/callbacks/:id/payload", store.ScopeRead, u.payload),
			still("/callbacks/:id/evidence", store.ScopeRead, u.evidence),
			page("/dead", u.dead),
			page("/endpoints", u.endpoints),
			page("/endpoints/:id", u.endpoint),
			post("/endpoints/:id/test", store.ScopeOperate, u.testEndpoint),
			page("/lanes", u.lanes),
			page("/polls", u.polls),
			page("/schedules", u.schedules),
			page("/schedules/:id", u.schedule),
			page("/redrives", u.redrives),
			page("/redrives/:id", u.redrive),
			{Method: http.MethodGet, Path: Root + "/audit", Scope: store.ScopeAdmin, live: true,
				handler: u.audit},
			page("/system", u.system),
			still("/system/keys", store.ScopeAdmin, u.keys),
		},
		u.callbackActs(), u.endpointActs(), u.laneActs(), u.scheduleActs(), u.redriveActs(), u.systemActs(),
		u.keyActs(),
		u.acts(
			act{"/endpoints/new", store.ScopeOperate, u.askCreateEndpoint, u.createEndpoint},
			act{"/schedules/new", store.ScopeOperate, u.askNewSchedule, u.newSchedule},
			act{"/schedules/:id/edit", store.ScopeOperate, u.askEditSchedule, u.editSchedule},
			act{"/redrives/new", store.ScopeOperate, u.askRedrive, u.newRedrive},
			act{"/system/keys/new", store.ScopeAdmin, u.askCreateKey, u.createKey},
		),
		lasting(booksTime, still("/books", store.ScopeRead, u.books)),
		lasting(booksTime, u.acts(act{"/books/compare", store.ScopeRead, u.askCompare, u.compare})...),
		forRoot(still("/system/migrations", store.ScopeRead, u.migrations)),
		forRoot(lasting(verifyTime, u.acts(act{"/system/verify", store.ScopeAdmin, u.askVerify,
			u.verify})...)...),
		forRoot(lasting(rebuildTime, u.acts(act{"/system/rebuild", store.ScopeAdmin, u.askRebuild,
			u.rebuild})...)...),
	)
}

// Register adds the pages to a router, and sends a browser that asks for / to them.
func (u *UI) Register(engine *gin.Engine) {
	home := func(c *gin.Context) { c.Redirect(http.StatusSeeOther, Root+"/") }
	engine.GET("/", home)
	engine.GET(Root, home)
	engine.GET(Root+"/static/:name", u.static)
	engine.GET(Root+"/live", u.stream)
	for _, route := range u.routes {
		engine.Handle(route.Method, route.Path, func(c *gin.Context) { u.serve(c, route) })
		if route.Method == http.MethodGet {
			engine.HEAD(route.Path, func(c *gin.Context) { u.serve(c, route) })
		} else if !slices.ContainsFunc(u.routes, func(r Route) bool {
			return r.Method == http.MethodGet && r.Path == route.Path
		}) {
			engine.GET(route.Path, home) // where a browser comes to that goes back, or signs in again
		}
	}
}

// NotFound answers what no route answers, with a page that says so.
func (u *UI) NotFound(c *gin.Context) {
	u.serve(c, Route{Method: http.MethodGet, Path: c.Request.URL.Path,
		handler: func(*request) (*answer, error) {
			return nil, httperr.ErrNoRoute
		}})
}

// match finds the route of a path, for a stream that renders its page again. A path that a route names as it
// is, such as that of a form, is none with a parameter, as in the router. ok is false where no route has the
// path.
func (u *UI) match(method, path string) (found Route, params map[string]string, ok bool) {
	for _, route := range u.routes {
		given, fits := route.params(path)
		if fits && route.Method == method && (!ok || len(given) == 0) {
			found, params, ok = route, given, true
		}
	}
	return found, params, ok
}

// params reads the parameters out of a path of the route.
func (route Route) params(path string) (params map[string]string, ok bool) {
	pattern, segments := strings.Split(route.Path, "/"), strings.Split(path, "/")
	params = make(map[string]string)
	for i, want := range pattern {
		name, isParam := strings.CutPrefix(want, ":")
		switch {
		case i >= len(segments), isParam && segments[i] == "", !isParam && segments[i] != want:
			return nil, false
		case isParam:
			params[name] = segments[i]
		}
	}
	return params, len(pattern) == len(segments)
}

// serve answers one request of a route.
func (u *UI) serve(c *gin.Context, route Route) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), u.Timeout+route.most)
	defer cancel()
	u.protect(c.Writer.Header())
	ctx, err := u.loadSession(ctx, c.Request)
	r := u.newRequest(ctx, c, route)
	if err == nil {
		err = u.admit(r, route)
	}
	// not before the form was read: until then its sender is what takes long
	if err == nil && route.most > 0 {
		err = query.ExtendDeadlines(c.Writer, time.Now().Add(u.Timeout+route.most))
	}
	var a *answer
	if err == nil {
		a, err = route.handler(r)
	}
	if err != nil {
		a = u.trouble(r, err)
	}
	u.reply(c, r, a)
}

// errSignIn: there is no session, or it has ended.
var errSignIn = errors.New("sign in first")

// admit says whether the request may come in: who sends it, what their key may do, and for a change, that it
// comes from our own pages.
func (u *UI) admit(r *request, route Route) error {
	if !isText(r.url.RawQuery) {
		return invalid("query", "is not text")
	}
	if route.Method != http.MethodGet {
		if err := u.origin.Check(r.http); err != nil {
			return errForeign
		}
		if err := r.readForm(); err != nil {
			return err
		}
	}
	if route.Scope == "" {
		return nil
	}
	if err := u.authenticate(r); err != nil {
		return err
	}
	if !r.who.Allows(route.Scope) {
		return lacks(route.Scope)
	}
	if route.Root && !r.who.Root() {
		return errNotRoot
	}
	if asked := r.form.Get(projectField); asked != "" && asked != r.who.Project {
		return errSwitched
	}
	return nil
}

// projectField is the field in which a form says which project it is for.
const projectField = "in_project"

// errSwitched: the form is for another project than the one that is looked at by now.
var errSwitched = errors.New("the project was switched since the form was made")

// isText says whether what stands in a query is text.
func isText(query string) bool {
	raw, err := url.QueryUnescape(query)
	return err == nil && utf8.ValidString(raw) && !strings.ContainsRune(raw, 0)
}

// errForeign: another site has sent the form.
var errForeign = errors.New("the form came from another site")

// errNotRoot: the key belongs to a project, and what is asked for to none.
var errNotRoot = fmt.Errorf("%w: it needs the admin key of the settings", httperr.ErrForbidden)

// lacks is the error of a key without a scope.
func lacks(s store.Scope) error { return &scopeError{s} }

type scopeError struct{ scope store.Scope }

func (e *scopeError) Error() string { return "the key lacks the scope " + string(e.scope) }
func (e *scopeError) Unwrap() error { return httperr.ErrForbidden }

// protect sets what keeps a browser from running, embedding or keeping anything that is not ours.
func (u *UI) protect(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
}

const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

// local returns an address of ours that a form or a link asks to go back to, or otherwise.
func local(address, otherwise string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" ||
		strings.ContainsAny(address, "\\\r\n\t") ||
		// which also refuses what leads out again
		!strings.HasPrefix(u.Path, Root+"/") || !strings.HasPrefix(path.Clean(u.Path)+"/", Root+"/") {
		return otherwise
	}
	return address
}
