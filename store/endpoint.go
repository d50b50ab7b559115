package store

import "strings"

// A URLOverride says whether a callback to an endpoint may bring an address of its own.
type URLOverride string

// The values of an URLOverride. The empty one means OverrideDeny.
const (
	OverrideDeny     URLOverride = "deny"
	OverrideSameHost URLOverride = "same_host"
	OverrideAny      URLOverride = "any"
)

// An Endpoint is a receiver that a project has named: callbacks to it take its address, signer, secrets,
// headers and limits, as they are when an attempt is made, and the policy and success rule that it had when
// they were accepted. It is a lane of its own.
type Endpoint struct {
	// ID is a bare ULID.
	ID      string
	Project string
	// ExternalID is the caller's own name for it, unique within the project; empty: none.
	ExternalID  string
	Name        string
	URL         string
	URLOverride URLOverride
	// Topics are patterns of the events that it subscribes to: "payment.succeeded", "payment.*", "*". Empty:
	// none.
	Topics []string
	// Policy and Success are what callbacks are given that bring none; zero: the project's.
	Policy  PolicyChoice
	Success Success
	// Signer is a signer's name, or a JSON object with its options; empty: the project's.
	Signer string
	// Headers are sent with every attempt; those of a callback replace those of the same name.
	Headers []Header
	// Rate bounds how many attempts begin; zero: no bound. Concurrency bounds those in flight; zero: the
	// process's setting.
	Rate        Rate
	Concurrency int
	// Enabled is false while nothing is sent: callbacks are accepted and held. DisabledReason says who did
	// that: "gone" (a 410) or "requested".
	Enabled        bool
	DisabledReason string
	// DisabledAt is when it was disabled; zero: it is enabled. The store sets it.
	DisabledAt int64
	// PausedUntil holds it likewise until then; zero: not paused. Forever: until it is resumed.
	PausedUntil int64
	PauseReason string
	// PausedAt is since when it is paused, however often its end was moved since; zero: it is not. The store
	// sets it.
	PausedAt int64

	// FailingSince is when the first attempt failed since the last one that succeeded; zero: the last one
	// succeeded, or there was none. AlertedAt is when that was last told; LastSuccessAt, LastFailureAt when
	// an attempt last ended so, to within some seconds.
	FailingSince, AlertedAt, LastSuccessAt, LastFailureAt int64

	// LaneID is its lane, whose key is the endpoint's id with its prefix.
	LaneID int64
	// Version grows with every change of what is sent or how; changes of all endpoints and projects are
	// numbered together.
	Version   int64
	CreatedAt int64
	UpdatedAt int64
	// DeletedAt: it is being removed, and its open callbacks are being canceled; zero: it is not.
	DeletedAt int64
}

// Forever is a pause that ends only when somebody ends it.
const Forever int64 = 1<<53 - 1

// Sends says whether attempts may be made at now.
func (e *Endpoint) Sends(now int64) bool {
	return e.Enabled && e.PausedUntil <= now && e.DeletedAt == 0
}

// LaneKey is the key of the endpoint's lane.
func (e *Endpoint) LaneKey() string { return EndpointPrefix + e.ID }

// Subscribes says whether an event of the topic is for the endpoint: one of its patterns is the topic itself,
// "*", or a part of the topic up to a dot with "*" after it.
func (e *Endpoint) Subscribes(topic string) bool {
	for _, pattern := range e.Topics {
		prefix, open := strings.CutSuffix(pattern, "*")
		if pattern == topic || pattern == "*" ||
			open && strings.HasSuffix(prefix, ".") && strings.HasPrefix(topic, prefix) {
			return true
		}
	}
	return false
}

// TopicPatterns returns every pattern that picks the topic.
func TopicPatterns(topic string) []string {
	patterns := []string{"*", topic}
	for i := range len(topic) {
		if topic[i] == '.' {
			patterns = append(patterns, topic[:i+1]+"*")
		}
	}
	return patterns
}

// An EndpointUpsert makes the endpoint with that external id, or changes the one that there is.
type EndpointUpsert struct {
	ExternalID string
	// Change sets what is to be so. It is given the endpoint as it is, or an enabled one that has nothing yet
	// but its ids and CreatedAt. Its error becomes the answer, and that endpoint stays as it was. It may be
	// called more than once.
	Change func(e *Endpoint) error
}

// An UpsertedEndpoint is what became of an EndpointUpsert.
type UpsertedEndpoint struct {
	Endpoint Endpoint
	Created  bool
	Err      error
}

// An EndpointFilter picks endpoints of one project. Zero fields pick all that are not deleted.
type EndpointFilter struct {
	// Search is a part of id, external id, name or address.
	Search string
	// Topic picks those that subscribe to it.
	Topic string
	// Held picks those that are paused or disabled at Now; Failing, those whose last attempt failed.
	Held, Failing bool
	Now           int64
	// After continues a list: the id of the last one of the page before. Lists are newest first.
	After string
	Limit int
}

// An EndpointHealth is what attempts said of an endpoint since the last report.
type EndpointHealth struct {
	ID string
	// SucceededAt and FailedAt are when an attempt last ended so; zero: none did. FailedFirst is when the
	// first attempt failed after the last one that succeeded.
	SucceededAt, FailedAt, FailedFirst int64
}

// An EndpointEventKind says what happened to an endpoint.
type EndpointEventKind string

// The kinds of endpoint events.
const (
	EndpointFailing   EndpointEventKind = "failing"   // its attempts have failed for long
	EndpointDisabled  EndpointEventKind = "disabled"  // its receiver said that it is gone
	EndpointRecovered EndpointEventKind = "recovered" // an attempt succeeded after it was reported as failing
)

// An EndpointEvent is something that happened to an endpoint and has yet to become an operational event.
type EndpointEvent struct {
	// ID is a bare ULID. Later events of one process have higher ones.
	ID                  string
	Project, EndpointID string
	Kind                EndpointEventKind
	// At is when it happened, Since when the endpoint began to fail, in Unix milliseconds; Since is zero
	// where it was disabled.
	At, Since int64
}
