package store

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that a store returns, to be told apart with errors.Is. Anything else is the database's own trouble.
var (
	// ErrNotFound: no such row in this project.
	ErrNotFound = errors.New("not found")
	// ErrIdempotencyMismatch: the idempotency key was used for another request.
	ErrIdempotencyMismatch = errors.New("idempotency key was used with a different request")
	// ErrIdempotencyInProgress: a request with this idempotency key is being committed.
	ErrIdempotencyInProgress = errors.New("a request with this idempotency key is in progress")
	// ErrAttempting: the callback is being attempted, so it cannot be changed.
	ErrAttempting = errors.New("callback is being attempted")
	// ErrPayloadPurged: retention has removed the payload, so there is nothing to send.
	ErrPayloadPurged = errors.New("payload was purged")
	// ErrTerminal: the callback is terminal and this change needs one that is not.
	ErrTerminal = errors.New("callback is terminal")
	// ErrExists: there is one of that name already.
	ErrExists = errors.New("there is one already")
	// ErrEndpointDeleted: the callback's endpoint was deleted, so there is nobody to send it to.
	ErrEndpointDeleted = errors.New("the callback's endpoint was deleted")
	// ErrPollLive: another poll of the same reference and address is open.
	ErrPollLive = errors.New("there is an open poll of the same reference and address")
	// ErrNeedsAdmin: the change would send an endpoint's credentials to another host, or have another signer
	// use its secret. It needs the scope admin, or new credentials in the same request.
	ErrNeedsAdmin = errors.New("endpoint has credentials, and only an admin may send them elsewhere")
	// ErrTooManyRedrives: the project has MaxOpenRedrives that are neither done nor canceled.
	ErrTooManyRedrives = fmt.Errorf("the project has %d open redrives", MaxOpenRedrives)
	// ErrOpenQuota: the project has as many open callbacks as its quota allows, so nothing is accepted.
	ErrOpenQuota = errors.New("the project has as many open callbacks as its quota allows")
	// ErrLaneQuota: the project has as many lanes as its quota allows, so none is made.
	ErrLaneQuota = errors.New("the project has as many lanes as its quota allows")
	// ErrUnavailable: SQL cannot commit. Nothing was accepted; try again later.
	ErrUnavailable = errors.New("store is unavailable")
)

// A FieldError says what is wrong with one field of a request.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// An InvalidError is a request that cannot be meant: every field that is wrong, each with a sentence.
type InvalidError struct {
	Fields []FieldError
}

// Error joins the fields in one line.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = fmt.Sprintf("%s: %s", f.Field, f.Message)
	}
	return "invalid: " + strings.Join(parts, "; ")
}
