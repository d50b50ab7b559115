package api

import (
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
)

// A pollDecoder decodes a poll as a caller asks for it: the fields that it has in common with a callback as a callback's, at the top and
// in its request. What it cannot decode is named in the submission's Invalid; what the values mean, and what the rule says, is the engine's
// to judge.
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
	case "ref", "topic", "labels", "lock_key", "lane", "policy", "due_at", "delay", "expires_in", "idempotency_key":
		return d.submissionDecoder.member(key, raw)
	case "request":
		d.within(name, raw, d.requestMember)
	case "until":
		d.verbatim(name, raw, anObject, &p.Until)
	case "hold_if":
		d.verbatim(name, raw, anArray, &p.HoldIf)
	case "evaluate":
		d.verbatim(name, raw, anArray, &p.Evaluate)
	case "error_budget":
		d.fromZero(name, raw, &p.ErrorBudget)
	case "context":
		d.short(name, raw, &p.Context)
	case "on_result":
		d.onResult(raw)
	default:
		return false
	}
	return true
}

// requestMember decodes one field of the request that is made again and again. What its answer means is the poll's own rule.
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
	r.object(request, "", raw, r.without(notOfAResult))
	sub, _ := r.done() // it has no payload that could be too large
	d.poll.OnResult = &sub
}

// notOfAResult says why a field of a callback is none of the one that tells a result, or nothing.
func notOfAResult(name string) string {
	switch name {
	case "payload", "body", "body_base64":
		return "may not be given: the result is the body"
	case "content_type":
		return "may not be given: the result is the body, which is JSON"
	case "idempotency_key":
		return "may not be given: a poll's end makes one callback, once"
	case "due_at":
		return "may not be given: it is due when the poll ends; give delay to have it later"
	}
	return ""
}

// short takes JSON that goes into a poll's result as it stands in the request.
func (f *fields) short(name string, raw []byte, to *[]byte) {
	if len(raw) > accept.MaxPollContext {
		f.add(name, fmt.Sprintf("has more than %d KiB", accept.MaxPollContext>>10))
		return
	}
	f.verbatim(name, raw, anyJSON, to)
}
