package store

import "time"

// An AlertKind is what an alert watches.
type AlertKind string

// The kinds of alerts.
const (
	// AlertOldestDue: a callback has been due for longer than Above, and no person holds it back.
	AlertOldestDue AlertKind = "oldest_due"
	// AlertDeadRate: at least Above callbacks became dead within a minute.
	AlertDeadRate AlertKind = "dead_rate"
	// AlertEndpointSuccess: less than Below percent of an endpoint's attempts succeeded within Window.
	AlertEndpointSuccess AlertKind = "endpoint_success"
	// AlertBreakerOpen: the circuit breaker of a lane has been open for longer than Above.
	AlertBreakerOpen AlertKind = "breaker_open"
	// AlertPollUnresolved: more than Above polls ended without a final result within Window.
	AlertPollUnresolved AlertKind = "poll_unresolved"
	// AlertScheduleLate: a schedule is late by more than Above, or its last run created no callback.
	AlertScheduleLate AlertKind = "schedule_late"
	// AlertReconcile: a reconciliation of the last days does not balance, references or the list are missing,
	// or the daily run is late.
	AlertReconcile AlertKind = "reconcile"
	// AlertRelayLag: an outbox source lags by more than Above, also because no relay holds it.
	AlertRelayLag AlertKind = "relay_lag"
	// AlertRelayRefused: an outbox source has more than Above refused rows.
	AlertRelayRefused AlertKind = "relay_refused"
)

// AlertKinds lists every kind.
func AlertKinds() []AlertKind {
	return []AlertKind{AlertOldestDue, AlertDeadRate, AlertEndpointSuccess, AlertBreakerOpen,
		AlertPollUnresolved, AlertScheduleLate, AlertReconcile, AlertRelayLag, AlertRelayRefused}
}

// An AlertWhen is the condition of an alert. Which fields a kind has is decided by package alert.
type AlertWhen struct {
	Kind AlertKind `json:"kind"`
	// Above is milliseconds (oldest_due, breaker_open, schedule_late, relay_lag) or a number.
	Above int64 `json:"above,omitempty"`
	// Below is a percentage.
	Below float64 `json:"below,omitempty"`
	// For is how long the condition holds before the alert fires.
	For time.Duration `json:"for,omitempty"`
	// Window is the time that is counted, and MinAttempts the fewest attempts in it for a verdict.
	Window      time.Duration `json:"window,omitempty"`
	MinAttempts int64         `json:"min_attempts,omitempty"`
	// Endpoint and Schedule (bare ULIDs) and Lane (a key) restrict the alert to one. Empty: all.
	Endpoint string `json:"endpoint,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	Lane     string `json:"lane,omitempty"`
}

// An Alert is a rule of a project: it watches a condition and sends messages to a sink.
type Alert struct {
	// ID is a bare ULID.
	ID      string
	Project string
	// Name is unique within the project.
	Name string
	When AlertWhen
	// Sink is the sealed JSON of where messages go, and SinkMasked the same for people. SinkID is a hash of
	// its type and credentials: alerts with the same one share an endpoint.
	Sink       string
	SinkMasked JSONText
	SinkID     string
	// SilenceUntil is the end of the silence. Zero: none.
	SilenceUntil int64
	// DigestAt is the time of the daily summary, such as "09:00", in the IANA zone DigestZone (empty: UTC).
	// Empty: no summary. NextDigest is its next time, zero while the alert is disabled.
	DigestAt, DigestZone string
	NextDigest           int64
	Enabled              bool
	// SentAt is when the last message was accepted, SentID its callback, a bare ULID. Zero: none.
	SentAt int64
	SentID string
	// SentState is the state of that callback, empty if it is gone. Only reads of the store set it.
	SentState State
	// LastError is why the last evaluation could not send a message. Empty: no error.
	LastError string
	// Version grows with each change and each step. A step with an older Version has no effect.
	Version   int64
	CreatedAt int64
	UpdatedAt int64
}

// SealedKey returns the id of the master key that sealed the sink.
func (a *Alert) SealedKey() string {
	keyID, _, _ := CutSealed(a.Sink)
	return keyID
}

// Silenced reports whether the alert sends no messages at now.
func (a *Alert) Silenced(now int64) bool { return a.SilenceUntil > now }

const (
	// MaxAlerts bounds the alerts of a project.
	MaxAlerts = 100
	// KeptFirings is the number of past firings that the store keeps of each alert.
	KeptFirings = 100
)

// An AlertFiring is one instance of an alert, such as an endpoint that fails: from the first breach of the
// condition to its end.
type AlertFiring struct {
	// ID is a bare ULID.
	ID      string
	Project string
	AlertID string
	// Instance identifies what the condition was found on, such as an endpoint's id; empty for the whole
	// project. Name is its name for people.
	Instance, Name string
	// Value is what was measured when the condition was first broken, and again when the alert fired.
	Value float64
	// PendingSince is when the condition was first broken, FiredAt when the alert fired, ClearSince when the
	// condition was met again, ResolvedAt when the firing ended. Zero: not yet.
	PendingSince, FiredAt, ClearSince, ResolvedAt int64
	// MessageID is the callback of the message that reported the firing, a bare ULID. Empty: none did.
	MessageID string
	// Lost: that message is dead. Only LiveFirings of the store sets it.
	Lost bool
	// Live: the evaluation still needs the row. The others are the history.
	Live bool
}

// An AlertStep is the result of one evaluation of an alert. It takes effect only if the alert still has the
// Version that the evaluation read. So two processes never send a message twice.
type AlertStep struct {
	Alert Alert
	Now   int64
	// Put are new firings and changed ones. Drop are the ids of pending ones that did not fire.
	Put  []AlertFiring
	Drop []string
	// NextDigest and LastError replace those of the alert.
	NextDigest int64
	LastError  string
	// Draft is the message, a callback to accept in the same transaction. Nil: none. Summary: it is a daily
	// summary, and does not count as the last message.
	Draft   *Draft
	Summary bool
}

// An AlertStepResult is the result of an AlertStep.
type AlertStepResult struct {
	// Won: the step took effect. Otherwise the alert was changed, or another process was faster.
	Won      bool
	Accepted Accepted
}

// An AlertFilter picks alerts of one project. Zero fields pick all.
type AlertFilter struct {
	// Search is a part of the name.
	Search string
	// Enabled picks enabled or disabled alerts. Nil: both.
	Enabled *bool
	// After continues a list after the alert with this id, the last of the previous page. Lists are newest
	// first.
	After string
	Limit int
}

// An EndpointTotal has the attempts of an endpoint since it exists.
type EndpointTotal struct {
	// ID is a bare ULID.
	ID, ExternalID, Name string
	// Succeeded and Failed count attempts. Their sum does not decrease.
	Succeeded, Failed int64
	// FailingSince is that of the endpoint.
	FailingSince, CreatedAt int64
}

// Title returns the endpoint's name, external id or id, the first that it has.
func (e *EndpointTotal) Title() string { return endpointTitle(e.Name, e.ExternalID, e.ID) }

// Title returns the endpoint's name, external id or id, the first that it has.
func (e *Endpoint) Title() string { return endpointTitle(e.Name, e.ExternalID, e.ID) }

func endpointTitle(name, externalID, id string) string {
	switch {
	case name != "":
		return name
	case externalID != "":
		return externalID
	}
	return EndpointPrefix + id
}
