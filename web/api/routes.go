package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// A Route is one method and path that the API answers. A parameter of the path is written ":id"; one that may have slashes in it and
// stands at the end, "*external_id".
type Route struct {
	Method, Path string
	// Scope is what a key must have; empty: no key is needed.
	Scope   store.Scope
	handler gin.HandlerFunc
}

// Routes returns every route of the API.
func (a *API) Routes() []Route {
	return slices.Concat(a.callbackRoutes(), a.endpointRoutes(), a.laneRoutes(), a.redriveRoutes(), a.pollRoutes(), a.scheduleRoutes(), a.bookRoutes(),
		a.presetRoutes(), a.adminRoutes(), a.openRoutes())
}

// openRoutes need no key.
func (a *API) openRoutes() []Route {
	docs := a.docs()
	return []Route{
		{"GET", "/openapi.yaml", "", a.openapi}, {"GET", docsPath, "", docs}, {"GET", docsPath + "/*file", "", docs},
	}
}

// with returns what makes routes that need a scope.
func (a *API) with(scope store.Scope) func(method, path string, h handler) Route {
	return func(method, path string, h handler) Route {
		return Route{method, path, scope, a.serve(scope, h, a.Timeout)}
	}
}

func (a *API) callbackRoutes() []Route {
	send, read, operate := a.with(store.ScopeSend), a.with(store.ScopeRead), a.with(store.ScopeOperate)
	const item = "/v1/callbacks/:id"
	return []Route{
		send("POST", "/v1/callbacks", a.accept),
		send("POST", "/v1/callbacks/batch", a.acceptBatch),
		send("POST", "/v1/events", a.event),
		operate("POST", "/v1/callbacks/cancel", a.cancelRef),
		read("GET", "/v1/callbacks", a.list),
		read("GET", item, one(store.CallbackPrefix, a.get)),
		operate("PATCH", item, one(store.CallbackPrefix, a.mend)),
		read("GET", item+"/attempts", one(store.CallbackPrefix, a.attempts)),
		read("GET", item+"/payload", one(store.CallbackPrefix, a.payload)),
		read("GET", item+"/explain", one(store.CallbackPrefix, a.explain)),
		read("GET", item+"/evidence", one(store.CallbackPrefix, a.evidence)),
		operate("POST", item+"/cancel", act(store.CallbackPrefix, a.cancel)),
		operate("POST", item+"/retry", one(store.CallbackPrefix, a.retry)),
		operate("POST", item+"/reschedule", one(store.CallbackPrefix, a.reschedule)),
		read("GET", "/v1/stats", a.stats),
	}
}

// bookRoutes are what a caller keeps its own books by.
func (a *API) bookRoutes() []Route {
	read := func(method, path string, h handler, most time.Duration) Route {
		return Route{method, path, store.ScopeRead, a.lasting(store.ScopeRead, h, most)}
	}
	return []Route{
		read("GET", "/v1/outcomes", a.outcomes, report.MaxOutcomeWait+a.Timeout),
		read("GET", "/v1/reconcile", a.reconcile, longest),
		read("POST", "/v1/reconcile/compare", a.compare, longest),
	}
}

func (a *API) endpointRoutes() []Route {
	read, operate, admin := a.with(store.ScopeRead), a.with(store.ScopeOperate), a.with(store.ScopeAdmin)
	const all, item, external = "/v1/endpoints", "/v1/endpoints/:id", "/v1/endpoints/by-external-id/*external_id"
	return []Route{
		operate("POST", all, a.createEndpoint),
		read("GET", all, a.listEndpoints),
		operate("POST", all+"/batch", a.putEndpoints),
		read("GET", external, a.getEndpointByExternalID),
		operate("PUT", external, a.putEndpoint),
		read("GET", item, one(store.EndpointPrefix, a.getEndpoint)),
		operate("PATCH", item, one(store.EndpointPrefix, a.patchEndpoint)),
		operate("DELETE", item, remove(store.EndpointPrefix, a.Engine.DeleteEndpoint)),
		operate("POST", item+"/pause", one(store.EndpointPrefix, a.pauseEndpoint)),
		operate("POST", item+"/resume", act(store.EndpointPrefix, a.resumeEndpoint)),
		operate("POST", item+"/test", act(store.EndpointPrefix, a.testEndpoint)),
		admin("GET", item+"/secret", one(store.EndpointPrefix, a.endpointSecret)),
		admin("POST", item+"/rotate_secret", one(store.EndpointPrefix, a.rotateEndpointSecret)),
	}
}

func (a *API) laneRoutes() []Route {
	read, operate := a.with(store.ScopeRead), a.with(store.ScopeOperate)
	return []Route{
		read("GET", "/v1/lanes", a.listLanes),
		operate("POST", lanePath+"pause", a.pauseLane),
		operate("POST", lanePath+"resume", a.resumeLane),
		operate("PUT", lanePath+"limits", a.limitLane),
		operate("POST", "/v1/pause", a.pauseProject),
		operate("POST", "/v1/resume", a.resumeProject),
	}
}

func (a *API) redriveRoutes() []Route {
	read, operate := a.with(store.ScopeRead), a.with(store.ScopeOperate)
	const all, item = "/v1/redrives", "/v1/redrives/:id"
	return []Route{
		operate("POST", all, a.createRedrive),
		read("GET", all, a.listRedrives()),
		read("GET", item, one(store.RedrivePrefix, a.getRedrive)),
		operate("POST", item+"/pause", a.setRedrive(store.RedrivePaused)),
		operate("POST", item+"/resume", a.setRedrive(store.RedriveRunning)),
		operate("POST", item+"/cancel", a.setRedrive(store.RedriveCanceled)),
	}
}

func (a *API) pollRoutes() []Route {
	send, read := a.with(store.ScopeSend), a.with(store.ScopeRead)
	return []Route{
		send("POST", "/v1/polls", a.acceptPoll),
		read("GET", "/v1/polls/:id", one(store.CallbackPrefix, a.getPoll)),
		send("POST", "/v1/polls/:id/resolve", one(store.CallbackPrefix, a.resolvePoll)),
	}
}

func (a *API) scheduleRoutes() []Route {
	read, operate := a.with(store.ScopeRead), a.with(store.ScopeOperate)
	const all, item = "/v1/schedules", "/v1/schedules/:id"
	return []Route{
		operate("POST", all, a.createSchedule),
		read("GET", all, a.listSchedules()),
		read("GET", item, one(store.SchedulePrefix, a.getSchedule)),
		operate("PATCH", item, one(store.SchedulePrefix, a.patchSchedule)),
		operate("DELETE", item, remove(store.SchedulePrefix, a.Engine.DeleteSchedule)),
		operate("POST", item+"/run", act(store.SchedulePrefix, a.runSchedule)),
		read("GET", item+"/runs", one(store.SchedulePrefix, a.listRuns)),
	}
}

func (a *API) presetRoutes() []Route {
	read, operate := a.with(store.ScopeRead), a.with(store.ScopeOperate)
	const policies, rules, profiles = "/v1/policies", "/v1/success_rules", "/v1/profiles"
	return []Route{
		read("GET", policies, a.listPresets(policyKind())),
		read("GET", policies+"/:name", a.getPreset(policyKind())),
		operate("PUT", policies+"/:name", a.putPolicy),
		operate("DELETE", policies+"/:name", a.deletePreset(store.PresetPolicy)),
		read("GET", rules, a.listPresets(ruleKind())),
		read("GET", rules+"/:name", a.getPreset(ruleKind())),
		operate("PUT", rules+"/:name", a.putRule),
		operate("DELETE", rules+"/:name", a.deletePreset(store.PresetSuccess)),
		read("GET", profiles, a.listPresets(profileKind())),
		read("GET", profiles+"/:name", a.getPreset(profileKind())),
		operate("PUT", profiles+"/:name", a.putProfile),
		operate("DELETE", profiles+"/:name", a.deletePreset(store.PresetProfile)),
	}
}

func (a *API) adminRoutes() []Route {
	admin := a.with(store.ScopeAdmin)
	// What is of all projects is for the key of none.
	root := func(h handler) handler {
		return func(ctx context.Context, c *gin.Context, who caller) error {
			if !who.Root() {
				return rootOnly()
			}
			return h(ctx, c, who)
		}
	}
	long := func(method, path string, h handler) Route {
		return Route{method, path, store.ScopeAdmin, a.lasting(store.ScopeAdmin, h, longest)}
	}
	return []Route{
		admin("GET", "/v1/projects", a.listProjects),
		admin("POST", "/v1/projects", root(a.createProject)),
		admin("GET", "/v1/projects/:id", a.getProject),
		admin("PATCH", "/v1/projects/:id", a.patchProject),
		admin("GET", "/v1/keys", a.listKeys()),
		admin("POST", "/v1/keys", a.createKey),
		admin("DELETE", "/v1/keys/:id", act(store.KeyPrefix, a.revokeKey)),
		admin("GET", "/v1/secret", a.secret),
		admin("POST", "/v1/secret/rotate", a.rotateSecret),
		admin("POST", "/v1/secret/reencrypt", root(a.reencrypt)),
		admin("GET", "/v1/audit", a.audit()),
		admin("GET", "/v1/audit/verify", root(a.verifyAudit)),
		long("POST", "/v1/index/verify", root(a.verify)),
		long("POST", "/v1/index/rebuild", root(a.rebuild)),
	}
}

// Register adds the routes to a router.
func (a *API) Register(r gin.IRouter) {
	lanes := make(laneActions)
	for _, route := range a.Routes() {
		if action, ok := strings.CutPrefix(route.Path, lanePath); ok {
			lanes.add(route.Method, action, route.handler)
			continue
		}
		r.Handle(route.Method, route.Path, route.handler)
	}
	for method := range lanes {
		r.Handle(method, "/v1/lanes/*lane", func(c *gin.Context) { a.laneAction(c, lanes) })
	}
}

// lanePath begins the routes of one lane, and ends with a slash. Keys of lanes have slashes in them ("https://shop.example:443"): a
// client should escape them, but not every one does, and not every proxy leaves escaped ones alone. So the router is given one path for
// all of them, and what a request means is its last segment.
const lanePath = "/v1/lanes/:lane/"

// laneActions are the handlers of one lane's routes, by method and last segment.
type laneActions map[string]map[string]gin.HandlerFunc

func (l laneActions) add(method, action string, h gin.HandlerFunc) {
	if l[method] == nil {
		l[method] = make(map[string]gin.HandlerFunc)
	}
	l[method][action] = h
}

// laneAction answers a request for one lane.
func (a *API) laneAction(c *gin.Context, lanes laneActions) {
	path := strings.TrimPrefix(c.Param("lane"), "/")
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		a.fail(c, httperr.ErrNoRoute)
		return
	}
	key, action := path[:i], path[i+1:]
	if h := lanes[c.Request.Method][action]; h != nil {
		c.Params = gin.Params{{Key: "lane", Value: key}}
		h(c)
		return
	}
	for method, actions := range lanes {
		if actions[action] != nil {
			c.Writer.Header().Set("Allow", method)
			a.fail(c, httperr.ErrMethod)
			return
		}
	}
	a.fail(c, httperr.ErrNoRoute)
}

// noContent answers that it is done, and that there is nothing to say of it.
func noContent(c *gin.Context) { c.Writer.WriteHeader(http.StatusNoContent) }
