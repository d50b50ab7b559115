package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

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

// A shownSchedule is what the commands read of a schedule.
type shownSchedule struct {
	ID             string          `json:"id"`
	Name           string          `json:"name"`
	Cron           string          `json:"cron"`
	Timezone       string          `json:"timezone"`
	Callback       json.RawMessage `json:"callback"`
	Missed         string          `json:"missed"`
	Enabled        bool            `json:"enabled"`
	NextAt         *time.Time      `json:"next_at"`
	LastAt         *time.Time      `json:"last_at"`
	LastCallbackID string          `json:"last_callback_id"`
	LastError      string          `json:"last_error"`
	CreatedAt      *time.Time      `json:"created_at"`
	UpdatedAt      *time.Time      `json:"updated_at"`
}

// title names a schedule for people.
func (s *shownSchedule) title() string {
	return console.Printable(s.ID) + "  " + console.Short(s.Name, console.Widest)
}

// schedulePath is the address of one schedule.
func schedulePath(id string) string { return "/v1/schedules/" + url.PathEscape(id) }

// callSchedule makes a call for the schedule of that id.
func callSchedule(ctx context.Context, cl *remote.Client, method, id, call string, in, out any) ([]byte, error) {
	answer, err := cl.Call(ctx, method, schedulePath(id)+call, in, out)
	if !strings.HasPrefix(id, store.SchedulePrefix) {
		return answer, remote.InWords(err, "a schedule is named by its id, and %q is none; \"dispatcher schedule list --search NAME\" shows ids", id)
	}
	return answer, remote.InWords(err, "no schedule has the id %q", id)
}

// scheduleList lists schedules.
type scheduleList struct {
	remote.Flags
	Search   string `placeholder:"TEXT" help:"Only those with this in their name."`
	Enabled  bool   `xor:"enabled" help:"Only those that are enabled."`
	Disabled bool   `xor:"enabled" help:"Only those that are not."`
	listFlags
}

// Run prints the schedules.
func (cmd *scheduleList) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	q := url.Values{}
	if cmd.Search != "" {
		q.Set("search", cmd.Search)
	}
	if cmd.Enabled || cmd.Disabled {
		q.Set("enabled", fmt.Sprint(cmd.Enabled))
	}
	return showList(ctx, c, cl, "/v1/schedules", q, cmd.listFlags, "no schedules match", func(list []shownSchedule) {
		now := time.Now()
		t := c.NewTable("id", "name", "cron", "time zone", "next", "last")
		for i := range list {
			s := &list[i]
			t.AppendRow([]any{console.Printable(s.ID), console.Short(s.Name, 32), console.Short(s.Cron, 32), console.Short(s.Timezone, 32), nextRun(c, s, now), lastRun(c, s, now)})
		}
		t.Render()
	})
}

// nextRun says when a schedule makes its next callback, in a few words.
func nextRun(c *console.Console, s *shownSchedule, now time.Time) string {
	switch {
	case !s.Enabled:
		return c.Paint("disabled", text.FgYellow)
	case s.NextAt == nil:
		return "never"
	case s.NextAt.After(now):
		return "in " + console.Brief(s.NextAt.Sub(now))
	}
	return "now"
}

// lastRun says when a schedule made its last callback, or why it made none.
func lastRun(c *console.Console, s *shownSchedule, now time.Time) string {
	last := agoOr(s.LastAt, now, "never")
	if s.LastError != "" {
		last += ", " + c.Paint("without a callback: "+console.Short(s.LastError, console.Widest), text.FgRed)
	}
	return last
}

// scheduleGet shows one schedule.
type scheduleGet struct {
	remote.Flags
	ID   string `arg:"" help:"Id of the schedule, sc_ and 26 characters."`
	JSON bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run shows it.
func (cmd *scheduleGet) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var s shownSchedule
	answer, err := callSchedule(ctx, cl, http.MethodGet, cmd.ID, "", nil, &s)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	now := time.Now()
	c.Line("schedule", console.Printable(s.ID))
	c.Line("name", console.Printable(s.Name))
	c.Line("cron", console.Printable(s.Cron)+", in "+console.Printable(s.Timezone))
	c.Line("missed", missedText(s.Missed))
	next := nextRun(c, &s, now)
	if s.Enabled && s.NextAt != nil {
		next = console.ClockTime(s.NextAt) + wallTime(s.NextAt, s.Timezone) + ", " + next
	}
	c.Line("next", next)
	last := "never"
	if s.LastAt != nil {
		last = console.ClockTime(s.LastAt) + wallTime(s.LastAt, s.Timezone) + ", " + lastRun(c, &s, now)
	}
	c.Line("last", last)
	c.Line("made by it", console.Printable(s.LastCallbackID))
	c.Line("made", console.ClockTime(s.CreatedAt))
	c.Line("changed", console.ClockTime(s.UpdatedAt))
	c.Line("callback", jsonText(s.Callback))
	return nil
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
func wallTime(t *time.Time, zone string) string {
	there, err := time.LoadLocation(zone)
	if err != nil || t.In(there).Format(time.RFC3339) == t.Local().Format(time.RFC3339) {
		return ""
	}
	return t.In(there).Format(" (2006-01-02 15:04 ") + console.Printable(zone) + ")"
}

// scheduleRun makes a schedule's callback.
type scheduleRun struct {
	remote.Flags
	ID     string `arg:"" help:"Id of the schedule."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run makes it.
func (cmd *scheduleRun) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var cb remote.Callback
	answer, err := callSchedule(ctx, cl, http.MethodPost, cmd.ID, "/run", reasonOf(cmd.Reason), &cb)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	fmt.Fprintf(c.Out, "%s  accepted (see \"dispatcher callback get %[1]s\")\n", console.Printable(cb.ID))
	return nil
}

// scheduleRuns lists what a schedule has made.
type scheduleRuns struct {
	remote.Flags
	ID   string `arg:"" help:"Id of the schedule."`
	JSON bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run prints the callbacks.
func (cmd *scheduleRuns) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var runs struct {
		Data []struct {
			CallbackID string     `json:"callback_id"`
			DueAt      *time.Time `json:"due_at"`
			FiredAt    *time.Time `json:"fired_at"`
			Trigger    string     `json:"trigger"`
		} `json:"data"`
	}
	answer, err := callSchedule(ctx, cl, http.MethodGet, cmd.ID, "/runs", nil, &runs)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	if len(runs.Data) == 0 {
		fmt.Fprintln(c.Out, "it has made no callback yet")
		return nil
	}
	t := c.NewTable("callback", "due", "made", "trigger")
	for _, r := range runs.Data {
		t.AppendRow([]any{console.Printable(r.CallbackID), console.ClockTime(r.DueAt), console.ClockTime(r.FiredAt), console.Printable(r.Trigger)})
	}
	t.Render()
	return nil
}

// scheduleDelete removes a schedule.
type scheduleDelete struct {
	remote.Flags
	ID     string `arg:"" help:"Id of the schedule."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
}

// Run removes it.
func (cmd *scheduleDelete) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	if _, err := callSchedule(ctx, cl, http.MethodDelete, cmd.ID, "", reasonOf(cmd.Reason), nil); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "%s is removed; callbacks that it has made stay\n", console.Printable(cmd.ID))
	return nil
}
