package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// cancel is POST /v1/callbacks/{id}/cancel.
func (a *API) cancel(ctx context.Context, c *gin.Context, who caller) error {
	id, err := param(c)
	if err != nil {
		return err
	}
	var (
		f      fields
		reason string
	)
	err = readFields(c, true, &f, func(key, value []byte) bool {
		return f.reason(key, value, &reason)
	})
	if err != nil {
		return err
	}
	canceled, err := a.Engine.Cancel(ctx, who.Project, id, who.By(reason))
	if err != nil {
		return err
	}
	a.answer(c, http.StatusOK, appendCanceled(nil, &canceled, a.Engine.Now()))
	return nil
}

// maxReason is the most bytes of a reason that the audit keeps.
const maxReason = 1024

// reason decodes the field "reason", which every change has, and says whether it was that.
func (f *fields) reason(key, value []byte, to *string) bool {
	if string(key) != "reason" {
		return false
	}
	f.text("reason", value, to)
	if len(*to) > maxReason {
		f.add("reason", fmt.Sprintf("has more than %d bytes", maxReason))
	}
	return true
}

// cancelRef is POST /v1/callbacks/cancel: all open callbacks of a reference, and if asked for those that had ended already.
func (a *API) cancelRef(ctx context.Context, c *gin.Context, who caller) error {
	var (
		f      fields
		which  control.CancelRefRequest
		reason string
	)
	err := readFields(c, false, &f, func(key, value []byte) bool {
		switch string(key) {
		case "ref":
			f.text("ref", value, &which.Ref)
		case "topic":
			f.text("topic", value, &which.Topic)
		case "include_terminal":
			f.boolean("include_terminal", value, &which.Terminal)
		default:
			return f.reason(key, value, &reason)
		}
		return true
	})
	if err != nil {
		return err
	}
	if which.Ref == "" {
		return needed("ref")
	}
	canceled, err := a.Engine.CancelRef(ctx, who.Project, which, who.By(reason))
	if err != nil {
		return err
	}
	now := a.Engine.Now()
	b := []byte(`{"data":[`)
	for i := range canceled {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCanceled(b, &canceled[i], now)
	}
	a.answer(c, http.StatusOK, append(b, "]}"...))
	return nil
}

// needed is the error of one field that is missing.
func needed(field string) error { return invalid(field, "is needed") }

// invalid is the error of one field.
func invalid(field, message string) error {
	return &store.InvalidError{Fields: []store.FieldError{{Field: field, Message: message}}}
}

// retry is POST /v1/callbacks/{id}/retry.
func (a *API) retry(ctx context.Context, c *gin.Context, who caller) error {
	id, err := param(c)
	if err != nil {
		return err
	}
	var (
		f      fields
		r      control.RetryRequest
		ladder string
		reason string
	)
	err = readFields(c, true, &f, func(key, value []byte) bool {
		switch string(key) {
		case "ladder":
			f.text("ladder", value, &ladder)
			if r.Ladder = store.Ladder(ladder); ladder != "" && r.Ladder != store.Once && r.Ladder != store.Restart {
				f.add("ladder", "must be once or restart")
			}
		case "url":
			f.text("url", value, &r.URL)
		default:
			return f.reason(key, value, &reason)
		}
		return true
	})
	if err != nil {
		return err
	}
	return a.changed(c)(a.Engine.Retry(ctx, who.Project, id, r, who.By(reason)))
}

// reschedule is POST /v1/callbacks/{id}/reschedule.
func (a *API) reschedule(ctx context.Context, c *gin.Context, who caller) error {
	id, err := param(c)
	if err != nil {
		return err
	}
	var (
		f      fields
		reason string
		sub    accept.Submission
	)
	err = readFields(c, false, &f, func(key, value []byte) bool {
		switch string(key) {
		case "due_at":
			f.instant("due_at", value, &sub.DueAt)
		case "delay":
			f.duration("delay", value, &sub.Delay)
		default:
			return f.reason(key, value, &reason)
		}
		return true
	})
	if err != nil {
		return err
	}
	if (sub.DueAt == nil) == (sub.Delay == nil) {
		f.add("due_at", "exactly one of due_at and delay is needed")
		return f.err()
	}
	return a.changed(c)(a.Engine.Reschedule(ctx, who.Project, id, sub.DueAt, sub.Delay, who.By(reason)))
}

// changed answers with a callback as a change has left it.
func (a *API) changed(c *gin.Context) func(store.Callback, error) error {
	return func(cb store.Callback, err error) error {
		if err != nil {
			return err
		}
		a.answer(c, http.StatusOK, appendCallback(nil, &cb, a.Engine.Now(), false))
		return nil
	}
}

// mend is PATCH /v1/callbacks/{id}: changes one that is scheduled or dead, never its payload. Of nulls only that of expires_in means
// something: it does not expire any more.
func (a *API) mend(ctx context.Context, c *gin.Context, who caller) error {
	id, err := param(c)
	if err != nil {
		return err
	}
	var (
		f      fields
		r      control.MendRequest
		reason string
	)
	err = readObject(c, false, &f, func(key, value []byte) bool {
		switch string(key) {
		case "url":
			f.line("url", value, &r.URL)
		case "headers":
			if !isNull(value) {
				r.Headers = &[]store.Header{}
				f.headers(value, r.Headers)
			}
		case "policy":
			f.policy(value, &r.Choice)
		case "expires_in":
			r.NoExpiry = isNull(value)
			f.duration("expires_in", value, &r.ExpiresIn)
		default:
			return f.reason(key, value, &reason)
		}
		return true
	})
	if err != nil {
		return err
	}
	if r.Invalid = f.invalid; len(f.invalid) == 0 && r.URL == nil && r.Headers == nil && r.ExpiresIn == nil && !r.NoExpiry &&
		r.PolicyName == "" && !r.PolicyGiven {
		f.add(request, "changes nothing: give url, headers, policy or expires_in")
		return f.err()
	}
	return a.changed(c)(a.Engine.Mend(ctx, who.Project, id, r, who.By(reason)))
}
