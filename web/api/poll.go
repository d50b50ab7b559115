package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// pollRoute is the route of polls in idempotency keys.
const pollRoute = "POST /v1/polls"

// acceptPoll handles POST /v1/polls: 202 with the callback, or 200 with an existing one. That is the first
// callback of the same idempotency key, or the open poll of the same reference and URL.
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
	p.CreatedBy = who.Creator()
	r, err := a.Engine.AcceptPoll(ctx, who.Project, p)
	if err != nil {
		return err
	}
	return a.accepted(c, &r)
}

// getPoll handles GET /v1/polls/{id}: the callback, with the details of the poll in the member poll.
func (a *API) getPoll(ctx context.Context, c *gin.Context, who caller, id string) error {
	v, err := a.Engine.Poll(ctx, who.Project, id)
	if err != nil {
		return err
	}
	o := jsonObject{append(make([]byte, 0, 2048), '{')}
	o.callback(&v.Callback, a.Engine.Now())
	o.creator(&v.Callback)
	o.key("poll")
	o.b, err = client.AppendJSON(o.b, pollOf(&v))
	if err != nil {
		return err
	}
	o.close()
	a.writeJSON(c, http.StatusOK, o.b)
	return nil
}

// resolvePoll handles POST /v1/polls/{id}/resolve.
func (a *API) resolvePoll(ctx context.Context, c *gin.Context, who caller, id string) error {
	var (
		d     decoder
		r     client.ResolveRequest
		asked control.ResolveRequest
	)
	d.custom = map[string]func(string, []byte){
		"data": func(name string, raw []byte) { d.shortJSON(name, raw, &asked.Data) },
	}
	if err := d.read(c, true, &r); err != nil {
		return err
	}
	asked.Invalid = d.invalid
	return reply(a, c, http.StatusOK, func(x *store.ResolvedPoll) endResult {
		return endResult{string(x.Result), a.callbackOf(&x.Callback)}
	})(a.Engine.ResolvePoll(ctx, who.Project, id, asked, who.By(r.Reason)))
}

// pollOf converts the details of a poll that its callback does not have.
func pollOf(v *control.PollView) client.PollDetail {
	rule := func(name string) json.RawMessage { return memberOf([]byte(v.Rule), name) }
	out := client.PollDetail{
		Until: rule("until"), HoldIf: rule("hold_if"), Evaluate: rule("evaluate"),
		ErrorBudget: rule("error_budget"),
		Errors:      v.Detail.Errors, Context: storedJSON(v.Detail.Context), Data: storedJSON(v.Detail.Data),
		// The outcome comes from the callback, not from the last result: that may belong to an earlier end,
		// and without on_result there is none.
		Outcome:          client.PollOutcome(v.Callback.PollOutcome()),
		ResultCallbackID: prefixed(store.CallbackPrefix, v.Detail.ResultID),
	}
	if d := v.Detail.OnResult; d != nil {
		out.OnResult = &client.PollTarget{
			URL: d.Callback.URL, EndpointID: prefixed(store.EndpointPrefix, d.Callback.EndpointID),
			Topic: d.Callback.Topic, Ref: d.Callback.Ref,
		}
	}
	return out
}

// memberOf returns a member of stored JSON, or nil if it is missing or null. It also returns nil if the text
// is not an object, which only happens in a damaged row.
func memberOf(stored []byte, name string) []byte {
	if !isObject(stored) {
		return nil
	}
	for key, value := range members(stored) {
		if string(key) == name && !isNull(value) {
			return value
		}
	}
	return nil
}

// isObject reports whether unchecked bytes are a JSON object.
func isObject(b []byte) bool {
	i := skipSpace(b, 0)
	return i < len(b) && b[i] == '{' && json.Valid(b)
}

// A pollDecoder decodes a poll. It decodes the fields that a poll and its request share with a callback like
// those of a callback. Fields that it cannot decode are in the submission's Invalid. The engine checks what
// the values and the rule mean.
type pollDecoder struct {
	submissionDecoder
	poll accept.PollSubmission
}

// decodePoll decodes a poll from valid JSON. The result refers to raw. The only error is ErrPayloadTooLarge.
func decodePoll(raw []byte) (accept.PollSubmission, error) {
	var d pollDecoder
	d.object(request, "", raw, d.member)
	sub, err := d.done()
	d.poll.Submission = sub
	return d.poll, err
}

// member decodes one field. It returns false for an unknown field.
func (d *pollDecoder) member(key, raw []byte) bool {
	p, name := &d.poll, string(key)
	switch name {
	case "ref", "topic", "labels", "lock_key", "lane", "policy", "due_at", "delay", "expires_in",
		"idempotency_key":
		return d.submissionDecoder.member(key, raw)
	case "request":
		d.nested(name, raw, d.requestMember)
	case "until":
		d.verbatim(name, raw, anObject, &p.Until)
	case "hold_if":
		d.verbatim(name, raw, anArray, &p.HoldIf)
	case "evaluate":
		d.verbatim(name, raw, anArray, &p.Evaluate)
	case "error_budget":
		setPointer(&d.fields, name, raw, &p.ErrorBudget, decodeFromZero)
	case "context":
		d.shortJSON(name, raw, &p.Context)
	case "on_result":
		d.onResult(raw)
	default:
		return false
	}
	return true
}

// requestMember decodes one field of the poll's request. It has no success rule: the poll's conditions test
// the response.
func (d *pollDecoder) requestMember(key, raw []byte) bool {
	switch string(key) {
	case "url", "endpoint", "method", "headers", "payload", "body", "body_base64", "content_type", "signer":
		return d.submissionDecoder.member(key, raw)
	}
	return false
}

// onResult decodes the callback that sends the result. Its errors are in its own Invalid and have no prefix;
// the engine adds "on_result.".
func (d *pollDecoder) onResult(raw []byte) {
	if isNull(raw) {
		return
	}
	if raw[0] != '{' {
		d.add("on_result", notAnObject)
		return
	}
	var r submissionDecoder
	r.object(request, "", raw, r.without(refusedInResult))
	sub, _ := r.done() // no error: it has no payload
	d.poll.OnResult = &sub
}

// refusedInResult has the fields of a callback that on_result must not have, with the error message of each.
var refusedInResult = map[string]string{
	"payload":         "is not allowed: the result is the body",
	"body":            "is not allowed: the result is the body",
	"body_base64":     "is not allowed: the result is the body",
	"content_type":    "is not allowed: the body is the result, as JSON",
	"idempotency_key": "is not allowed: the end of a poll creates exactly one callback",
	"due_at":          "is not allowed: the result is due when the poll ends; use delay to send it later",
}

// shortJSON keeps JSON that the poll's result repeats exactly as it is in the request.
func (f *fields) shortJSON(name string, raw []byte, to *[]byte) {
	if len(raw) > accept.MaxPollContext {
		f.add(name, fmt.Sprintf("is longer than %d KiB", accept.MaxPollContext>>10))
		return
	}
	f.verbatim(name, raw, anyJSON, to)
}
