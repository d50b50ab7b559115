// Package httperr says how an error looks over HTTP: it is the only table from error to status, code and
// sentence, and both faces of the server answer from it.
//
// It guarantees that nothing of an error that is not in the table leaves the process: such an error is a 500
// whose detail names the request id and nothing else. It does not log; whoever answers with a 500 does.
package httperr

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Errors that only an HTTP face knows. Those of the store are in the same table.
var (
	// ErrUnauthorized: no key, or a wrong one.
	ErrUnauthorized = errors.New("the request needs a valid key: Authorization: Bearer KEY")
	// ErrGuesses: too many wrong keys came before, so that it is not said whether this one is wrong. Wrap it
	// in Later.
	ErrGuesses = errors.New("too many wrong keys from this address, or around this key; try again later")
	// ErrRate: the key makes more requests a second than it may. Wrap it in Later.
	ErrRate = errors.New("the key makes more requests a second than the settings allow; try again later")
	// ErrForbidden: the key is valid and may not do this. Wrap it with what it would need; the sentence is
	// shown.
	ErrForbidden = errors.New("the key may not do this")
	// ErrBadJSON: the body is not JSON at all. Wrap it with what is wrong; the sentence is shown.
	ErrBadJSON = errors.New("the body is not JSON")
	// ErrIncomplete: the body ended, or stopped coming, before it was whole.
	ErrIncomplete = errors.New("the body ended before it was whole")
	// ErrTooLarge: the request's body is over the limit. Wrap it with the limit; the sentence is shown.
	ErrTooLarge = errors.New("the request is too large")
	// ErrPayloadTooLarge: the decoded payload is over the limit.
	ErrPayloadTooLarge = errors.New("the decoded payload is larger than 256 KiB")
	// ErrEncoding: the request has a Content-Encoding.
	ErrEncoding = errors.New("the request's body must be sent without Content-Encoding")
	// ErrBusy: as many large bodies are being read as there is room for.
	ErrBusy = errors.New("as many large requests are being read as there is room for; send it again later")
	// ErrNoRoute: there is nothing at this path.
	ErrNoRoute = errors.New("there is nothing at this path")
	// ErrMethod: the path exists, with other methods (they are in the Allow header).
	ErrMethod = errors.New("this path does not know this method")
)

// A Problem is an error as RFC 9457 writes it, and what the answer's headers say of it.
type Problem struct {
	client.Problem
	// RetryAfter is sent as Retry-After, in seconds; zero: not sent.
	RetryAfter int
}

// A row of the table. Where sentence is empty the text of err is shown, without what it was wrapped with.
type row struct {
	err        error
	status     int
	code       string
	retryAfter int
	sentence   string
}

// rows returns the table. The first row that matches counts.
func rows() []row {
	const (
		conflict    = http.StatusConflict
		unavailable = http.StatusServiceUnavailable
		tooMany     = http.StatusTooManyRequests
		tooLarge    = http.StatusRequestEntityTooLarge
	)
	return []row{
		{ErrUnauthorized, http.StatusUnauthorized, "unauthorized", 0, ""},
		{ErrGuesses, tooMany, "too_many_guesses", 1, ""},
		{ErrRate, tooMany, "rate_limited", 1, ""},
		{ErrForbidden, http.StatusForbidden, "forbidden", 0, ""},
		{
			store.ErrNeedsAdmin, http.StatusForbidden, "forbidden", 0,
			"the endpoint has credentials: another host, or another signer for its secret, " +
				"needs a key of scope admin, or new credentials (headers, secret) in the same request",
		},
		{ErrBadJSON, http.StatusBadRequest, "bad_json", 0, ""},
		{ErrIncomplete, http.StatusBadRequest, "incomplete_body", 0, ""},
		{ErrTooLarge, tooLarge, "too_large", 0, ""},
		{ErrPayloadTooLarge, tooLarge, "payload_too_large", 0, ""},
		{ErrEncoding, http.StatusUnsupportedMediaType, "unsupported_encoding", 0, ""},
		{ErrNoRoute, http.StatusNotFound, "no_route", 0, ""},
		{ErrMethod, http.StatusMethodNotAllowed, "method_not_allowed", 0, ""},
		{store.ErrNotFound, http.StatusNotFound, "not_found", 0, "there is no such thing in this project"},
		{
			store.ErrAttempting, conflict, "attempting", 0,
			"the callback is being attempted at this moment; try again when the attempt has ended",
		},
		{
			store.ErrPayloadPurged, conflict, "payload_purged", 0,
			"retention has removed the payload, so there is nothing to send",
		},
		{store.ErrTerminal, conflict, "terminal", 0, "it is terminal, and this needs one that is not"},
		{store.ErrExists, conflict, "exists", 0, "there is one already of that id or name"},
		{
			store.ErrPollLive, conflict, "poll_live", 0,
			"another poll of the same reference and address is open",
		},
		{
			store.ErrEndpointDeleted, conflict, "endpoint_deleted", 0,
			"the callback's endpoint was deleted, so there is nobody to send it to",
		},
		{
			store.ErrIdempotencyMismatch, http.StatusUnprocessableEntity, "idempotency_mismatch", 0,
			"the idempotency key was used with a different request",
		},
		{
			store.ErrIdempotencyInProgress, conflict, "idempotency_in_progress", 1,
			"a request with this idempotency key is in progress",
		},
		{
			store.ErrTooManyRedrives, tooMany, "too_many_redrives", 60,
			fmt.Sprintf("at most %d redrives of a project may be open; wait for one to end, or cancel one",
				store.MaxOpenRedrives),
		},
		{
			store.ErrOpenQuota, tooMany, "open_callbacks_quota", 10,
			"the project has as many open callbacks as its quota allows; " +
				"try again when some have ended, or have the quota raised",
		},
		{
			store.ErrLaneQuota, tooMany, "lanes_quota", 3600,
			"the project has as many lanes as its quota allows; use one that exists, or have the quota raised",
		},
		{store.ErrUnavailable, unavailable, "unavailable", 5, "the database cannot commit; try again later"},
		{ErrBusy, unavailable, "busy", 1, ""},
		{
			schedule.ErrRebuilding, unavailable, "index_rebuilding", 5,
			"the index is being rebuilt; try again later",
		},
		{
			schedule.ErrLost, unavailable, "index_lost", 5,
			"the index is lost and will be rebuilt; try again later",
		},
		{context.DeadlineExceeded, unavailable, "unavailable", 5, "it took too long; try again later"},
		{context.Canceled, unavailable, "unavailable", 5, "the request was given up; try again later"},
	}
}

// shown are errors whose own text is shown with all that they were wrapped with: they are made in this
// process only, and their whole chain is known to be harmless.
var shown = []error{ErrForbidden, ErrBadJSON, ErrTooLarge}

// From returns the problem of err, which must not be nil. An error that is not in the table is a 500 that
// says nothing of it.
func From(err error) Problem {
	var invalid *store.InvalidError
	if errors.As(err, &invalid) {
		return fromInvalid(invalid)
	}
	for _, r := range rows() {
		if !errors.Is(err, r.err) {
			continue
		}
		detail := cmp.Or(r.sentence, r.err.Error())
		if slices.Contains(shown, r.err) {
			detail = err.Error()
		}
		p := problem(r.status, r.code, detail)
		p.RetryAfter = r.retryAfter
		var later *laterError
		if errors.As(err, &later) {
			p.RetryAfter = Seconds(later.wait)
		}
		return p
	}
	return problem(http.StatusInternalServerError, "internal", "an internal error; nothing more is said here")
}

// Later returns err with how long the caller is to wait before it tries again; it has the whole chain of err.
func Later(err error, wait time.Duration) error { return &laterError{err, wait} }

type laterError struct {
	error
	wait time.Duration
}

func (e *laterError) Unwrap() error { return e.error }

// Seconds returns a wait as Retry-After has it: in whole seconds, rounded up, at least 1.
func Seconds(wait time.Duration) int { return max(int((wait+time.Second-1)/time.Second), 1) }

// Logged returns the problem of an error that was logged under the request id.
func Logged(requestID string) Problem {
	return problem(http.StatusInternalServerError, "internal",
		fmt.Sprintf("an internal error; the log has it under request id %s", requestID))
}

func problem(status int, code, detail string) Problem {
	return Problem{Problem: client.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Code: code,
	}}
}

// fromInvalid names up to five of the wrong fields in the detail; all of them are in errors.
func fromInvalid(e *store.InvalidError) Problem {
	names := make([]string, 0, 5)
	for _, f := range e.Fields {
		if len(names) == cap(names) {
			names = append(names, "…")
			break
		}
		names = append(names, f.Field)
	}
	p := problem(http.StatusUnprocessableEntity, "invalid",
		"the request cannot be meant: see errors ("+strings.Join(names, ", ")+")")
	for _, f := range e.Fields {
		p.Errors = append(p.Errors, client.FieldError(f))
	}
	return p
}

// Write answers with the problem. The answer to a body that was not read to its end closes the connection,
// because what is still coming must not be taken for the next request.
func Write(w http.ResponseWriter, p Problem) error {
	body, err := json.Marshal(p.Problem)
	if err != nil {
		return fmt.Errorf("encode problem %s: %w", p.Code, err)
	}
	h := w.Header()
	h.Set("Content-Type", client.ProblemType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusRequestEntityTooLarge:
		h.Set("Connection", "close")
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	w.WriteHeader(p.Status)
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("write problem %s: %w", p.Code, err)
	}
	return nil
}
