// Package httperr turns an error into an HTTP problem. Its table is the only one from an error to a status, a
// code and a sentence; the API and the UI both use it.
//
// The text of an error that is not in the table never leaves the process: such an error becomes a 500 without
// details, or with the request id. The package does not log. The caller that responds with a 500 logs the
// error.
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

// Errors that arise in the HTTP layer. The table also has the errors of package store and package schedule.
var (
	// ErrUnauthorized: the request has no API key, or an invalid one.
	ErrUnauthorized = errors.New("no valid API key; send the header Authorization: Bearer KEY")
	// ErrGuesses: too many invalid keys came before, so the response does not say whether this key is valid.
	// Wrap it in Later.
	ErrGuesses = errors.New("too many invalid keys from this address, or with the same beginning; " +
		"wait as long as Retry-After says")
	// ErrRate: the key makes more requests per second than the settings allow. Wrap it in Later.
	ErrRate = errors.New("too many requests per second with this key; wait as long as Retry-After says")
	// ErrResends: a merchant sends callbacks again more often than the limits allow. Wrap it in Later.
	ErrResends = errors.New("a callback can be sent again once a minute, and thirty callbacks of an " +
		"endpoint at once; wait as long as Retry-After says")
	// ErrForbidden: the key is valid and has no permission for this call. Wrap it with what the call needs;
	// the whole text is visible to the caller.
	ErrForbidden = errors.New("permission denied")
	// ErrBadJSON: the body is not JSON. Wrap it with the place and the reason; the whole text is visible to
	// the caller.
	ErrBadJSON = errors.New("the body is not JSON")
	// ErrIncomplete: the body ended, or stopped arriving, before it was complete.
	ErrIncomplete = errors.New("the request body is incomplete; send the request again")
	// ErrTooLarge: the request's body exceeds the limit. Wrap it with the limit; the whole text is visible to
	// the caller.
	ErrTooLarge = errors.New("the request body is too large")
	// ErrPayloadTooLarge: the decoded payload exceeds the limit.
	ErrPayloadTooLarge = errors.New("the payload is larger than 256 KiB after decoding; shorten it")
	// ErrEncoding: the request has a Content-Encoding.
	ErrEncoding = errors.New("Content-Encoding is not supported; send the body uncompressed")
	// ErrBusy: large bodies that are being read use up the memory that is reserved for them.
	ErrBusy = errors.New("the server is busy with other large requests; try again later")
	// ErrUnknownKind: a row of an outbox table has a kind that does not exist.
	ErrUnknownKind = errors.New("the kind must be callback, event or poll; cancel and resolve are no " +
		"kinds, because a repetition could hit a newer callback: use supersede and version, or call the API")
	// ErrTooOld, ErrFuture: a row of an outbox table is so old that it may have been accepted before, or was
	// inserted in the future.
	ErrTooOld = errors.New("the row is older than 6 days, so it may have been accepted before; " +
		"retry it only if it was not")
	ErrFuture = errors.New("the row was inserted more than a day in the future by the clock of its " +
		"database; correct that clock, then retry the row")
	// ErrNoRoute: no route has this path.
	ErrNoRoute = errors.New("this path does not exist; /docs lists all calls")
	// ErrMethod: the path exists with other methods. The Allow header names them.
	ErrMethod = errors.New("method not allowed; see the Allow header")
)

// A Problem is an error in the form of RFC 9457, with the headers of its response.
type Problem struct {
	client.Problem
	// RetryAfter is the Retry-After header in seconds. Zero: the header is not sent.
	RetryAfter int
}

// A row of the table. If sentence is empty, the detail is the text of err, without the texts that wrap it.
type row struct {
	err        error
	status     int
	code       string
	retryAfter int
	sentence   string
}

// rows returns the table. The first matching row wins: an error that wraps two rows gets the earlier one.
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
		{ErrResends, tooMany, "resend_limited", 1, ""},
		{ErrForbidden, http.StatusForbidden, "forbidden", 0, ""},
		{
			store.ErrNeedsAdmin, http.StatusForbidden, "forbidden", 0,
			"permission denied: the change would send the endpoint's credentials to another host, " +
				"or use its secret with another signature; use a key with the scope admin, " +
				"or send new credentials (headers, secret) in the same request",
		},
		{ErrBadJSON, http.StatusBadRequest, "bad_json", 0, ""},
		{ErrIncomplete, http.StatusBadRequest, "incomplete_body", 0, ""},
		{ErrTooLarge, tooLarge, "too_large", 0, ""},
		{ErrPayloadTooLarge, tooLarge, "payload_too_large", 0, ""},
		{ErrEncoding, http.StatusUnsupportedMediaType, "unsupported_encoding", 0, ""},
		{ErrNoRoute, http.StatusNotFound, "no_route", 0, ""},
		{ErrMethod, http.StatusMethodNotAllowed, "method_not_allowed", 0, ""},
		{store.ErrNotFound, http.StatusNotFound, "not_found", 0, "not found; check the id and the project"},
		{
			store.ErrAttempting, conflict, "attempting", 0,
			"an attempt of the callback is in progress; try again when it has ended",
		},
		{
			store.ErrPayloadPurged, conflict, "payload_purged", 0,
			"retention has deleted the payload of the callback; create a new callback",
		},
		{
			store.ErrNewerVersion, conflict, "newer_version", 0,
			"a newer version of this callback exists; retry that one",
		},
		// A redrive can be terminal too, so the sentence does not name the callback.
		{
			store.ErrTerminal, conflict, "terminal", 0,
			"already finished, so it cannot be changed; retry a callback to send it again",
		},
		{
			store.ErrAwaitingApproval, conflict, "awaiting_approval", 0,
			"the redrive awaits an approval; approve it with another key, or cancel it",
		},
		{
			store.ErrNotAwaiting, conflict, "not_awaiting_approval", 0,
			"the redrive does not await an approval, or is still collecting its callbacks",
		},
		{
			store.ErrSecondPerson, http.StatusForbidden, "second_person", 0,
			"the key or person that asked for the redrive cannot approve it; use another one",
		},
		{store.ErrExists, conflict, "exists", 0, "the id or name is already in use; choose another one"},
		{
			store.ErrPollLive, conflict, "poll_live", 0,
			"another poll with the same ref and url is open; wait until it ends, or cancel it",
		},
		{
			store.ErrEndpointDeleted, conflict, "endpoint_deleted", 0,
			"the endpoint of the callback was deleted; create a new callback",
		},
		{
			store.ErrOtherHost, conflict, "other_host", 0,
			"the callback goes to another host than the endpoint's present one, so a key of the endpoint " +
				"can neither send it nor read its payload",
		},
		{
			store.ErrIdempotencyMismatch, http.StatusUnprocessableEntity, "idempotency_mismatch", 0,
			"the idempotency key was used with a different request; use another key",
		},
		{
			store.ErrIdempotencyInProgress, conflict, "idempotency_in_progress", 1,
			"a request with this idempotency key is in progress; try again later",
		},
		{
			store.ErrTooManyRedrives, tooMany, "too_many_redrives", 60,
			fmt.Sprintf("the project has %d open redrives, which is the limit; "+
				"wait until one ends, or cancel one", store.MaxOpenRedrives),
		},
		{
			store.ErrOpenQuota, tooMany, "open_callbacks_quota", 10,
			"the project has reached its quota of open callbacks; " +
				"try again when some have ended, or raise the quota",
		},
		{
			store.ErrLaneQuota, tooMany, "lanes_quota", 3600,
			"the project has reached its quota of lanes; use an existing lane, or raise the quota",
		},
		{
			store.ErrRelayHeld, conflict, "relay_held", 3,
			"a relay reads this source; stop it, or wait until its lease ends; see dispatcher relay status " +
				"NAME, which needs scope read",
		},
		{
			store.ErrRelayOrigin, conflict, "relay_origin", 0,
			"this source stands for another table; use another name, or forget the source first; see " +
				"dispatcher relay status NAME, which needs scope read",
		},
		{
			store.ErrRelayActing, conflict, "relay_acting", 3,
			"an act on this source is not finished; wait until it is, or cancel it",
		},
		{
			store.ErrTooManySources, tooMany, "too_many_relay_sources", 3600,
			fmt.Sprintf("the project has %d relay sources, which is the limit; forget those that are not "+
				"read any more", store.MaxRelaySources),
		},
		{ErrUnknownKind, http.StatusUnprocessableEntity, "unknown_kind", 0, ""},
		{ErrTooOld, http.StatusUnprocessableEntity, "too_old", 0, ""},
		{ErrFuture, http.StatusUnprocessableEntity, "future", 0, ""},
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
		{
			context.DeadlineExceeded, unavailable, "unavailable", 5,
			"the request took too long; try again later",
		},
		{context.Canceled, unavailable, "unavailable", 5, "the request was canceled; try again later"},
	}
}

// verbatim lists the errors whose whole text becomes the detail, with the texts that wrap them. Only this
// process makes these errors, and nothing in their chains is secret.
var verbatim = []error{ErrForbidden, ErrBadJSON, ErrTooLarge}

// From returns the problem of err, which must not be nil. For an error that is not in the table it returns a
// 500 that reveals nothing of the error.
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
		if slices.Contains(verbatim, r.err) {
			detail = err.Error()
		}
		if named, ok := errors.AsType[*store.RelayNamedError](err); ok {
			detail = fmt.Sprintf("%v; stop that relay and run dispatcher relay forget %s", named, named.Name)
		}
		p := problem(r.status, r.code, detail)
		p.RetryAfter = r.retryAfter
		var later *laterError
		if errors.As(err, &later) {
			p.RetryAfter = Seconds(later.wait)
		}
		return p
	}
	return problem(http.StatusInternalServerError, "internal", "internal error; see the server's log")
}

// Later wraps err with the time that the caller must wait before it tries again.
func Later(err error, wait time.Duration) error { return &laterError{err, wait} }

type laterError struct {
	error
	wait time.Duration
}

func (e *laterError) Unwrap() error { return e.error }

// Seconds returns a wait in the form of Retry-After: whole seconds, rounded up, at least 1.
func Seconds(wait time.Duration) int { return max(int((wait+time.Second-1)/time.Second), 1) }

// Logged returns the problem of an error that was logged under the request id.
func Logged(requestID string) Problem {
	return problem(http.StatusInternalServerError, "internal",
		fmt.Sprintf("internal error; the server's log has the cause under request id %s", requestID))
}

func problem(status int, code, detail string) Problem {
	return Problem{Problem: client.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Code: code,
	}}
}

// fromInvalid names up to five of the invalid fields in the detail. The field errors has all of them.
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
		"invalid request: "+strings.Join(names, ", ")+" (see errors)")
	for _, f := range e.Fields {
		p.Errors = append(p.Errors, client.FieldError(f))
	}
	return p
}

// Write sends the problem as the response. A 413 closes the connection: the rest of its body is unread, and
// must not be taken for the next request.
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
