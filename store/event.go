package store

// EventPrefix stands before an event's ULID wherever a caller sees it.
const EventPrefix = "ev_"

// An EventPlan is what an event with an idempotency key becomes: it is written down before the event's callbacks are accepted, so that a
// repetition of the request, also after a crash in between, becomes the same.
type EventPlan struct {
	// ID is a bare ULID; the payload of its callbacks has it too.
	ID          string
	Project     string
	Idempotency Idempotency
	CreatedAt   int64
	// Targets are in order of their callbacks' ids. There may be none.
	Targets []EventTarget
}

// An EventTarget is an endpoint that an event goes to.
type EventTarget struct {
	EndpointID, CallbackID string
	// Accepted: there is a row of the callback.
	Accepted bool
}
