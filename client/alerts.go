package client

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"time"
)

// An Amount is a threshold: a whole number such as "10", which is a number in JSON, or a duration such as
// "5m".
type Amount string

// appendJSON appends a number or a text.
func (a Amount) appendJSON(b []byte) ([]byte, error) {
	if _, err := strconv.ParseInt(string(a), 10, 64); err == nil {
		return append(b, a...), nil
	}
	return AppendString(b, string(a)), nil
}

// MarshalJSON writes a number or a text.
func (a Amount) MarshalJSON() ([]byte, error) { return a.appendJSON(nil) }

// UnmarshalJSON reads a number or a text.
func (a *Amount) UnmarshalJSON(raw []byte) error {
	if !bytes.HasPrefix(raw, []byte(`"`)) {
		*a = Amount(raw)
		return nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	*a = Amount(text)
	return err
}

// An AlertWhen is the condition of an alert. The kind decides which fields it has; a missing one has the
// default of its kind.
type AlertWhen struct {
	Kind string `json:"kind" api:"required" schema:"enum: [oldest_due, dead_rate, endpoint_success, breaker_open, poll_unresolved, schedule_late, reconcile, relay_lag, relay_refused]"`
	// Threshold. A duration: oldest_due, breaker_open, schedule_late, relay_lag. Dead callbacks in a minute:
	// dead_rate. Polls without a final result within the window: poll_unresolved. Refused rows of an outbox
	// table: relay_refused.
	Above Amount `json:"above,omitempty" schema:"type: [string, integer, \"null\"], examples: [5m, 10]"`
	// endpoint_success: the lowest success rate, in percent.
	Below float64 `json:"below,omitempty" schema:"minimum: 1, maximum: 100, default: 90"`
	// How long the condition holds before the alert fires.
	For Duration `json:"for,omitempty"`
	// endpoint_success and poll_unresolved: the time that is counted. 1m to 2h.
	Window Duration `json:"window,omitempty"`
	// endpoint_success: fewest attempts in the window for a verdict.
	MinAttempts int64 `json:"min_attempts,omitempty" schema:"minimum: 1, default: 20"`
	// endpoint_success: only this endpoint, by its id or external_id.
	Endpoint string `json:"endpoint,omitempty"`
	// oldest_due and breaker_open: only this lane.
	Lane string `json:"lane,omitempty"`
	// schedule_late: only this schedule.
	Schedule string `json:"schedule,omitempty"`
}

// An AlertSink is where an alert sends its messages. Credentials are shown as ***, and a URL without its
// path. In a PATCH, missing credentials of the same type and host are kept.
type AlertSink struct {
	Type string `json:"type" api:"required" schema:"enum: [dingtalk, wecom, feishu, slack, teams, email, webhook]"`
	// The whole URL of the robot or webhook. Not for email.
	URL string `json:"url,omitempty"`
	// Signing secret of a robot of DingTalk or Feishu, or of a webhook (whsec_…). Without it messages are not
	// signed.
	Secret string `json:"secret,omitempty"`
	// Phone numbers or user ids to mention, or all.
	Mentions []string `json:"mentions,omitempty" api:"most=51" schema:"maxItems: 50"`
	Lang     string   `json:"lang,omitempty" schema:"enum: [en, zh-CN, null], default: en"`
	// Mail server, such as smtps://mail.example:465.
	Server   string   `json:"server,omitempty"`
	Username string   `json:"username,omitempty"`
	Password string   `json:"password,omitempty"`
	From     string   `json:"from,omitempty"`
	To       []string `json:"to,omitempty" api:"most=51" schema:"maxItems: 50"`
}

// An AlertDigest is the time of the daily summary.
type AlertDigest struct {
	// Time of day, such as 09:00.
	At string `json:"at" api:"required" schema:"pattern: \"^[0-2][0-9]:[0-5][0-9]$\""`
	// Time zone, as the IANA database names it. Default: UTC.
	Timezone string `json:"timezone,omitempty" schema:"examples: [Asia/Shanghai]"`
}

// An AlertChange creates or changes an alert. A new alert requires name, when and sink. In a PATCH, fields
// that are left out stay unchanged, and when and sink are replaced as a whole.
type AlertChange struct {
	// Unique in the project.
	Name *string    `json:"name,omitempty" schema:"minLength: 1, maxLength: 128"`
	When *AlertWhen `json:"when,omitempty"`
	Sink *AlertSink `json:"sink,omitempty"`
	// No messages until this time. Null ends the silence.
	SilenceUntil Optional[time.Time] `json:"silence_until,omitzero"`
	// Null: no daily summary.
	Digest  Optional[AlertDigest] `json:"digest,omitzero"`
	Enabled *bool                 `json:"enabled,omitempty" schema:"default: true"`
	Change
}

// An Alert watches a condition of a project and sends messages to a sink.
type Alert struct {
	ID   string    `json:"id" schema:"pattern: \"^al_\""`
	Name string    `json:"name"`
	When AlertWhen `json:"when"`
	Sink AlertSink `json:"sink"`
	// pending: the condition is broken, but not for long enough.
	State string `json:"state" schema:"enum: [ok, pending, firing, disabled]"`
	// When the state began. Null for ok and disabled.
	Since time.Time `json:"since" api:"null"`
	// Number of firing instances, such as endpoints.
	Firing int `json:"firing"`
	// Null: not silenced.
	SilenceUntil time.Time             `json:"silence_until" api:"null"`
	Digest       Optional[AlertDigest] `json:"digest"`
	Enabled      bool                  `json:"enabled"`
	// The last message, and its callback. Null: none yet.
	LastMessageAt time.Time `json:"last_message_at" api:"null"`
	LastMessageID string    `json:"last_message_id" api:"null"`
	// State of that callback. dead: the message did not arrive. Null: none yet, or it was purged.
	LastMessageState State `json:"last_message_state" api:"null"`
	// Why the last evaluation sent no message. Null: no error.
	LastError string    `json:"last_error" api:"null"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// An AlertFiring is what an alert found on one instance, such as an endpoint.
type AlertFiring struct {
	// Name of the instance. Null: the whole project.
	Name         string    `json:"name" api:"null"`
	PendingSince time.Time `json:"pending_since"`
	// Null: not yet.
	FiredAt    time.Time `json:"fired_at" api:"null"`
	ResolvedAt time.Time `json:"resolved_at" api:"null"`
}

// CreateAlert creates an alert.
func (c *Client) CreateAlert(ctx context.Context, r AlertChange) (Alert, error) {
	return call[Alert](ctx, c, "POST", r, "alerts")
}

// Alerts lists alerts, newest first. Search is a part of the name.
func (c *Client) Alerts(search string) List[Alert] {
	return list[Alert](c, params{"search": search}.query(), "alerts")
}

// Alert returns one alert.
func (c *Client) Alert(ctx context.Context, id string) (Alert, error) {
	return read[Alert](ctx, c, nil, "alerts", id)
}

// PatchAlert changes the given fields of an alert.
func (c *Client) PatchAlert(ctx context.Context, id string, r AlertChange) (Alert, error) {
	return call[Alert](ctx, c, "PATCH", r, "alerts", id)
}

// DeleteAlert deletes an alert. Its messages stay.
func (c *Client) DeleteAlert(ctx context.Context, id, reason string) error {
	return c.remove(ctx, reason, "alerts", id)
}

// TestAlert sends a test message to the sink of an alert, and returns its callback.
func (c *Client) TestAlert(ctx context.Context, id, reason string) (Callback, error) {
	return call[Callback](ctx, c, "POST", Change{reason}, "alerts", id, "test")
}

// AlertFirings returns the last 100 firings of an alert, newest first.
func (c *Client) AlertFirings(ctx context.Context, id string) ([]AlertFiring, error) {
	out, err := read[Page[AlertFiring]](ctx, c, nil, "alerts", id, "firings")
	return out.Data, err
}
