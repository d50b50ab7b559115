package store

import (
	"errors"
	"fmt"
	"strings"
)

// The errors that a store returns. Callers compare them with errors.Is. Any other error comes from the
// database.
var (
	// ErrNotFound: the project has no such row.
	ErrNotFound = errors.New("not found")
	// ErrIdempotencyMismatch: the idempotency key was used for a different request.
	ErrIdempotencyMismatch = errors.New("idempotency key was used with a different request")
	// ErrIdempotencyInProgress: another transaction is committing a request with this idempotency key.
	ErrIdempotencyInProgress = errors.New("a request with this idempotency key is in progress")
	// ErrAttempting: an attempt of the callback is in flight, so the callback cannot be changed.
	ErrAttempting = errors.New("callback is being attempted")
	// ErrPayloadPurged: retention has removed the payload, so the callback cannot be sent.
	ErrPayloadPurged = errors.New("payload was purged")
	// ErrTerminal: the change needs an open callback, and the callback is terminal.
	ErrTerminal = errors.New("callback is terminal")
	// ErrNewerVersion: a newer version of the callback was accepted, so this one is not sent again.
	ErrNewerVersion = errors.New("a newer version of this callback exists")
	// ErrExists: the name or external id is in use.
	ErrExists = errors.New("already exists")
	// ErrEndpointDeleted: the callback's endpoint was deleted, so the callback has no receiver.
	ErrEndpointDeleted = errors.New("the callback's endpoint was deleted")
	// ErrOtherHost: the callback goes to another host than its endpoint's present one, so the endpoint's
	// merchant can neither send it nor read its payload.
	ErrOtherHost = errors.New("the callback goes to another host than its endpoint's present one")
	// ErrPollLive: another poll of the same ref and URL is open.
	ErrPollLive = errors.New("another poll of the same reference and URL is open")
	// ErrNeedsAdmin: the change would send an endpoint's credentials to another host, or let another signer
	// use its secret. It needs the scope admin, or new credentials in the same request.
	ErrNeedsAdmin = errors.New("sending an endpoint's credentials elsewhere requires the scope admin")
	// ErrTooManyRedrives: the project already has MaxOpenRedrives open redrives.
	ErrTooManyRedrives = fmt.Errorf("the project has %d open redrives, which is the limit", MaxOpenRedrives)
	// ErrAwaitingApproval: the redrive must be approved or canceled first. ErrNotAwaiting: it does not await
	// an approval. ErrSecondPerson: the approval must come from somebody else than the redrive.
	ErrAwaitingApproval = errors.New("the redrive awaits an approval")
	ErrNotAwaiting      = errors.New("the redrive does not await an approval")
	ErrSecondPerson     = errors.New("the approval must come from another key or person")
	// ErrOpenQuota: the project has reached its quota of open callbacks, so nothing is accepted.
	ErrOpenQuota = errors.New("the project has reached its quota of open callbacks")
	// ErrLaneQuota: the project has reached its quota of lanes, so no lane is created.
	ErrLaneQuota = errors.New("the project has reached its quota of lanes")
	// ErrUnavailable: SQL cannot commit. Nothing was accepted. The caller may retry later.
	ErrUnavailable = errors.New("store is unavailable")
)

// A FieldError describes what is wrong with one field of a request. Message continues the name of the field,
// such as "must be 0 to 1".
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// An InvalidError is an invalid request. Fields has every field that is wrong.
type InvalidError struct {
	Fields []FieldError
}

// Error returns all fields in one line.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = fmt.Sprintf("%s: %s", f.Field, f.Message)
	}
	return "invalid: " + strings.Join(parts, "; ")
}
