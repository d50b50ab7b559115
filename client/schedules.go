package client

import (
	"context"
	"encoding/json"
	"time"
)

// A ScheduleChange creates or changes a schedule. A new schedule requires name, cron and callback. In a
// PATCH, fields that are left out stay unchanged, and a timezone of null means UTC.
type ScheduleChange struct {
	// Unique in the project.
	Name *string `json:"name,omitempty" schema:"minLength: 1, maxLength: 128"`
	// Five fields, @every and a duration, or a word such as @daily. The server rejects an expression that
	// never occurs or that has a time zone.
	Cron *string `json:"cron,omitempty" schema:"examples: [\"30 1 * * *\", \"@every 10m\"]"`
	// Time zone of the cron expression, as the IANA database names it.
	Timezone Optional[string] `json:"timezone,omitzero" schema:"default: UTC, examples: [Asia/Shanghai]"`
	// The callback that each run creates: a JSON object with the fields of POST /v1/callbacks.
	Callback json.RawMessage `json:"callback,omitempty" schema:"$ref: Template"`
	// What to do about runs that were due while no dispatcher ran. once: one run for all of them. skip: none.
	Missed  *string `json:"missed,omitempty" schema:"enum: [once, skip, null], default: once"`
	Enabled *bool   `json:"enabled,omitempty" schema:"default: true"`
	Change
}

// A Schedule creates a callback at each time of its cron expression.
type Schedule struct {
	ID       string `json:"id" schema:"pattern: \"^sc_\""`
	Name     string `json:"name"`
	Cron     string `json:"cron"`
	Timezone string `json:"timezone"`
	// The callback of the request. Values of headers with credentials are shown as ***.
	Callback json.RawMessage `json:"callback" api:"null" schema:"$ref: Template"`
	Missed   string          `json:"missed" schema:"enum: [once, skip]"`
	Enabled  bool            `json:"enabled"`
	// Null: the schedule is not enabled.
	NextAt time.Time `json:"next_at" api:"null"`
	// Time of the last run, scheduled or manual. Null: never.
	LastAt time.Time `json:"last_at" api:"null"`
	// Callback of the last run.
	LastCallbackID string `json:"last_callback_id" api:"null"`
	// Why the last run created no callback. Null: it created one.
	LastError string    `json:"last_error" api:"null"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// A ScheduleRun is one callback that a schedule created.
type ScheduleRun struct {
	CallbackID string `json:"callback_id" schema:"pattern: \"^cb_\""`
	// Time according to the cron expression. For a manual run: the time of the run.
	DueAt   time.Time `json:"due_at"`
	FiredAt time.Time `json:"fired_at"`
	Trigger string    `json:"trigger" schema:"enum: [schedule, manual]"`
}

// CreateSchedule creates a schedule.
func (c *Client) CreateSchedule(ctx context.Context, r ScheduleChange) (Schedule, error) {
	return call[Schedule](ctx, c, "POST", r, "schedules")
}

// Schedules lists schedules, newest first. Search is a part of the name. A nil enabled selects enabled and
// disabled schedules.
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

// PatchSchedule changes the given fields of a schedule.
func (c *Client) PatchSchedule(ctx context.Context, id string, r ScheduleChange) (Schedule, error) {
	return call[Schedule](ctx, c, "PATCH", r, "schedules", id)
}

// DeleteSchedule deletes a schedule. The callbacks that it created stay.
func (c *Client) DeleteSchedule(ctx context.Context, id, reason string) error {
	return c.remove(ctx, reason, "schedules", id)
}

// RunSchedule creates the callback of a schedule now, even if the schedule is disabled.
func (c *Client) RunSchedule(ctx context.Context, id, reason string) (Callback, error) {
	return call[Callback](ctx, c, "POST", Change{reason}, "schedules", id, "run")
}

// ScheduleRuns returns the callbacks that a schedule created and that are still kept, newest first.
func (c *Client) ScheduleRuns(ctx context.Context, id string) ([]ScheduleRun, error) {
	out, err := read[Page[ScheduleRun]](ctx, c, nil, "schedules", id, "runs")
	return out.Data, err
}
