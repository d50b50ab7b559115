package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// ScheduleCommand is the API for schedules from the shell.
type ScheduleCommand struct {
	Create scheduleCreate `cmd:"" help:"Make a schedule: a callback at each time that its cron names."`
	List   scheduleList   `cmd:"" help:"List schedules, newest first."`
	Get    scheduleGet    `cmd:"" help:"Show one schedule with the callback that it makes."`
	Set    scheduleSet    `cmd:"" help:"Change what is given of a schedule, and nothing else."`
	Run    scheduleRun    `cmd:"" help:"Make a schedule's callback now, whether it is enabled or not. Its next time stays."`
	Runs   scheduleRuns   `cmd:"" help:"List the callbacks that a schedule has made, newest first, the last 100."`
	Delete scheduleDelete `cmd:"" help:"Remove a schedule. Callbacks that it has made stay."`
}

// forSchedule is the request for a schedule of an id, whose path begins behind the schedule's own.
func (r request) forSchedule(id string) request {
	r.path = "/v1/schedules/" + url.PathEscape(id) + r.path
	if !strings.HasPrefix(id, store.SchedulePrefix) {
		return r.orSay(fmt.Sprintf("a schedule is named by its id, and %q is none; \"dispatcher schedule list --search NAME\" shows ids", id))
	}
	return r.orSay(fmt.Sprintf("no schedule has the id %q", id))
}

// scheduleList lists schedules.
type scheduleList struct {
	Search   string `placeholder:"TEXT" help:"Only those with this in their name."`
	Enabled  bool   `xor:"enabled" help:"Only those that are enabled."`
	Disabled bool   `xor:"enabled" help:"Only those that are not."`
	listFlags
}

// Run prints the schedules.
func (cmd *scheduleList) Run(ctx context.Context, c *console.Console) error {
	q := parameters("search", cmd.Search)
	if cmd.Enabled || cmd.Disabled {
		q.Set("enabled", fmt.Sprint(cmd.Enabled))
	}
	now := time.Now()
	return list(ctx, c, cmd.listFlags, "/v1/schedules", q, "no schedules match", []console.Column[client.Schedule]{
		{Name: "id", Of: func(s *client.Schedule) any { return console.Printable(s.ID) }},
		{Name: "name", Of: func(s *client.Schedule) any { return console.Short(s.Name, 32) }},
		{Name: "cron", Of: func(s *client.Schedule) any { return console.Short(s.Cron, 32) }},
		{Name: "time zone", Of: func(s *client.Schedule) any { return console.Short(s.Timezone, 32) }},
		{Name: "next", Of: func(s *client.Schedule) any { return nextRun(c, s, now) }},
		{Name: "last", Of: func(s *client.Schedule) any { return lastRun(c, s, now) }},
	})
}

// nextRun says when a schedule makes its next callback, in a few words.
func nextRun(c *console.Console, s *client.Schedule, now time.Time) string {
	switch {
	case !s.Enabled:
		return c.Paint("disabled", console.Yellow)
	case s.NextAt.IsZero():
		return "never"
	case s.NextAt.After(now):
		return "in " + console.Brief(s.NextAt.Sub(now))
	}
	return "now"
}

// lastRun says when a schedule made its last callback, or why it made none.
func lastRun(c *console.Console, s *client.Schedule, now time.Time) string {
	last := agoOr(s.LastAt, now, "never")
	if s.LastError != "" {
		last += ", " + c.Paint("without a callback: "+console.Short(s.LastError, console.Widest), console.Red)
	}
	return last
}

// scheduleGet shows one schedule.
type scheduleGet struct {
	ID string `arg:"" help:"Id of the schedule, sc_ and 26 characters."`
	answerFlags
}

// Run shows it.
func (cmd *scheduleGet) Run(ctx context.Context, c *console.Console) error {
	return ask(ctx, c, cmd.answerFlags, get("").forSchedule(cmd.ID), func(s *client.Schedule) {
		now := time.Now()
		c.Line("schedule", console.Printable(s.ID))
		c.Line("name", console.Printable(s.Name))
		c.Line("cron", console.Printable(s.Cron)+", in "+console.Printable(s.Timezone))
		c.Line("missed", missedText(s.Missed))
		next := nextRun(c, s, now)
		if s.Enabled && !s.NextAt.IsZero() {
			next = console.ClockTime(s.NextAt) + wallTime(s.NextAt, s.Timezone) + ", " + next
		}
		c.Line("next", next)
		last := "never"
		if !s.LastAt.IsZero() {
			last = console.ClockTime(s.LastAt) + wallTime(s.LastAt, s.Timezone) + ", " + lastRun(c, s, now)
		}
		c.Line("last", last)
		c.Line("made by it", console.Printable(s.LastCallbackID))
		c.Line("made", console.ClockTime(s.CreatedAt))
		c.Line("changed", console.ClockTime(s.UpdatedAt))
		c.Line("callback", jsonText(s.Callback))
	})
}

func missedText(missed string) string {
	switch missed {
	case "once":
		return "once: one callback for all times at which nothing ran"
	case "skip":
		return "skip: no callback for times at which nothing ran"
	}
	return console.Printable(missed)
}

// wallTime says what the clocks show at a time in the zone that a cron is read in, unless that is the reader's own.
func wallTime(t time.Time, zone string) string {
	there, err := time.LoadLocation(zone)
	if err != nil || t.In(there).Format(time.RFC3339) == t.Local().Format(time.RFC3339) {
		return ""
	}
	return t.In(there).Format(" (2006-01-02 15:04 ") + console.Printable(zone) + ")"
}

// scheduleRun makes a schedule's callback.
type scheduleRun struct {
	ID string `arg:"" help:"Id of the schedule."`
	changeFlags
}

// Run makes it.
func (cmd *scheduleRun) Run(ctx context.Context, c *console.Console) error {
	r := post("/run", reasonOf(cmd.Reason)).forSchedule(cmd.ID)
	return ask(ctx, c, cmd.answerFlags, r, func(cb *client.Callback) {
		fmt.Fprintf(c.Out, "%s  accepted (see \"dispatcher callback get %[1]s\")\n", console.Printable(cb.ID))
	})
}

// scheduleRuns lists what a schedule has made.
type scheduleRuns struct {
	ID string `arg:"" help:"Id of the schedule."`
	answerFlags
}

// Run prints the callbacks.
func (cmd *scheduleRuns) Run(ctx context.Context, c *console.Console) error {
	return ask(ctx, c, cmd.answerFlags, get("/runs").forSchedule(cmd.ID), func(runs *client.Page[client.ScheduleRun]) {
		if len(runs.Data) == 0 {
			fmt.Fprintln(c.Out, "it has made no callback yet")
			return
		}
		console.ShowTable(c, runs.Data, []console.Column[client.ScheduleRun]{
			{Name: "callback", Of: func(r *client.ScheduleRun) any { return console.Printable(r.CallbackID) }},
			{Name: "due", Of: func(r *client.ScheduleRun) any { return console.ClockTime(r.DueAt) }},
			{Name: "made", Of: func(r *client.ScheduleRun) any { return console.ClockTime(r.FiredAt) }},
			{Name: "trigger", Of: func(r *client.ScheduleRun) any { return console.Printable(r.Trigger) }},
		})
	})
}

// scheduleDelete removes a schedule.
type scheduleDelete struct {
	ID     string `arg:"" help:"Id of the schedule."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
	remote.Flags
}

// Run removes it.
func (cmd *scheduleDelete) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	r := request{method: http.MethodDelete, in: reasonOf(cmd.Reason)}.forSchedule(cmd.ID)
	if _, err := r.made(ctx, cl, nil); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "%s is removed; callbacks that it has made stay\n", console.Printable(cmd.ID))
	return nil
}
