package api

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// readPause reads how long something is to be held, and why: until a time, for a while, or with neither until it is resumed.
func (a *API) readPause(c *gin.Context) (until int64, reason string, err error) {
	var (
		f     fields
		when  *int64
		while *time.Duration
	)
	err = readFields(c, true, &f, func(key, value []byte) bool {
		switch string(key) {
		case "until":
			f.instant("until", value, &when)
		case "for":
			f.duration("for", value, &while)
		default:
			return f.reason(key, value, &reason)
		}
		return true
	})
	if err != nil {
		return 0, "", err
	}
	now := a.Engine.Now()
	until = store.Forever
	switch {
	case when != nil && while != nil:
		f.add("for", "give until or for, not both")
	case when != nil:
		if until = *when; until <= now {
			f.add("until", "is not in the future")
		}
	case while != nil:
		if until = now + while.Milliseconds(); until <= now {
			f.add("for", "must be at least 1ms")
		}
	}
	return until, reason, f.err()
}

// readReason reads a change that has nothing but a reason.
func readReason(c *gin.Context) (reason string, err error) {
	var f fields
	err = readFields(c, true, &f, func(key, value []byte) bool { return f.reason(key, value, &reason) })
	return reason, err
}

// pause writes whether something is held at now, until when (null: until it is resumed), and why.
func (o *jsonObject) pause(until int64, reason string, now int64) {
	held := until > now
	if !held {
		until, reason = 0, ""
	}
	o.boolean("paused", held)
	o.until("paused_until", until)
	o.orNull("pause_reason", reason)
}

// pauseProject is POST /v1/pause: all that the project sends is held.
func (a *API) pauseProject(ctx context.Context, c *gin.Context, who caller) error {
	until, reason, err := a.readPause(c)
	if err != nil {
		return err
	}
	return a.heldProject(c)(a.Engine.PauseProject(ctx, who.Project, until, who.By(reason)))
}

// resumeProject is POST /v1/resume.
func (a *API) resumeProject(ctx context.Context, c *gin.Context, who caller) error {
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	return a.heldProject(c)(a.Engine.PauseProject(ctx, who.Project, 0, who.By(reason)))
}

// heldProject answers with a project's pause. What else there is of a project is not for everybody who may stop it.
func (a *API) heldProject(c *gin.Context) func(store.Project, error) error {
	return func(p store.Project, err error) error {
		if err != nil {
			return err
		}
		o := jsonObject{[]byte("{")}
		o.str("project", p.ID)
		o.pause(p.PausedUntil, p.PauseReason, a.Engine.Now())
		o.close()
		a.answer(c, http.StatusOK, o.b)
		return nil
	}
}
