package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// scheduleCommand is the API for schedules from the shell.
type scheduleCommand struct {
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
func (s *shownSchedule) title() string { return printable(s.ID) + "  " + short(s.Name, widest) }

// schedulePath is the address of one schedule.
func schedulePath(id string) string { return "/v1/schedules/" + url.PathEscape(id) }

// callSchedule makes a call for the schedule of that id.
func callSchedule(ctx context.Context, cl *client, method, id, call string, in, out any) ([]byte, error) {
	answer, err := cl.call(ctx, method, schedulePath(id)+call, in, out)
	if !strings.HasPrefix(id, store.SchedulePrefix) {
		return answer, inWords(err, "a schedule is named by its id, and %q is none; \"dispatcher schedule list --search NAME\" shows ids", id)
	}
	return answer, inWords(err, "no schedule has the id %q", id)
}

// scheduleList lists schedules.
type scheduleList struct {
	clientFlags
	Search   string `placeholder:"TEXT" help:"Only those with this in their name."`
	Enabled  bool   `xor:"enabled" help:"Only those that are enabled."`
	Disabled bool   `xor:"enabled" help:"Only those that are not."`
	listFlags
}

// Run prints the schedules.
func (cmd *scheduleList) Run(ctx context.Context, c *console) error {
	cl, err := newClient(c, cmd.clientFlags)
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
		t := c.newTable("id", "name", "cron", "time zone", "next", "last")
		for i := range list {
			s := &list[i]
			t.AppendRow([]any{printable(s.ID), short(s.Name, 32), short(s.Cron, 32), short(s.Timezone, 32), c.nextRun(s, now), c.lastRun(s, now)})
		}
		t.Render()
	})
}

// nextRun says when a schedule makes its next callback, in a few words.
func (c *console) nextRun(s *shownSchedule, now time.Time) string {
	switch {
	case !s.Enabled:
		return c.paint("disabled", text.FgYellow)
	case s.NextAt == nil:
		return "never"
	case s.NextAt.After(now):
		return "in " + brief(s.NextAt.Sub(now))
	}
	return "now"
}

// lastRun says when a schedule made its last callback, or why it made none.
func (c *console) lastRun(s *shownSchedule, now time.Time) string {
	last := agoOr(s.LastAt, now, "never")
	if s.LastError != "" {
		last += ", " + c.paint("without a callback: "+short(s.LastError, widest), text.FgRed)
	}
	return last
}

// scheduleGet shows one schedule.
type scheduleGet struct {
	clientFlags
	ID   string `arg:"" help:"Id of the schedule, sc_ and 26 characters."`
	JSON bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run shows it.
func (cmd *scheduleGet) Run(ctx context.Context, c *console) error {
	cl, err := newClient(c, cmd.clientFlags)
	if err != nil {
		return err
	}
	var s shownSchedule
	answer, err := callSchedule(ctx, cl, http.MethodGet, cmd.ID, "", nil, &s)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return printJSON(c, answer)
	}
	now := time.Now()
	c.line("schedule", printable(s.ID))
	c.line("name", printable(s.Name))
	c.line("cron", printable(s.Cron)+", in "+printable(s.Timezone))
	c.line("missed", missedText(s.Missed))
	next := c.nextRun(&s, now)
	if s.Enabled && s.NextAt != nil {
		next = clockTime(s.NextAt) + wallTime(s.NextAt, s.Timezone) + ", " + next
	}
	c.line("next", next)
	last := "never"
	if s.LastAt != nil {
		last = clockTime(s.LastAt) + wallTime(s.LastAt, s.Timezone) + ", " + c.lastRun(&s, now)
	}
	c.line("last", last)
	c.line("made by it", printable(s.LastCallbackID))
	c.line("made", clockTime(s.CreatedAt))
	c.line("changed", clockTime(s.UpdatedAt))
	c.line("callback", jsonText(s.Callback))
	return nil
}

func missedText(missed string) string {
	switch missed {
	case "once":
		return "once: one callback for all times at which nothing ran"
	case "skip":
		return "skip: no callback for times at which nothing ran"
	}
	return printable(missed)
}

// wallTime says what the clocks show at a time in the zone that a cron is read in, unless that is the reader's own.
func wallTime(t *time.Time, zone string) string {
	there, err := time.LoadLocation(zone)
	if err != nil || t.In(there).Format(time.RFC3339) == t.Local().Format(time.RFC3339) {
		return ""
	}
	return t.In(there).Format(" (2006-01-02 15:04 ") + printable(zone) + ")"
}

// scheduleRun makes a schedule's callback.
type scheduleRun struct {
	clientFlags
	ID     string `arg:"" help:"Id of the schedule."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run makes it.
func (cmd *scheduleRun) Run(ctx context.Context, c *console) error {
	cl, err := newClient(c, cmd.clientFlags)
	if err != nil {
		return err
	}
	var cb shownCallback
	answer, err := callSchedule(ctx, cl, http.MethodPost, cmd.ID, "/run", reasonOf(cmd.Reason), &cb)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return printJSON(c, answer)
	}
	fmt.Fprintf(c.out, "%s  accepted (see \"dispatcher callback get %[1]s\")\n", printable(cb.ID))
	return nil
}

// scheduleRuns lists what a schedule has made.
type scheduleRuns struct {
	clientFlags
	ID   string `arg:"" help:"Id of the schedule."`
	JSON bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run prints the callbacks.
func (cmd *scheduleRuns) Run(ctx context.Context, c *console) error {
	cl, err := newClient(c, cmd.clientFlags)
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
		return printJSON(c, answer)
	}
	if len(runs.Data) == 0 {
		fmt.Fprintln(c.out, "it has made no callback yet")
		return nil
	}
	t := c.newTable("callback", "due", "made", "trigger")
	for _, r := range runs.Data {
		t.AppendRow([]any{printable(r.CallbackID), clockTime(r.DueAt), clockTime(r.FiredAt), printable(r.Trigger)})
	}
	t.Render()
	return nil
}

// scheduleDelete removes a schedule.
type scheduleDelete struct {
	clientFlags
	ID     string `arg:"" help:"Id of the schedule."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
}

// Run removes it.
func (cmd *scheduleDelete) Run(ctx context.Context, c *console) error {
	cl, err := newClient(c, cmd.clientFlags)
	if err != nil {
		return err
	}
	if _, err := callSchedule(ctx, cl, http.MethodDelete, cmd.ID, "", reasonOf(cmd.Reason), nil); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s is removed; callbacks that it has made stay\n", printable(cmd.ID))
	return nil
}
