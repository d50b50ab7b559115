package api

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// listLanes handles GET /v1/lanes.
func (a *API) listLanes(ctx context.Context, c *gin.Context, who caller) error {
	parse := func(q *query.Values) reader[control.LaneView] {
		f := store.LaneFilter{Search: q.One("search"), Paused: q.Yes("held"), Now: a.Engine.Now()}
		return func(
			ctx context.Context, who caller, after store.Cursor, limit int,
		) ([]control.LaneView, error) {
			f.After, f.Limit = after.ID, limit
			return a.Engine.Lanes(ctx, who.Project, f)
		}
	}
	at := func(v *control.LaneView) store.Cursor { return store.Cursor{ID: v.Key} }
	return listOf(a, query.ListLanes, parse, at, a.laneViewOf)(ctx, c, who)
}

// laneViewOf converts a lane with its backlog. Values that only the index has are null if the index does not
// respond.
func (a *API) laneViewOf(v *control.LaneView) client.LaneView {
	now := a.Engine.Now()
	blocks := v.Blocks(now)
	out := client.LaneView{
		Lane: a.laneOf(&v.Lane), Open: v.Open, OldestDueAt: moment(v.OldestDue), Holds: each(blocks, blockOf),
	}
	if v.OldestDue != 0 && v.OldestDue <= now {
		out.AgeMs = new(now - v.OldestDue)
	}
	if len(blocks) > 0 {
		first := out.Holds[0] // the cause to fix first
		out.Held, out.HeldSince, out.HeldUntil = first.Code, first.Since, first.Until
	}
	s := v.State
	if s == nil {
		return out
	}
	out.InFlight, out.Health = new(s.InFlight), healthName(s.Health)
	out.ConcurrencyNow, out.ConcurrencyLimit = s.Concurrency, s.Limit
	out.Breaker = &client.Breaker{
		State: s.Breaker.String(), Unanswered: s.Unanswered, Since: moment(s.UnansweredSince),
		OpenedAt: moment(s.OpenedAt), ProbeAt: moment(s.ProbeAt),
	}
	return out
}

// healthName returns the result of the lane's last ended attempt as the API names it.
func healthName(h schedule.Health) string {
	switch h {
	case schedule.Answering:
		return "answering"
	case schedule.TimingOut:
		return "timing_out"
	}
	return "unproven"
}

// laneOf converts the limits and the pause of a lane.
func (a *API) laneOf(l *store.Lane) client.Lane {
	return client.Lane{
		Lane: l.Key, EndpointID: prefixed(store.EndpointPrefix, l.EndpointID), Rate: l.Rate.String(),
		Concurrency: l.Limit, Pause: a.pauseOf(l.PausedUntil, l.PauseReason),
	}
}

// limitLane handles PUT /v1/lanes/{lane}/limits. Null removes a limit; a limit that is not given stays
// unchanged.
func (a *API) limitLane(ctx context.Context, c *gin.Context, who caller, key string) error {
	r, d, err := read[client.LaneLimits](c, false)
	if err != nil {
		return err
	}
	var rate *store.Rate
	if text, given := r.Rate.Get(); given {
		parsed, err := store.ParseRate(text)
		rate = &parsed
		if err != nil {
			d.add("rate", err.Error())
		}
	} else if r.Rate.IsNull() {
		rate = new(store.Rate)
	}
	if err := d.err(); err != nil {
		return err
	}
	limit := orDefault(r.Concurrency, true, 0)
	if limit == nil && rate == nil {
		return invalid("rate", "rate or concurrency is required; null removes a limit")
	}
	return reply(a, c, http.StatusOK, a.laneOf)(
		a.Engine.SetLane(ctx, who.Project, key, limit, rate, who.By(r.Reason)))
}

// readPause reads the end of a pause and its reason. The end is a time, a duration from now, or neither:
// until it is resumed.
func (a *API) readPause(c *gin.Context) (end int64, reason string, err error) {
	r, err := readAll[client.PauseRequest](c, true)
	if err != nil {
		return 0, "", err
	}
	now := a.Engine.Now()
	until, duration := millis(r.Until), length(r.For)
	switch {
	case until != nil && duration != nil:
		return 0, "", invalid("for", "conflicts with until; set only one of them")
	case until != nil && *until <= now:
		return 0, "", invalid("until", "must be in the future")
	case until != nil:
		return *until, r.Reason, nil
	case duration != nil && *duration < time.Millisecond:
		return 0, "", invalid("for", "must be at least 1ms")
	case duration != nil:
		return now + duration.Milliseconds(), r.Reason, nil
	}
	return store.Forever, r.Reason, nil
}

// readResume reads the reason of a resume. The end 0 resumes.
func readResume(c *gin.Context) (end int64, reason string, err error) {
	reason, err = readReason(c)
	return 0, reason, err
}

// pauseAndResume returns the handlers that pause and resume an object. Both respond with the object.
// Callbacks are accepted during a pause.
func pauseAndResume[T, R any](
	a *API, set func(ctx context.Context, project, id string, until int64, by store.Actor) (T, error),
	of func(*T) R,
) (pause, resume handlerOf) {
	setEnd := func(read func(c *gin.Context) (int64, string, error)) handlerOf {
		return func(ctx context.Context, c *gin.Context, who caller, id string) error {
			until, reason, err := read(c)
			if err != nil {
				return err
			}
			return reply(a, c, http.StatusOK, of)(set(ctx, who.Project, id, until, who.By(reason)))
		}
	}
	return setEnd(a.readPause), setEnd(readResume)
}

// setProjectPause pauses sending for a whole project, or resumes it.
func (a *API) setProjectPause(
	ctx context.Context, project, _ string, until int64, by store.Actor,
) (store.Project, error) {
	return a.Engine.PauseProject(ctx, project, until, by)
}

// projectPauseOf returns the pause of a project. It leaves out the rest: a key of scope operate may pause a
// project, but only the scope admin may read its settings.
func (a *API) projectPauseOf(p *store.Project) client.ProjectPause {
	return client.ProjectPause{Project: p.ID, Pause: a.pauseOf(p.PausedUntil, p.PauseReason)}
}
