package api

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// query.ListLanes is GET /v1/lanes.
func (a *API) listLanes(ctx context.Context, c *gin.Context, who caller) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	now := a.Engine.Now()
	f := store.LaneFilter{Search: q.One("search"), Held: q.Yes("held"), Now: now}
	limit, after := q.Page(query.ListLanes)
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	if f.Limit = limit + 1; after != nil {
		f.After = after.ID
	}
	lanes, err := a.Engine.Lanes(ctx, who.Project, f)
	if err != nil {
		return err
	}
	next := ""
	if len(lanes) > limit {
		lanes = lanes[:limit]
		next = q.Cursors.Encode(query.ListLanes, store.Cursor{ID: lanes[limit-1].Key})
	}
	o := jsonObject{[]byte(`{"data":[`)}
	for i := range lanes {
		o.element(i)
		o.laneView(&lanes[i], now)
		o.close()
	}
	a.answer(c, http.StatusOK, appendNext(o.b, next))
	return nil
}

// laneView writes the members of a lane with what waits in it. What only the index knows is null when it does not answer.
func (o *jsonObject) laneView(v *control.LaneView, now int64) {
	o.lane(&v.Lane, now)
	o.integer("open", v.Open)
	o.instant("oldest_due_at", v.OldestDue)
	o.age("age_ms", v.OldestDue, now)
	s := v.State
	if s == nil {
		for _, name := range [...]string{"in_flight", "concurrency_now", "concurrency_limit", "health"} {
			o.orNull(name, "")
		}
	} else {
		o.integer("in_flight", int64(s.InFlight))
		o.intOrNull("concurrency_now", s.Concurrency)
		o.intOrNull("concurrency_limit", s.Limit)
		o.str("health", healthName(s.Health))
	}
	o.holds(v.Holds(now))
	if s == nil {
		o.orNull("breaker", "")
		return
	}
	o.open("breaker")
	o.str("state", s.Breaker.String())
	o.integer("unanswered", int64(s.Unanswered))
	o.instant("since", s.UnansweredSince)
	o.instant("opened_at", s.OpenedAt)
	o.instant("probe_at", s.ProbeAt)
	o.close()
}

// holds writes what holds a lane: the first cause by itself, then all of them.
func (o *jsonObject) holds(holds []control.Block) {
	var first control.Block
	if len(holds) > 0 {
		first = holds[0]
	}
	o.orNull("held", first.Code)
	o.instant("held_since", first.Since)
	o.until("held_until", first.Until)
	o.key("holds")
	o.b = append(o.b, '[')
	for i := range holds {
		o.element(i)
		o.block(&holds[i])
		o.close()
	}
	o.b = append(o.b, ']')
}

// age writes for how long what waits longest has been due, in milliseconds; null where nothing is.
func (o *jsonObject) age(name string, oldest, now int64) {
	if oldest == 0 || oldest > now {
		o.orNull(name, "")
		return
	}
	o.integer(name, now-oldest)
}

// healthName is what the last ended attempt of a lane says of it.
func healthName(h schedule.Health) string {
	switch h {
	case schedule.Answering:
		return "answering"
	case schedule.TimingOut:
		return "timing_out"
	}
	return "unproven"
}

// lane writes the members of a lane that people set.
func (o *jsonObject) lane(l *store.Lane, now int64) {
	o.str("lane", l.Key)
	o.id("endpoint_id", store.EndpointPrefix, l.EndpointID)
	o.orNull("rate", l.Rate.String())
	o.intOrNull("concurrency", l.Limit)
	o.pause(l.PausedUntil, l.PauseReason, now)
}

// set answers with a lane as a change has left it.
func (a *API) set(c *gin.Context) func(store.Lane, error) error {
	return func(l store.Lane, err error) error {
		if err != nil {
			return err
		}
		o := jsonObject{[]byte("{")}
		o.lane(&l, a.Engine.Now())
		o.close()
		a.answer(c, http.StatusOK, o.b)
		return nil
	}
}

// pauseLane is POST /v1/lanes/{lane}/pause. Accepts go on.
func (a *API) pauseLane(ctx context.Context, c *gin.Context, who caller) error {
	until, reason, err := a.readPause(c)
	if err != nil {
		return err
	}
	return a.set(c)(a.Engine.PauseLane(ctx, who.Project, c.Param("lane"), until, who.By(reason)))
}

// resumeLane is POST /v1/lanes/{lane}/resume.
func (a *API) resumeLane(ctx context.Context, c *gin.Context, who caller) error {
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	return a.set(c)(a.Engine.PauseLane(ctx, who.Project, c.Param("lane"), 0, who.By(reason)))
}

// limitLane is PUT /v1/lanes/{lane}/limits: null takes a bound away, and one that is not given stays.
func (a *API) limitLane(ctx context.Context, c *gin.Context, who caller) error {
	var (
		f      fields
		limit  *int
		rate   *store.Rate
		reason string
	)
	err := readFields(c, false, &f, func(key, value []byte) bool {
		switch string(key) {
		case "concurrency":
			limit = new(int)
			f.count("concurrency", value, limit)
		case "rate":
			rate = new(store.Rate)
			f.rate("rate", value, rate)
		default:
			return f.reason(key, value, &reason)
		}
		return true
	})
	if err != nil {
		return err
	}
	if limit == nil && rate == nil {
		f.add("rate", "is needed, or concurrency; null is no bound of its own")
		return f.err()
	}
	return a.set(c)(a.Engine.SetLane(ctx, who.Project, c.Param("lane"), limit, rate, who.By(reason)))
}

// rate decodes how often something may begin.
func (f *fields) rate(name string, raw []byte, to *store.Rate) {
	var text *string
	if f.line(name, raw, &text); text == nil {
		return
	}
	rate, err := store.ParseRate(*text)
	if err != nil {
		f.add(name, err.Error())
		return
	}
	*to = rate
}
