package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ProblemType is the media type of an error's body.
const ProblemType = "application/problem+json"

// A Problem is an error as RFC 9457 writes it, with a code for programs.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// For programs: it stays the same when the sentence changes.
	Code string `json:"code"`
	// What is wrong with a request that cannot be read, at most 100 findings.
	Errors []FieldError `json:"errors,omitempty"`
}

// A FieldError says what is wrong with one field of a request.
type FieldError struct {
	// The field as the request spells it, such as headers.X-Shop or policy.tiers[2].
	Field   string `json:"field"`
	Message string `json:"message"`
}

// An Error is a request that the server refused.
type Error struct {
	Problem
	// RetryAfter is how long the server asks to be left alone; zero: it does not say.
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
	for _, text := range []string{detail, e.Title, http.StatusText(e.Status), "the server refused"} {
		if text != "" {
			b.WriteString(text)
			break
		}
	}
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

// A NoAnswerError says that there was no whole answer: whether the request had an effect is unknown.
type NoAnswerError struct{ Err error }

// Error returns why there was none.
func (e *NoAnswerError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the connection or the context.
func (e *NoAnswerError) Unwrap() error { return e.Err }

// problem returns the error of an answer that is no success.
func problem(a Answer) *Error {
	e := &Error{}
	if err := json.Unmarshal(a.Body, &e.Problem); err != nil || e.Status == 0 {
		e.Problem = Problem{Title: "the answer is not from a dispatcher: " + http.StatusText(a.Status)}
	}
	e.Status = a.Status
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
