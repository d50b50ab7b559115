package client

import (
	"context"
	"encoding/json"
	"time"
)

// A ScheduleChange makes or changes a schedule. A new one needs Name, Cron and Callback. In a PATCH what
// is left out
// stays, and a time zone of null is UTC.
type ScheduleChange struct {
	// Unique in the project.
	Name *string `json:"name,omitempty" schema:"minLength: 1, maxLength: 128"`
	// Five fields, @every and a duration, or @daily and the like. One that never comes is refused, and so
	// is a time zone inside of it.
	Cron *string `json:"cron,omitempty" schema:"examples: [\"30 1 * * *\", \"@every 10m\"]"`
	// Where its fields are read, as the IANA database names it.
	Timezone Optional[string] `json:"timezone,omitzero" schema:"default: UTC, examples: [Asia/Shanghai]"`
	// The callback that is made each time: an object as AppendJSON writes a CallbackRequest.
	Callback json.RawMessage `json:"callback,omitempty" schema:"$ref: Template"`
	// What becomes of times at which no dispatcher ran: once for all of them, or none.
	Missed  *string `json:"missed,omitempty" schema:"enum: [once, skip, null], default: once"`
	Enabled *bool   `json:"enabled,omitempty" schema:"default: true"`
	Change
}

// A Schedule makes a callback at each time that its cron names.
type Schedule struct {
	ID       string `json:"id" schema:"pattern: \"^sc_\""`
	Name     string `json:"name"`
	Cron     string `json:"cron"`
	Timezone string `json:"timezone"`
	// As it was given, but that values of headers that carry credentials are shown as ***.
	Callback json.RawMessage `json:"callback" api:"null" schema:"$ref: Template"`
	Missed   string          `json:"missed" schema:"enum: [once, skip]"`
	Enabled  bool            `json:"enabled"`
	// null: it is not enabled.
	NextAt time.Time `json:"next_at" api:"null"`
	// The last time that it made a callback for, or was run by hand; null: never.
	LastAt time.Time `json:"last_at" api:"null"`
	// The callback of that.
	LastCallbackID string `json:"last_callback_id" api:"null"`
	// Why the last time made none; null: it did.
	LastError string    `json:"last_error" api:"null"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// A ScheduleRun is one callback that a schedule has made.
type ScheduleRun struct {
	CallbackID string `json:"callback_id" schema:"pattern: \"^cb_\""`
	// The time that the cron names; of a run by hand, when that was.
	DueAt   time.Time `json:"due_at"`
	FiredAt time.Time `json:"fired_at"`
	Trigger string    `json:"trigger" schema:"enum: [schedule, manual]"`
}

// CreateSchedule makes a schedule.
func (c *Client) CreateSchedule(ctx context.Context, r ScheduleChange) (Schedule, error) {
	return call[Schedule](ctx, c, "POST", r, "schedules")
}

// Schedules lists schedules, newest first. Search is a part of the name; enabled nil: those that are and
// are not.
func (c *Client) Schedules(search string, enabled *bool) List[Schedule] {
	q := params{"search": search}.query()
	if enabled != nil {
		q.Set("enabled", map[bool]string{true: "true", false: "false"}[*enabled])
	}
	return list[Schedule](c, q, "schedules")
}

// Schedule returns one schedule.
func (c *Client) Schedule(ctx context.Context, id string) (Schedule, error) {
	return read[Schedule](ctx, c, nil, "schedules", id)
}

// PatchSchedule changes what is given of a schedule.
func (c *Client) PatchSchedule(ctx context.Context, id string, r ScheduleChange) (Schedule, error) {
	return call[Schedule](ctx, c, "PATCH", r, "schedules", id)
}

// DeleteSchedule removes a schedule. Callbacks that it has made stay.
func (c *Client) DeleteSchedule(ctx context.Context, id, reason string) error {
	return c.remove(ctx, reason, "schedules", id)
}

// RunSchedule makes a schedule's callback now, whether it is enabled or not.
func (c *Client) RunSchedule(ctx context.Context, id, reason string) (Callback, error) {
	return call[Callback](ctx, c, "POST", Change{reason}, "schedules", id, "run")
}

// ScheduleRuns returns the callbacks that a schedule has made and that are kept, newest first.
func (c *Client) ScheduleRuns(ctx context.Context, id string) ([]ScheduleRun, error) {
	out, err := read[Page[ScheduleRun]](ctx, c, nil, "schedules", id, "runs")
	return out.Data, err
}
