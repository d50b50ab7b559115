package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// A Route is one method and path of the API. A path parameter is ":id", or "*external_id" for one at the end
// that may contain slashes.
type Route struct {
	Method, Path string
	// Scope is the scope that a key needs. Empty: no key is needed.
	Scope   store.Scope
	handler gin.HandlerFunc
}

// A row is a route with its handler.
type row struct {
	scope store.Scope
	// name is the method and the path.
	name string
	h    handler
	// timeout replaces the timeout of the API, and lifts the server's timeouts. Zero: the timeout of the API.
	timeout time.Duration
}

// Routes returns every route of the API.
func (a *API) Routes() []Route {
	docs := a.docs()
	all := []Route{
		{"GET", "/openapi.yaml", "", a.openapi}, {"GET", docsPath, "", docs},
		{"GET", docsPath + "/*file", "", docs},
	}
	own := a.ownHandlers()
	for _, r := range a.rows() {
		method, path, _ := strings.Cut(r.name, " ")
		serve := a.serve(r.scope, r.h, own[r.name], a.Timeout)
		if r.timeout > 0 {
			serve = a.serveLong(r.scope, r.h, r.timeout)
		}
		all = append(all, Route{method, path, r.scope, serve})
	}
	return all
}

// rows returns the routes that need a key.
func (a *API) rows() []row {
	const send, read, operate, admin = store.ScopeSend, store.ScopeRead, store.ScopeOperate, store.ScopeAdmin
	const ok, accepted = http.StatusOK, http.StatusAccepted
	const byExternalID = "/v1/endpoints/by-external-id/*external_id"
	cb, ep := byID(store.CallbackPrefix), byID(store.EndpointPrefix)
	rd, sc, al := byID(store.RedrivePrefix), byID(store.SchedulePrefix), byID(store.AlertPrefix)
	external, preset, source := byName("external_id"), byName("name"), byName("source")
	pauseEndpoint, resumeEndpoint := pauseAndResume(a, a.Engine.PauseEndpoint, a.endpointOf)
	pauseLane, resumeLane := pauseAndResume(a, a.Engine.PauseLane, a.laneOf)
	runSchedule := changeOne(a, sc, accepted, a.Engine.RunSchedule, a.callbackOf)
	testAlert := changeOne(a, al, accepted, a.Engine.TestAlert, a.callbackOf)
	pauseProject, resumeProject := pauseAndResume(a, a.setProjectPause, a.projectPauseOf)
	runReconcile := changeOne(a, byDate, ok, a.Engine.ReconcileDay, reportOf)
	all := []row{
		{send, "POST /v1/callbacks", a.traced(a.accept), 0},
		{send, "POST /v1/callbacks/batch", a.traced(a.acceptBatch), 0},
		{send, "POST /v1/events", a.traced(a.event), 0},
		{operate, "POST /v1/callbacks/cancel", a.cancelRef, 0},
		{read, "GET /v1/callbacks", a.list, 0},
		{read, "GET /v1/callbacks/:id", getOne(a, cb, a.Store.Get, a.shownCallback), 0},
		{operate, "PATCH /v1/callbacks/:id", withID(cb, a.editCallback), 0},
		{read, "GET /v1/callbacks/:id/attempts", withID(cb, a.attempts), 0},
		{read, "GET /v1/callbacks/:id/payload", withID(cb, a.payload), 0},
		{read, "GET /v1/callbacks/:id/explain", getOne(a, cb, a.Engine.Explain, explanationOf), 0},
		{read, "GET /v1/callbacks/:id/evidence", withID(cb, a.evidence), 0},
		{operate, "POST /v1/callbacks/:id/cancel", changeOne(a, cb, ok, a.Engine.Cancel, a.canceledOf), 0},
		{operate, "POST /v1/callbacks/:id/retry", withID(cb, a.retry), 0},
		{operate, "POST /v1/callbacks/:id/reschedule", withID(cb, a.reschedule), 0},
		{read, "GET /v1/stats", a.stats, 0},

		{read, "GET /v1/outcomes", a.outcomes, report.MaxOutcomeWait + a.Timeout},
		{read, "GET /v1/reconcile", a.reconcile, longTimeout},
		{read, "POST /v1/reconcile/compare", a.compare, longTimeout},
		{send, "POST /v1/reconcile/expected", a.expect, longTimeout},
		{operate, "DELETE /v1/reconcile/expected", a.unexpect, longTimeout},
		{read, "GET /v1/reconcile/reports", a.reports(), 0},
		{read, "GET /v1/reconcile/reports/:date", withID(byDate, a.report), 0},
		{operate, "POST /v1/reconcile/reports/:date/run", runReconcile, longTimeout},

		{operate, "POST /v1/endpoints", a.createEndpoint, 0},
		{read, "GET /v1/endpoints", a.listEndpoints, 0},
		{operate, "POST /v1/endpoints/batch", a.putEndpoints, 0},
		{read, "GET " + byExternalID, getOne(a, external, a.Store.EndpointByExternalID, a.endpointOf), 0},
		{operate, "PUT " + byExternalID, withID(external, a.putEndpoint), 0},
		{read, "GET /v1/endpoints/:id", getOne(a, ep, a.Store.Endpoint, a.endpointOf), 0},
		{operate, "PATCH /v1/endpoints/:id", withID(ep, a.patchEndpoint), 0},
		{operate, "DELETE /v1/endpoints/:id", withReason(ep, a.deleteEndpoint), 0},
		{operate, "POST /v1/endpoints/:id/pause", withID(ep, pauseEndpoint), 0},
		{operate, "POST /v1/endpoints/:id/resume", withID(ep, resumeEndpoint), 0},
		{operate, "POST /v1/endpoints/:id/test", changeOne(a, ep, accepted, a.testEndpoint, a.callbackOf), 0},
		{admin, "GET /v1/endpoints/:id/secret", withID(ep, a.endpointSecret), 0},
		{admin, "POST /v1/endpoints/:id/rotate_secret", withID(ep, a.rotateEndpointSecret), 0},
		{operate, "POST /v1/endpoints/:id/view_link", withID(ep, a.createViewLink), 0},
		{operate, "POST /v1/endpoints/:id/view_link/revoke",
			changeOne(a, ep, ok, a.Engine.RevokeViewLinks, a.endpointOf), 0},

		{read, "GET /v1/lanes", a.listLanes, 0},
		{operate, "POST " + lanePath + "pause", withID(byLane, pauseLane), 0},
		{operate, "POST " + lanePath + "resume", withID(byLane, resumeLane), 0},
		{operate, "PUT " + lanePath + "limits", withID(byLane, a.limitLane), 0},
		{operate, "POST /v1/pause", withID(byLane, pauseProject), 0},
		{operate, "POST /v1/resume", withID(byLane, resumeProject), 0},

		{read, "GET /v1/stop", a.stop, 0},
		{admin, "POST /v1/stop", requireAdminKey(a.setStop(a.readPause)), 0},
		{admin, "POST /v1/start", requireAdminKey(a.setStop(readResume)), 0},

		{operate, "POST /v1/redrives", a.createRedrive, 0},
		{read, "GET /v1/redrives", a.listRedrives(), 0},
		{read, "GET /v1/redrives/:id", getOne(a, rd, a.Store.Redrive, redriveOf), 0},
		{operate, "POST /v1/redrives/:id/pause", a.setRedrive(rd, store.RedrivePaused), 0},
		{operate, "POST /v1/redrives/:id/resume", a.setRedrive(rd, store.RedriveRunning), 0},
		{operate, "POST /v1/redrives/:id/approve", a.setRedrive(rd, store.RedriveApproved), 0},
		{operate, "POST /v1/redrives/:id/cancel", a.setRedrive(rd, store.RedriveCanceled), 0},

		{send, "POST /v1/polls", a.traced(a.acceptPoll), 0},
		{read, "GET /v1/polls/:id", withID(cb, a.getPoll), 0},
		{send, "POST /v1/polls/:id/resolve", withID(cb, a.resolvePoll), 0},

		{operate, "POST /v1/schedules", a.createSchedule, 0},
		{read, "GET /v1/schedules", a.listSchedules(), 0},
		{read, "GET /v1/schedules/:id", getOne(a, sc, a.Engine.Schedule, scheduleOf), 0},
		{operate, "PATCH /v1/schedules/:id", withID(sc, a.patchSchedule), 0},
		{operate, "DELETE /v1/schedules/:id", deleteOne(sc, a.Engine.DeleteSchedule), 0},
		{operate, "POST /v1/schedules/:id/run", runSchedule, 0},
		{read, "GET /v1/schedules/:id/runs", getOne(a, sc, a.Engine.ScheduleRuns, runsOf), 0},
		{operate, "POST /v1/alerts", a.createAlert, 0},
		{operate, "GET /v1/alerts", a.listAlerts(), 0},
		{operate, "GET /v1/alerts/:id", getOne(a, al, a.Engine.Alert, alertOf), 0},
		{operate, "PATCH /v1/alerts/:id", withID(al, a.patchAlert), 0},
		{operate, "DELETE /v1/alerts/:id", deleteOne(al, a.Engine.DeleteAlert), 0},
		{operate, "POST /v1/alerts/:id/test", testAlert, 0},
		{operate, "GET /v1/alerts/:id/firings", getOne(a, al, a.Engine.AlertFirings, firingsOf), 0},

		{read, "GET /v1/relay", a.relaySources, 0},
		{read, "GET /v1/relay/:source", getOne(a, source, a.Engine.RelaySource, a.relayWithRefusals), 0},
		{send, relayRoute, a.traced(withID(source, a.relay)), 0},
		{operate, relayRoute + "/retry", withID(source, a.retryRefused), 0},
		{operate, relayRoute + "/drop", withID(source, a.dropRefused), 0},
		{operate, relayRoute + "/replay", withID(source, a.replayKept), 0},
		{
			operate, relayRoute + "/cancel",
			changeOne(a, source, ok, a.Engine.CancelRelayAct, a.shownRelay), 0,
		},
		{operate, "DELETE /v1/relay/:source", deleteOne(source, a.forgetRelay), 0},

		{admin, "GET /v1/projects", a.listProjects, 0},
		{admin, "POST /v1/projects", requireAdminKey(a.createProject), 0},
		{admin, "GET /v1/projects/:id", a.getProject, 0},
		{admin, "PATCH /v1/projects/:id", a.patchProject, 0},
		{admin, "GET /v1/keys", a.listKeys(), 0},
		{admin, "POST /v1/keys", a.createKey, 0},
		{admin, "DELETE /v1/keys/:id", changeOne(a, byID(store.KeyPrefix), ok, a.revokeKey, keyOf), 0},
		{admin, "GET /v1/secret", a.secret, 0},
		{admin, "POST /v1/secret/rotate", a.rotateSecret, 0},
		{admin, "POST /v1/secret/reencrypt", requireAdminKey(a.reencrypt), 0},
		{admin, "GET /v1/audit", a.audit(), 0},
		{admin, "GET /v1/audit/verify", requireAdminKey(a.verifyAudit), 0},
		{admin, "POST /v1/index/verify", requireAdminKey(a.verify), longTimeout},
		{admin, "POST /v1/index/rebuild", requireAdminKey(a.rebuild), longTimeout},
	}
	for _, k := range presetKinds() {
		all = append(all,
			row{read, "GET " + k.path, a.listPresets(k), 0},
			row{read, "GET " + k.path + "/:name", withID(preset, a.getPreset(k)), 0},
			row{operate, "PUT " + k.path + "/:name", withID(preset, a.putPreset(k)), 0},
			row{operate, "DELETE " + k.path + "/:name", deleteOne(preset, a.deletePreset(k.kind)), 0})
	}
	return all
}

// requireAdminKey rejects every key except the admin key of the settings. It protects calls that concern all
// projects.
func requireAdminKey(h handler) handler {
	return func(ctx context.Context, c *gin.Context, who caller) error {
		if !who.Root() {
			return adminKeyRequired()
		}
		return h(ctx, c, who)
	}
}

// Register adds the routes to a router.
func (a *API) Register(r gin.IRouter) {
	lanes, methods := make(map[string]Route), make(map[string]bool)
	for _, route := range a.Routes() {
		action, ofLane := strings.CutPrefix(route.Path, lanePath)
		if !ofLane {
			r.Handle(route.Method, route.Path, route.handler)
			continue
		}
		lanes[action] = route
		if !methods[route.Method] {
			methods[route.Method] = true
			r.Handle(route.Method, "/v1/lanes/*lane", func(c *gin.Context) { a.laneAction(c, lanes) })
		}
	}
}

// lanePath begins the routes of one lane, and ends with a slash. Lane keys contain slashes
// ("https://shop.example:443"). A client should escape them, but some clients do not, and some proxies
// unescape them. So the router gets a single route for all of them, and laneAction selects the handler by the
// last segment.
const lanePath = "/v1/lanes/:lane/"

// laneAction handles a request for one lane. routes are the lane routes by their last segment.
func (a *API) laneAction(c *gin.Context, routes map[string]Route) {
	path := strings.TrimPrefix(c.Param("lane"), "/")
	i := strings.LastIndexByte(path, '/')
	route, known := routes[path[i+1:]]
	switch {
	case i <= 0 || !known:
		a.fail(c, httperr.ErrNoRoute)
	case route.Method != c.Request.Method:
		c.Writer.Header().Set("Allow", route.Method)
		a.fail(c, httperr.ErrMethod)
	default:
		c.Params = gin.Params{{Key: "lane", Value: path[:i]}}
		route.handler(c)
	}
}
