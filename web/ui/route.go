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

// Root is the path prefix of all pages.
const Root = "/ui"

// A handler returns the response to a request. errorResponse turns its error into a page.
type handler func(r *request) (*response, error)

// A Route is a method and a path with their handler. A parameter of the path is written ":id".
type Route struct {
	Method, Path string
	// Scope is the scope that the key needs. If it is empty, the route needs no session.
	Scope store.Scope
	// Root is true if only the admin key of the settings may use the route, because it concerns all projects.
	Root bool
	// live is true if a stream keeps the open page up to date.
	live    bool
	handler handler
	// extra is added to Options.Timeout, for routes that read or write every row.
	extra time.Duration
}

// livePage is a route for a page that changes nothing. A stream keeps it up to date while it is open.
func livePage(path string, h handler) Route {
	return Route{Method: http.MethodGet, Path: Root + path, Scope: store.ScopeRead, live: true, handler: h}
}

// fixedPage is a route for a page without a stream: a form, a download, a search.
func fixedPage(path string, scope store.Scope, h handler) Route {
	return Route{Method: http.MethodGet, Path: Root + path, Scope: scope, handler: h}
}

// post is a route that changes something.
func post(path string, scope store.Scope, h handler) Route {
	return Route{Method: http.MethodPost, Path: Root + path, Scope: scope, handler: h}
}

// forRoot restricts routes to the admin key of the settings.
func forRoot(routes ...Route) []Route {
	for i := range routes {
		routes[i].Root = true
	}
	return routes
}

// withExtraTime adds time to the timeout of routes.
func withExtraTime(extra time.Duration, routes ...Route) []Route {
	for i := range routes {
		routes[i].extra = extra
	}
	return routes
}

// Routes returns every route of the pages.
func (u *UI) Routes() []Route { return u.routes }

// table returns every route: sessions first, then the pages in the order of the menu. The acts on an object
// are in the file of the object's kind.
func (u *UI) table() []Route {
	return slices.Concat(
		[]Route{
			fixedPage("/sign-in", "", u.signIn),
			post("/sign-in", "", u.signInWith),
			fixedPage("/sign-in/begin", "", u.beginSignIn),
			fixedPage("/sign-in/callback", "", u.finishSignIn),
			post("/sign-out", "", u.signOut),
			post("/preferences", "", u.prefer),
			post("/project", store.ScopeRead, u.switchProject),
			livePage("/", u.overview),
			fixedPage("/search", store.ScopeRead, u.search),
			livePage("/orders", u.order),
			fixedPage("/orders/evidence", store.ScopeRead, u.orderEvidence),
			livePage("/callbacks", u.callbacks),
			livePage("/callbacks/:id", u.callback),
			// An attempt that has ended does not change.
			fixedPage("/callbacks/:id/attempts/:number", store.ScopeRead, u.attempt),
			fixedPage("/callbacks/:id/payload", store.ScopeRead, u.payload),
			fixedPage("/callbacks/:id/evidence", store.ScopeRead, u.evidence),
			livePage("/dead", u.dead),
			livePage("/endpoints", u.endpoints),
			livePage("/endpoints/:id", u.endpoint),
			post("/endpoints/:id/test", store.ScopeOperate, u.testEndpoint),
			livePage("/lanes", u.lanes),
			livePage("/lane", u.lane),
			livePage("/polls", u.polls),
			livePage("/schedules", u.schedules),
			livePage("/schedules/:id", u.schedule),
			livePage("/relay", u.relay),
			livePage("/relay/:id", u.relaySource),
			livePage("/alerts", u.alerts),
			livePage("/alerts/:id", u.alert),
			livePage("/redrives", u.redrives),
			livePage("/redrives/:id", u.redrive),
			{Method: http.MethodGet, Path: Root + "/audit", Scope: store.ScopeAdmin, live: true,
				handler: u.audit},
			livePage("/system", u.system),
			fixedPage("/system/keys", store.ScopeAdmin, u.keys),
		},
		u.callbackActs(), u.endpointActs(), u.laneActs(), u.scheduleActs(), u.relayActs(),
		u.alertActs(), u.redriveActs(), u.systemActs(),
		forRoot(u.stopActs()...),
		u.keyActs(),
		u.acts(
			act{"/endpoints/new", store.ScopeOperate, u.askCreateEndpoint, u.createEndpoint},
			act{"/schedules/new", store.ScopeOperate, u.askNewSchedule, u.newSchedule},
			act{"/schedules/:id/edit", store.ScopeOperate, u.askEditSchedule, u.editSchedule},
			act{"/redrives/new", store.ScopeOperate, u.askRedrive, u.newRedrive},
			act{"/system/keys/new", store.ScopeAdmin, u.askCreateKey, u.createKey},
		),
		withExtraTime(reconcileTimeout, fixedPage("/books", store.ScopeRead, u.reconciliation)),
		[]Route{fixedPage("/books/days/:day", store.ScopeRead, u.day)},
		u.booksActs(),
		withExtraTime(reconcileTimeout, u.acts(
			act{"/books/compare", store.ScopeRead, u.askCompare, u.compare},
			act{"/books/run", store.ScopeOperate, u.askRunDay, u.runDay},
		)...),
		forRoot(fixedPage("/system/migrations", store.ScopeRead, u.migrations)),
		forRoot(withExtraTime(verifyTimeout, u.acts(
			act{"/system/verify", store.ScopeAdmin, u.askVerify, u.verify},
		)...)...),
		forRoot(withExtraTime(rebuildTimeout, u.acts(
			act{"/system/rebuild", store.ScopeAdmin, u.askRebuild, u.rebuild},
		)...)...),
	)
}

// Register adds the routes to a router. It also redirects / to the overview.
func (u *UI) Register(engine *gin.Engine) {
	home := func(c *gin.Context) { c.Redirect(http.StatusSeeOther, Root+"/") }
	engine.GET("/", home)
	engine.GET(Root, home)
	engine.GET(Root+"/static/:name", u.static)
	engine.GET(Root+"/live", u.stream)
	u.registerViews(engine)
	for _, route := range u.routes {
		engine.Handle(route.Method, route.Path, func(c *gin.Context) { u.serve(c, route) })
		if route.Method == http.MethodGet {
			engine.HEAD(route.Path, func(c *gin.Context) { u.serve(c, route) })
		} else if !slices.ContainsFunc(u.routes, func(r Route) bool {
			return r.Method == http.MethodGet && r.Path == route.Path
		}) {
			// A browser reaches this path by its back button, or after a sign-in.
			engine.GET(route.Path, home)
		}
	}
}

// NotFound is the handler for a path without a route: a page with status 404.
func (u *UI) NotFound(c *gin.Context) {
	u.serve(c, Route{Method: http.MethodGet, Path: c.Request.URL.Path,
		handler: func(*request) (*response, error) {
			return nil, httperr.ErrNoRoute
		}})
}

// match returns the route of a path and the path's parameters, for a stream that rerenders its page. As in
// the router, a route without parameters wins: /endpoints/new is not /endpoints/:id. ok is false if no route
// has the path.
func (u *UI) match(method, path string) (found Route, params map[string]string, ok bool) {
	for _, route := range u.routes {
		given, fits := route.params(path)
		if fits && route.Method == method && (!ok || len(given) == 0) {
			found, params, ok = route, given, true
		}
	}
	return found, params, ok
}

// params returns the parameters of a path. ok is false if the path does not fit the route.
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

// serve handles one request: session, admission, handler, response.
func (u *UI) serve(c *gin.Context, route Route) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), u.Timeout+route.extra)
	defer cancel()
	u.protect(c.Writer.Header())
	ctx, err := u.loadSession(ctx, c.Request)
	r := u.newRequest(ctx, c, route)
	if err == nil {
		err = u.admit(r, route)
	}
	// admit has read the form under the server's timeouts, so a slow sender cannot use the extra time.
	if err == nil && route.extra > 0 {
		err = query.ExtendDeadlines(c.Writer, time.Now().Add(u.Timeout+route.extra))
	}
	var a *response
	if err == nil {
		a, err = route.handler(r)
	}
	if err != nil {
		a = u.errorResponse(r, err)
	}
	u.reply(c, r, a)
}

// errSignIn reports that the request has no session, or that its session has ended.
var errSignIn = errors.New("sign in first")

// admit authenticates and authorizes a request. A request other than GET must come from a page of this site;
// admit reads its form.
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
	if !r.caller.Allows(route.Scope) {
		return missingScope(route.Scope)
	}
	if route.Root && !r.caller.Root() {
		return errNotRoot
	}
	if project := r.form.Get(projectField); project != "" && project != r.caller.Project {
		return errSwitched
	}
	return nil
}

// projectField is the form field that names the project of the form.
const projectField = "in_project"

// errSwitched reports that the session has switched to another project since the form was rendered.
var errSwitched = errors.New("the project was switched since the form was made")

// isText reports whether a query string decodes to UTF-8 without NUL.
func isText(query string) bool {
	raw, err := url.QueryUnescape(query)
	return err == nil && utf8.ValidString(raw) && !strings.ContainsRune(raw, 0)
}

// errForeign reports that another site has sent the form.
var errForeign = errors.New("the form came from another site")

// errNotRoot reports that a key of one project was used for a route that concerns all projects.
var errNotRoot = fmt.Errorf("%w: it needs the admin key of the settings", httperr.ErrForbidden)

// missingScope returns the error for a key without the scope.
func missingScope(s store.Scope) error { return &scopeError{s} }

type scopeError struct{ scope store.Scope }

func (e *scopeError) Error() string { return "the key lacks the scope " + string(e.scope) }
func (e *scopeError) Unwrap() error { return httperr.ErrForbidden }

// protect sets the headers against foreign scripts, framing and referrer leaks.
func (u *UI) protect(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
}

const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// local returns address if it is a path below Root, and otherwise if it is not. Forms and links name the page
// to return to; local prevents an open redirect.
func local(address, otherwise string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" {
		return otherwise
	}
	if strings.ContainsAny(address, "\\\r\n\t") { // browsers read a backslash as a slash and drop the others
		return otherwise
	}
	// Clean resolves "..", which could leave Root. A slash that is written as %2f does not end Root.
	if !strings.HasPrefix(address, Root+"/") || !strings.HasPrefix(path.Clean(u.Path)+"/", Root+"/") {
		return otherwise
	}
	return address
}
