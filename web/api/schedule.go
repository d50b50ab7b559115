package api

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// createSchedule is POST /v1/schedules: 201 with the schedule.
func (a *API) createSchedule(ctx context.Context, c *gin.Context, who caller) error {
	var (
		d      scheduleDecoder
		reason string
	)
	if err := readObject(c, false, &d.fields, d.with(&reason)); err != nil {
		return err
	}
	return a.schedule(c, http.StatusCreated)(a.Engine.CreateSchedule(ctx, who.Project, d.done(), who.By(reason)))
}

// patchSchedule is PATCH /v1/schedules/{id}.
func (a *API) patchSchedule(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.SchedulePrefix)
	if err != nil {
		return err
	}
	d := scheduleDecoder{patch: true}
	var reason string
	if err := readObject(c, false, &d.fields, d.with(&reason)); err != nil {
		return err
	}
	return a.schedule(c, http.StatusOK)(a.Engine.PatchSchedule(ctx, who.Project, id, d.done(), who.By(reason)))
}

// deleteSchedule is DELETE /v1/schedules/{id}.
func (a *API) deleteSchedule(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.SchedulePrefix)
	if err != nil {
		return err
	}
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	if err := a.Engine.DeleteSchedule(ctx, who.Project, id, who.By(reason)); err != nil {
		return err
	}
	noContent(c)
	return nil
}

// runSchedule is POST /v1/schedules/{id}/run: 202 with the callback.
func (a *API) runSchedule(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.SchedulePrefix)
	if err != nil {
		return err
	}
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	cb, err := a.Engine.RunSchedule(ctx, who.Project, id, who.By(reason))
	if err != nil {
		return err
	}
	a.answer(c, http.StatusAccepted, appendCallback(nil, &cb, a.Engine.Now(), false))
	return nil
}

// getSchedule is GET /v1/schedules/{id}.
func (a *API) getSchedule(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.SchedulePrefix)
	if err != nil {
		return err
	}
	return a.schedule(c, http.StatusOK)(a.Engine.Schedule(ctx, who.Project, id))
}

// schedule answers with a schedule.
func (a *API) schedule(c *gin.Context, status int) func(store.Schedule, error) error {
	return func(s store.Schedule, err error) error {
		if err != nil {
			return err
		}
		o := jsonObject{[]byte("{")}
		o.schedule(&s)
		o.close()
		a.answer(c, status, o.b)
		return nil
	}
}

// query.ListSchedules is GET /v1/schedules.
func (a *API) listSchedules(ctx context.Context, c *gin.Context, who caller) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	f := store.ScheduleFilter{Search: q.One("search")}
	if s := q.OneOf("enabled", "true", "false"); s != "" {
		f.Enabled = new(s == "true")
	}
	limit, after := q.Page(query.ListSchedules)
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	if f.Limit = limit + 1; after != nil {
		f.After = after.ID
	}
	schedules, err := a.Engine.Schedules(ctx, who.Project, f)
	if err != nil {
		return err
	}
	next := ""
	if len(schedules) > limit {
		schedules = schedules[:limit]
		next = q.Cursors.Encode(query.ListSchedules, store.Cursor{ID: schedules[limit-1].ID})
	}
	o := jsonObject{[]byte(`{"data":[`)}
	for i := range schedules {
		o.element(i)
		o.schedule(&schedules[i])
		o.close()
	}
	a.answer(c, http.StatusOK, appendNext(o.b, next))
	return nil
}

// listRuns is GET /v1/schedules/{id}/runs, newest first. They are few enough to be answered whole.
func (a *API) listRuns(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.SchedulePrefix)
	if err != nil {
		return err
	}
	runs, err := a.Engine.ScheduleRuns(ctx, who.Project, id)
	if err != nil {
		return err
	}
	o := jsonObject{[]byte(`{"data":[`)}
	for i := range runs {
		o.element(i)
		o.run(&runs[i])
		o.close()
	}
	a.answer(c, http.StatusOK, append(o.b, "]}"...))
	return nil
}
