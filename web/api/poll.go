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

// pollRoute is the route as idempotency keys know it.
const pollRoute = "POST /v1/polls"

// acceptPoll is POST /v1/polls: 202 with the callback, or 200 with the first one of the same idempotency key,
// or with the open one of the same reference and address.
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
func (a *API) getPoll(ctx context.Context, c *gin.Context, who caller, id string) error {
	v, err := a.Engine.Poll(ctx, who.Project, id)
	if err != nil {
		return err
	}
	o := jsonObject{append(make([]byte, 0, 2048), '{')}
	o.callback(&v.Callback, a.Engine.Now())
	o.key("poll")
	o.b, err = client.AppendJSON(o.b, pollOf(&v))
	if err != nil {
		return err
	}
	o.close()
	a.writeJSON(c, http.StatusOK, o.b)
	return nil
}

// resolvePoll is POST /v1/polls/{id}/resolve.
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

// pollOf is what a poll has beside its callback.
func pollOf(v *control.PollView) client.PollDetail {
	rule := func(name string) json.RawMessage { return memberOf([]byte(v.Rule), name) }
	out := client.PollDetail{
		Until: rule("until"), HoldIf: rule("hold_if"), Evaluate: rule("evaluate"),
		ErrorBudget: rule("error_budget"),
		Errors:      v.Detail.Errors, Context: storedJSON(v.Detail.Context), Data: storedJSON(v.Detail.Data),
		// The outcome is the callback's own: the last result may be that of an earlier end, and without
		// on_result there is none.
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

// memberOf returns a member of JSON that is kept, nil where it is not there or is null. Of what is no object,
// which only a damaged row can have, there is none.
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

// A pollDecoder decodes a poll as a caller asks for it: the fields that it has in common with a callback as a
// callback's, at the top and in its request. What it cannot decode is named in the submission's Invalid; what
// the values mean, and what the rule says, is the engine's to judge.
type pollDecoder struct {
	submissionDecoder
	poll accept.PollSubmission
}

// decodePoll decodes a poll from valid JSON, which stays referenced. The only error is ErrPayloadTooLarge.
func decodePoll(raw []byte) (accept.PollSubmission, error) {
	var d pollDecoder
	d.object(request, "", raw, d.member)
	sub, err := d.done()
	d.poll.Submission = sub
	return d.poll, err
}

// member decodes one field, and says whether there is such a field.
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

// requestMember decodes one field of the request that is made again and again. What its answer means is the
// poll's own rule.
func (d *pollDecoder) requestMember(key, raw []byte) bool {
	switch string(key) {
	case "url", "endpoint", "method", "headers", "payload", "body", "body_base64", "content_type", "signer":
		return d.submissionDecoder.member(key, raw)
	}
	return false
}

// onResult decodes the callback that tells the result. Its fields are named as if it stood by itself.
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
	sub, _ := r.done() // it has no payload that could be too large
	d.poll.OnResult = &sub
}

// refusedInResult says why a field of a callback is none of the one that tells a result.
var refusedInResult = map[string]string{
	"payload":         "may not be given: the result is the body",
	"body":            "may not be given: the result is the body",
	"body_base64":     "may not be given: the result is the body",
	"content_type":    "may not be given: the result is the body, which is JSON",
	"idempotency_key": "may not be given: a poll's end makes one callback, once",
	"due_at":          "may not be given: it is due when the poll ends; give delay to have it later",
}

// shortJSON takes JSON that goes into a poll's result as it stands in the request.
func (f *fields) shortJSON(name string, raw []byte, to *[]byte) {
	if len(raw) > accept.MaxPollContext {
		f.add(name, fmt.Sprintf("has more than %d KiB", accept.MaxPollContext>>10))
		return
	}
	f.verbatim(name, raw, anyJSON, to)
}
