package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
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
	Search   string `in:"search" placeholder:"TEXT" help:"Only those with this in their name."`
	Enabled  bool   `in:"enabled" xor:"enabled" help:"Only those that are enabled."`
	Disabled bool   `in:"enabled,not" xor:"enabled" help:"Only those that are not."`
	listFlags
}

// Run prints the schedules.
func (cmd *scheduleList) Run(c *session) error {
	header, now := "id, name, cron, time zone, next, last", time.Now()
	return list(c, cmd.listFlags, "/v1/schedules", cmd, "no schedules match", header, func(s *client.Schedule) []any {
		return []any{
			s.ID, console.Short(s.Name, 32), console.Short(s.Cron, 32), console.Short(s.Timezone, 32), nextRun(c, s, now), lastRun(c, s, now),
		}
	})
}

// nextRun says when a schedule makes its next callback, in a few words.
func nextRun(c *session, s *client.Schedule, now time.Time) string {
	switch {
	case !s.Enabled:
		return c.Paint("disabled", console.Yellow)
	case s.NextAt.IsZero():
		return "never"
	}
	return until(s.NextAt, now)
}

// lastRun says when a schedule made its last callback, or why it made none.
func lastRun(c *session, s *client.Schedule, now time.Time) string {
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
func (cmd *scheduleGet) Run(c *session) error {
	return ask(c, get("").forSchedule(cmd.ID), func(s *client.Schedule) {
		now, last := time.Now(), "never"
		next := nextRun(c, s, now)
		if s.Enabled && !s.NextAt.IsZero() {
			next = console.ClockTime(s.NextAt) + wallTime(s.NextAt, s.Timezone) + ", " + next
		}
		if !s.LastAt.IsZero() {
			last = console.ClockTime(s.LastAt) + wallTime(s.LastAt, s.Timezone) + ", " + lastRun(c, s, now)
		}
		c.Lines(10, "schedule", s.ID, "name", s.Name, "cron", s.Cron+", in "+s.Timezone, "missed", meaning(string(s.Missed)),
			"next", next, "last", last, "made by it", s.LastCallbackID, "made", console.ClockTime(s.CreatedAt),
			"changed", console.ClockTime(s.UpdatedAt), "callback", jsonText(s.Callback))
	})
}

// wallTime says what the clocks show at a time in the zone that a cron is read in, unless that is the reader's own.
func wallTime(t time.Time, zone string) string {
	there, err := time.LoadLocation(zone)
	if err != nil || t.In(there).Format(time.RFC3339) == t.Local().Format(time.RFC3339) {
		return ""
	}
	return t.In(there).Format(" (2006-01-02 15:04 ") + zone + ")"
}

// scheduleRun makes a schedule's callback.
type scheduleRun struct {
	ID string `arg:"" help:"Id of the schedule."`
	changeFlags
}

// Run makes it.
func (cmd *scheduleRun) Run(c *session) error {
	return ask(c, post("/run", cmd).forSchedule(cmd.ID), func(cb *client.Callback) {
		c.printf("%s  accepted (see \"dispatcher callback get %[1]s\")\n", cb.ID)
	})
}

// scheduleRuns lists what a schedule has made.
type scheduleRuns struct {
	ID string `arg:"" help:"Id of the schedule."`
	answerFlags
}

// Run prints the callbacks.
func (cmd *scheduleRuns) Run(c *session) error {
	return ask(c, get("/runs").forSchedule(cmd.ID), func(runs *client.Page[client.ScheduleRun]) {
		if len(runs.Data) == 0 {
			c.printf("it has made no callback yet\n")
			return
		}
		console.ShowTable(c.Console, runs.Data, "callback, due, made, trigger", func(r *client.ScheduleRun) []any {
			return []any{r.CallbackID, console.ClockTime(r.DueAt), console.ClockTime(r.FiredAt), r.Trigger}
		})
	})
}

// scheduleDelete removes a schedule.
type scheduleDelete struct {
	ID     string `arg:"" help:"Id of the schedule."`
	Reason string `in:"reason" placeholder:"TEXT" help:"Why, for the audit."`
	serverFlags
}

// Run removes it.
func (cmd *scheduleDelete) Run(c *session) error {
	r := request{method: http.MethodDelete, in: cmd}.forSchedule(cmd.ID)
	return c.done(r, "%s is removed; callbacks that it has made stay", console.Printable(cmd.ID))
}
