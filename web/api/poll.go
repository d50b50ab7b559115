package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// pollRoute is the route as idempotency keys know it.
const pollRoute = "POST /v1/polls"

// acceptPoll is POST /v1/polls: 202 with the callback, or 200 with the first one of the same idempotency key, or with the open one of the
// same reference and address.
func (a *API) acceptPoll(ctx context.Context, c *gin.Context, who caller) error {
	body, err := readJSON(c, maxRequest)
	if err != nil {
		return err
	}
	p, err := decodePoll(body)
	if err != nil {
		return err
	}
	headerIdempotency(&p.Submission, c.Request.Header)
	bindIdempotency(&p.Submission, pollRoute, body)
	r, err := a.Engine.AcceptPoll(ctx, who.Project, p)
	if err != nil {
		return err
	}
	return a.accepted(c, &r)
}

// getPoll is GET /v1/polls/{id}: its callback, and in poll what it has beside that.
func (a *API) getPoll(ctx context.Context, c *gin.Context, who caller) error {
	id, err := param(c)
	if err != nil {
		return err
	}
	v, err := a.Engine.Poll(ctx, who.Project, id)
	if err != nil {
		return err
	}
	o := jsonObject{append(make([]byte, 0, 2048), '{')}
	o.callback(&v.Callback, a.Engine.Now())
	o.open("poll")
	o.poll(&v)
	o.close()
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}

// resolvePoll is POST /v1/polls/{id}/resolve.
func (a *API) resolvePoll(ctx context.Context, c *gin.Context, who caller) error {
	id, err := param(c)
	if err != nil {
		return err
	}
	var (
		f      fields
		r      control.ResolveRequest
		reason string
	)
	err = readObject(c, true, &f, func(key, value []byte) bool {
		if string(key) == "data" {
			f.short("data", value, &r.Data)
			return true
		}
		return f.reason(key, value, &reason)
	})
	if err != nil {
		return err
	}
	r.Invalid = f.invalid
	resolved, err := a.Engine.ResolvePoll(ctx, who.Project, id, r, who.By(reason))
	if err != nil {
		return err
	}
	a.answer(c, http.StatusOK, appendEnded(nil, string(resolved.Result), &resolved.Callback, a.Engine.Now()))
	return nil
}

// poll writes what a poll has beside its callback.
func (o *jsonObject) poll(v *control.PollView) {
	rule := []byte(v.Rule)
	for _, name := range [...]string{"until", "hold_if", "evaluate", "error_budget"} {
		o.rawOrNull(name, string(memberOf(rule, name)))
	}
	o.integer("errors", int64(v.Detail.Errors))
	o.rawOrNull("context", string(v.Detail.Context))
	o.onResult(v.Detail.OnResult)
	// The outcome is the callback's own: what was told last may be that of an earlier end, and where there is nobody to tell it is none.
	o.orNull("outcome", string(v.Callback.PollOutcome()))
	o.id("result_callback_id", store.CallbackPrefix, v.Detail.ResultID)
	o.rawOrNull("data", string(v.Detail.Data))
}

// onResult writes where a result goes, null for nowhere.
func (o *jsonObject) onResult(d *store.ResultDraft) {
	if d == nil {
		o.orNull("on_result", "")
		return
	}
	o.open("on_result")
	o.orNull("url", d.Callback.URL)
	o.id("endpoint_id", store.EndpointPrefix, d.Callback.EndpointID)
	o.orNull("topic", d.Callback.Topic)
	o.orNull("ref", d.Callback.Ref)
	o.close()
}

// memberOf returns a member of JSON that is kept, nil where it is not there or is null. Of what is no object, which only a damaged row can
// have, there is none.
func memberOf(kept []byte, name string) []byte {
	if !isObject(kept) {
		return nil
	}
	for key, value := range members(kept) {
		if string(key) == name && !isNull(value) {
			return value
		}
	}
	return nil
}

// isObject says whether bytes that nobody has looked at are a JSON object.
func isObject(b []byte) bool {
	i := skipSpace(b, 0)
	return i < len(b) && b[i] == '{' && json.Valid(b)
}
