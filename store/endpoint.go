package store

import "strings"

// A URLOverride is the rule for callbacks to an endpoint that have their own URL.
type URLOverride string

// The values of a URLOverride. The empty value means OverrideDeny.
const (
	OverrideDeny     URLOverride = "deny"
	OverrideSameHost URLOverride = "same_host"
	OverrideAny      URLOverride = "any"
)

// An Endpoint is a named receiver of a project. An attempt uses the URL, signer, secrets, headers and limits
// that the endpoint has at that time. A callback gets the policy and success rule that the endpoint has when
// the callback is accepted. Each endpoint has its own lane.
type Endpoint struct {
	// ID is a bare ULID.
	ID      string
	Project string
	// ExternalID is the caller's name for the endpoint, unique within the project. Empty: none.
	ExternalID  string
	Name        string
	URL         string
	URLOverride URLOverride
	// Topics are patterns of the events that the endpoint subscribes to: "payment.succeeded", "payment.*",
	// "*". Empty: no events.
	Topics []string
	// Policy and Success are the defaults of its callbacks. Zero: the project's.
	Policy  PolicyChoice
	Success Success
	// Signer is a signer's name, or a JSON object with its options. Empty: the project's.
	Signer string
	// Headers are sent with every attempt. A callback's header replaces the one of the same name.
	Headers []Header
	// Rate bounds the starts of attempts. Zero: no bound. Concurrency bounds the attempts in flight. Zero:
	// the setting of the process.
	Rate        Rate
	Concurrency int
	// Enabled is false while no attempts are made. Callbacks are accepted and wait. DisabledReason is "gone"
	// (a receiver answered 410) or "requested".
	Enabled        bool
	DisabledReason string
	// DisabledAt is when the endpoint was disabled. Zero: enabled. The store sets it.
	DisabledAt int64
	// PausedUntil is the end of the pause. No attempts start before it. Zero: not paused. Forever: until a
	// resume.
	PausedUntil int64
	PauseReason string
	// PausedAt is the start of the pause. A change of PausedUntil leaves it. Zero: not paused. The store sets
	// it.
	PausedAt int64

	// FailingSince is the end of the first attempt that failed after the last success. Zero: the last attempt
	// succeeded, or there was none. AlertedAt is the last alert about that. LastSuccessAt and LastFailureAt
	// are the ends of the last attempts with these outcomes, exact to some seconds.
	FailingSince, AlertedAt, LastSuccessAt, LastFailureAt int64
	// Succeeded and Failed count the attempts since the endpoint exists, as far as they were reported.
	Succeeded, Failed int64

	// LaneID is the endpoint's lane. The lane's key is the endpoint's id with its prefix.
	LaneID int64
	// Version grows with each change of the endpoint that affects attempts. One sequence numbers the changes
	// of all endpoints and projects.
	Version int64
	// LinkVersion is in every link to the endpoint's page for its merchant. A change of it revokes the links.
	LinkVersion int64
	CreatedAt   int64
	UpdatedAt   int64
	// DeletedAt is the time of the deletion. The row stays while its open callbacks are being canceled. Zero:
	// not deleted.
	DeletedAt int64
}

// SinkPrefix begins the external id of an endpoint that alerts send their messages to. The program creates
// and deletes such endpoints.
const SinkPrefix = "alert-sink:"

// IsSink reports whether alerts send their messages to the endpoint.
func (e *Endpoint) IsSink() bool { return strings.HasPrefix(e.ExternalID, SinkPrefix) }

// Forever is the end of a pause that lasts until a resume.
const Forever int64 = 1<<53 - 1

// Sends reports whether attempts may start at now.
func (e *Endpoint) Sends(now int64) bool {
	return e.Enabled && e.PausedUntil <= now && e.DeletedAt == 0
}

// LaneKey returns the key of the endpoint's lane.
func (e *Endpoint) LaneKey() string { return EndpointPrefix + e.ID }

// Subscribes reports whether one of the endpoint's patterns matches the topic. A pattern is a whole topic,
// "*", or a prefix of a topic up to a dot and "*".
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

// TopicPatterns returns all patterns that match the topic.
func TopicPatterns(topic string) []string {
	patterns := []string{"*", topic}
	for i := range len(topic) {
		if topic[i] == '.' {
			patterns = append(patterns, topic[:i+1]+"*")
		}
	}
	return patterns
}

// An EndpointUpsert creates the endpoint with this external id, or changes the existing one.
type EndpointUpsert struct {
	ExternalID string
	// Change sets the fields. It gets the existing endpoint, or a new enabled one with only its ids and
	// CreatedAt set. If it returns an error, the endpoint stays as it was, and UpsertedEndpoint.Err has the
	// error. The store may call it more than
	// once, because it may repeat the transaction.
	Change func(e *Endpoint) error
}

// An UpsertedEndpoint is the result of one EndpointUpsert.
type UpsertedEndpoint struct {
	Endpoint Endpoint
	Created  bool
	Err      error
}

// An EndpointFilter picks endpoints of one project. Zero fields pick all that are not deleted.
type EndpointFilter struct {
	// Search is a part of the id, the external id, the name or the URL.
	Search string
	// Topic picks the endpoints that subscribe to this topic.
	Topic string
	// NotSending picks the endpoints that are paused or disabled at Now. Failing picks those whose last
	// attempt failed.
	NotSending, Failing bool
	Now                 int64
	// NoSinks leaves out the endpoints of alerts.
	NoSinks bool
	// After continues a list after the endpoint with this id, the last of the previous page. Lists are newest
	// first.
	After string
	Limit int
}

// An EndpointHealth has the times of an endpoint's last outcomes since the last report.
type EndpointHealth struct {
	ID string
	// SucceededAt and FailedAt are the ends of the last attempts with these outcomes. Zero: none. FailedFirst
	// is the end of the first attempt that failed after the last success.
	SucceededAt, FailedAt, FailedFirst int64
	// Succeeded and Failed are the numbers of attempts since the last report.
	Succeeded, Failed int64
}

// An EndpointEventKind is the kind of an endpoint event.
type EndpointEventKind string

// The kinds of endpoint events.
const (
	EndpointFailing   EndpointEventKind = "failing"   // attempts have failed for a long time
	EndpointDisabled  EndpointEventKind = "disabled"  // the receiver answered 410
	EndpointRecovered EndpointEventKind = "recovered" // an attempt succeeded after the event EndpointFailing
)

// An EndpointEvent is a change of an endpoint's health that is not yet published as an operational event.
type EndpointEvent struct {
	// ID is a bare ULID. Later events of one process have higher ids.
	ID                  string
	Project, EndpointID string
	Kind                EndpointEventKind
	// At is the time of the change. Since is when the endpoint began to fail, zero for EndpointDisabled. Both
	// are in Unix milliseconds.
	At, Since int64
}
