package client

import (
	"cmp"
	"encoding/json"
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

// An Error is an error response of the server.
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

// A NoAnswerError means that no complete response arrived. The request may or may not have had an effect.
type NoAnswerError struct{ Err error }

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
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
