package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ProblemType is the media type of an error's body.
const ProblemType = "application/problem+json"

// A Problem is an error in the form of RFC 9457, with a code for programs.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Stable code for programs. The detail may change.
	Code string `json:"code"`
	// Invalid fields, at most 100.
	Errors []FieldError `json:"errors,omitempty"`
}

// A FieldError says what is wrong with one field of a request.
type FieldError struct {
	// The field as in the request, such as headers.X-Shop or policy.tiers[2].
	Field   string `json:"field"`
	Message string `json:"message"`
}

// A Code is the code of a Problem. It is a target of errors.Is for an *Error.
type Code string

// The codes of API v1. A newer server may have more.
const (
	CodeBadJSON               Code = "bad_json"
	CodeIncompleteBody        Code = "incomplete_body"
	CodeUnauthorized          Code = "unauthorized"
	CodeForbidden             Code = "forbidden"
	CodeNoRoute               Code = "no_route"
	CodeNotFound              Code = "not_found"
	CodeMethodNotAllowed      Code = "method_not_allowed"
	CodeAttempting            Code = "attempting"
	CodePayloadPurged         Code = "payload_purged"
	CodeTerminal              Code = "terminal"
	CodeNewerVersion          Code = "newer_version"
	CodeOtherHost             Code = "other_host"
	CodeExists                Code = "exists"
	CodePollLive              Code = "poll_live"
	CodeEndpointDeleted       Code = "endpoint_deleted"
	CodeIdempotencyInProgress Code = "idempotency_in_progress"
	CodeTooLarge              Code = "too_large"
	CodePayloadTooLarge       Code = "payload_too_large"
	CodeUnsupportedEncoding   Code = "unsupported_encoding"
	CodeInvalid               Code = "invalid"
	CodeIdempotencyMismatch   Code = "idempotency_mismatch"
	CodeTooManyGuesses        Code = "too_many_guesses"
	CodeRateLimited           Code = "rate_limited"
	CodeResendLimited         Code = "resend_limited"
	CodeTooManyRedrives       Code = "too_many_redrives"
	CodeAwaitingApproval      Code = "awaiting_approval"
	CodeNotAwaitingApproval   Code = "not_awaiting_approval"
	CodeSecondPerson          Code = "second_person"
	CodeOpenCallbacksQuota    Code = "open_callbacks_quota"
	CodeLanesQuota            Code = "lanes_quota"
	CodeRelayHeld             Code = "relay_held"
	CodeRelayOrigin           Code = "relay_origin"
	CodeRelayActing           Code = "relay_acting"
	CodeTooManyRelaySources   Code = "too_many_relay_sources"
	CodeUnknownKind           Code = "unknown_kind"
	CodeTooOld                Code = "too_old"
	CodeFuture                Code = "future"
	CodeInternal              Code = "internal"
	CodeUnavailable           Code = "unavailable"
	CodeBusy                  Code = "busy"
	CodeIndexRebuilding       Code = "index_rebuilding"
	CodeIndexLost             Code = "index_lost"
)

// Error returns the code.
func (c Code) Error() string { return string(c) }

// An Error is an error response of the server. It matches its Code with errors.Is. Its Errors are the invalid
// fields of the request.
type Error struct {
	Problem
	// RetryAfter is the wait that the server asks for. Zero: the response has no Retry-After.
	RetryAfter time.Duration
}

// Error returns the problem in one line.
func (e *Error) Error() string {
	var b strings.Builder
	detail := e.Detail
	// The server's detail is "invalid request: FIELDS (see errors)". Error appends the errors themselves, so
	// it drops the list of fields.
	if text, points := strings.CutSuffix(detail, " (see errors)"); points && len(e.Errors) > 0 {
		detail, _, _ = strings.Cut(text, ": ")
	}
	const unnamed = "the server returned an error"
	b.WriteString(cmp.Or(detail, e.Title, http.StatusText(e.Status), unnamed))
	fmt.Fprintf(&b, " (%d", e.Status)
	if e.Code != "" {
		b.WriteString(" " + e.Code)
	}
	b.WriteString(")")
	for i, f := range e.Errors {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		b.WriteString(separator + f.Field + " " + f.Message)
	}
	return b.String()
}

// Is reports whether the target is the error's Code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && e.Code == string(code)
}

// Ambiguous reports whether the request of a call that returned err may have had an effect. It had none if it
// could not be encoded, if there was no connection to the server, or if the server refused it with a status
// from 400 to 499, unless an earlier try is still in progress. If err is nil, Ambiguous returns false.
func Ambiguous(err error) bool {
	if err == nil {
		return false
	}
	if lost, ok := errors.AsType[*NoAnswerError](err); ok {
		return !lost.unsent
	}
	if _, ok := errors.AsType[noEffect](err); ok {
		return false
	}
	refused, ok := errors.AsType[*Error](err)
	return !ok || refused.Status < 400 || refused.Status > 499 ||
		refused.Code == string(CodeIdempotencyInProgress)
}

// noEffect is an error of a request that had no effect.
type noEffect struct{ error }

func (e noEffect) Unwrap() error { return e.error }

// A NoAnswerError means that no complete response arrived, or for a call with an idempotency key, that no
// response says whether the server has accepted it. The request may have had an effect; see Ambiguous. To
// learn it, send the same request again with the same key.
type NoAnswerError struct {
	Err error
	// IdempotencyKey is the key of Send, SendEvent or CreatePoll, also if it is random. It is empty if
	// WithHeader has set the key.
	IdempotencyKey string
	// IdempotencyKeys are the keys of SendBatch, each at the index of its callback.
	IdempotencyKeys []string
	// unsent: there was no connection.
	unsent bool
}

// Error returns the text of Err.
func (e *NoAnswerError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the connection or the context.
func (e *NoAnswerError) Unwrap() error { return e.Err }

// problem converts a response that is not a success to an Error.
func problem(a Answer) *Error {
	e := &Error{}
	if err := json.Unmarshal(a.Body, &e.Problem); err != nil || e.Status == 0 {
		e.Problem = Problem{Title: "the response is not from a dispatcher: " + http.StatusText(a.Status)}
	}
	e.Status = a.Status
	e.RetryAfter = retryAfter(a.Header.Get("Retry-After"))
	return e
}

// maxRetryAfter limits what a server can ask for, so that its seconds fit into a duration.
const maxRetryAfter = 24 * time.Hour

// retryAfter parses seconds or, as proxies send it, a date.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(max(min(seconds, int(maxRetryAfter/time.Second)), 0)) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(min(time.Until(at), maxRetryAfter), 0)
	}
	return 0
}
