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

// ScheduleCommand has the commands for schedules.
type ScheduleCommand struct {
	Create scheduleCreate `cmd:"" help:"Create a schedule, which creates a callback at each time of its cron."`
	List   scheduleList   `cmd:"" help:"List schedules, newest first."`
	Get    scheduleGet    `cmd:"" help:"Show one schedule with the callback that it creates."`
	Set    scheduleSet    `cmd:"" help:"Change a schedule. Only the given fields change."`
	Run    scheduleRun    `cmd:"" help:"Create a schedule's callback now, even if the schedule is disabled. Its next time stays."`
	Runs   scheduleRuns   `cmd:"" help:"List the last 100 callbacks of a schedule, newest first."`
	Delete scheduleDelete `cmd:"" help:"Delete a schedule. Its callbacks stay."`
}

// forSchedule completes a request whose path is relative to a schedule.
func (r request) forSchedule(id string) request {
	r.path = "/v1/schedules/" + url.PathEscape(id) + r.path
	if !strings.HasPrefix(id, store.SchedulePrefix) {
		return r.onMissing(fmt.Sprintf("%q is not the id of a schedule; "+
			"\"dispatcher schedule list --search NAME\" shows ids", id))
	}
	return r.onMissing(fmt.Sprintf("no schedule has the id %q", id))
}

// scheduleList lists schedules.
type scheduleList struct {
	Search   string `in:"search" placeholder:"TEXT" help:"Only if the name contains this text."`
	Enabled  bool   `in:"enabled" xor:"enabled" help:"Only enabled schedules."`
	Disabled bool   `in:"enabled,not" xor:"enabled" help:"Only disabled schedules."`
	listFlags
}

// Run prints the schedules.
func (cmd *scheduleList) Run(c *session) error {
	header, now := "id, name, cron, time zone, next, last", time.Now()
	return list(c, cmd.listFlags, "/v1/schedules", cmd, "no schedules match", header,
		func(s *client.Schedule) []any {
			return []any{
				s.ID, console.Short(s.Name, 32), console.Short(s.Cron, 32), console.Short(s.Timezone, 32),
				nextRun(c, s, now), lastRun(c, s, now),
			}
		})
}

// nextRun formats when a schedule creates its next callback.
func nextRun(c *session, s *client.Schedule, now time.Time) string {
	switch {
	case !s.Enabled:
		return c.Paint("disabled", console.Yellow)
	case s.NextAt.IsZero():
		return "never"
	}
	return until(s.NextAt, now)
}

// lastRun formats when a schedule last came due, and why it created no callback then.
func lastRun(c *session, s *client.Schedule, now time.Time) string {
	last := agoOr(s.LastAt, now, "never")
	if s.LastError != "" {
		last += ", " + c.Paint("no callback: "+console.Short(s.LastError, console.Widest), console.Red)
	}
	return last
}

// scheduleGet shows one schedule.
type scheduleGet struct {
	ID string `arg:"" help:"Id of the schedule, sc_ and 26 characters."`
	answerFlags
}

// Run prints the schedule.
func (cmd *scheduleGet) Run(c *session) error {
	return printResponse(c, get("").forSchedule(cmd.ID), func(s *client.Schedule) {
		now, last := time.Now(), "never"
		next := nextRun(c, s, now)
		if s.Enabled && !s.NextAt.IsZero() {
			next = console.ClockTime(s.NextAt) + wallTime(s.NextAt, s.Timezone) + ", " + next
		}
		if !s.LastAt.IsZero() {
			last = console.ClockTime(s.LastAt) + wallTime(s.LastAt, s.Timezone) + ", " + lastRun(c, s, now)
		}
		c.Lines(10, "schedule", s.ID, "name", s.Name, "cron", s.Cron+", in "+s.Timezone, "missed",
			meaning(string(s.Missed)),
			"next", next, "last", last, "last made", s.LastCallbackID, "created",
			console.ClockTime(s.CreatedAt),
			"changed", console.ClockTime(s.UpdatedAt), "callback", jsonText(s.Callback))
	})
}

// wallTime formats the local time in the schedule's zone, unless the reader's zone shows the same.
func wallTime(t time.Time, zone string) string {
	there, err := time.LoadLocation(zone)
	if err != nil || t.In(there).Format(time.RFC3339) == t.Local().Format(time.RFC3339) {
		return ""
	}
	return t.In(there).Format(" (2006-01-02 15:04 ") + zone + ")"
}

// scheduleArg is the argument that names a schedule.
type scheduleArg struct {
	ID string `arg:"" help:"Id of the schedule."`
}

// scheduleRun creates a schedule's callback now.
type scheduleRun struct {
	scheduleArg
	changeFlags
}

// Run creates the callback.
func (cmd *scheduleRun) Run(c *session) error {
	return printResponse(c, post("/run", cmd).forSchedule(cmd.ID), func(cb *client.Callback) {
		c.printf("%s  accepted (see \"dispatcher callback get %[1]s\")\n", cb.ID)
	})
}

// scheduleRuns lists the callbacks of a schedule.
type scheduleRuns struct {
	scheduleArg
	answerFlags
}

// Run prints the callbacks.
func (cmd *scheduleRuns) Run(c *session) error {
	return printResponse(c, get("/runs").forSchedule(cmd.ID), func(runs *client.Page[client.ScheduleRun]) {
		if len(runs.Data) == 0 {
			c.printf("no callbacks yet\n")
			return
		}
		console.ShowTable(c.Console, runs.Data, "callback, due, created, trigger",
			func(r *client.ScheduleRun) []any {
				return []any{r.CallbackID, console.ClockTime(r.DueAt), console.ClockTime(r.FiredAt),
					r.Trigger}
			})
	})
}

// scheduleDelete deletes a schedule.
type scheduleDelete struct {
	scheduleArg
	reasonFlag
	serverFlags
}

// Run deletes the schedule.
func (cmd *scheduleDelete) Run(c *session) error {
	r := request{method: http.MethodDelete, in: cmd}.forSchedule(cmd.ID)
	return c.done(r, "%s is deleted; its callbacks stay", console.Printable(cmd.ID))
}

// scheduleFields are the flags of schedule create and schedule set.
type scheduleFields struct {
	Name         string `in:"name" placeholder:"TEXT" help:"Name, unique in the project."`
	Cron         string `in:"cron" placeholder:"SPEC" help:"Times: five fields as in crontab, such as \"30 1 * * *\"; a name such as @daily; or \"@every 10m\"."`
	Timezone     string `in:"timezone" placeholder:"ZONE" help:"Time zone of the cron, such as Asia/Shanghai. Default: UTC."`
	Missed       string `in:"missed" placeholder:"once|skip" help:"Times that were missed because no dispatcher ran: one callback for all of them, or none. Default: once."`
	Callback     string `placeholder:"JSON|@FILE|-" help:"Callback to create, the body of POST /v1/callbacks: {\"url\": \"https://shop.example/close\", \"payload\": {}, \"policy\": \"payment\"}."`
	CallbackFile string `placeholder:"FILE" help:"Callback to create, from a file; - is the standard input."`
	URL          string `placeholder:"URL" help:"Short form: URL that is called, by POST, with --payload."`
	Endpoint     string `placeholder:"ID|EXTERNAL_ID" help:"Short form: endpoint that is called, with --payload."`
	Payload      string `placeholder:"JSON|@FILE|-" help:"With --url or --endpoint: JSON to send."`
	changeFlags
}

// putCallback adds the callback to the body of a request. The flags can describe it in three ways, which
// exclude each other.
func (f *scheduleFields) putCallback(c *session, in body) (err error) {
	short := body{}
	if f.URL != "" {
		short["url"] = f.URL
	}
	if f.Endpoint != "" {
		short["endpoint"] = f.Endpoint
	}
	if f.Payload != "" {
		short["payload"], err = readJSON(c, "payload", f.Payload)
		if err != nil {
			return err
		}
	}
	flag, value := "callback", f.Callback
	if f.CallbackFile != "" {
		flag, value = "callback-file", f.CallbackFile
		if value != "-" {
			value = "@" + value
		}
	}
	switch {
	case f.Callback != "" && f.CallbackFile != "" || value != "" && len(short) > 0:
		return console.Wrong("give the callback only once: --callback, --callback-file, or " +
			"--url or --endpoint with --payload")
	case value != "":
		in["callback"], err = readObject(c, flag, value)
	case len(short) == 0:
	case f.URL == "" && f.Endpoint == "":
		return console.Wrong("--payload needs --url or --endpoint")
	default:
		in["callback"] = short
	}
	return err
}

// scheduleCreate creates a schedule.
type scheduleCreate struct {
	scheduleFields
	Disabled bool `in:"enabled,not" aliases:"disable" help:"Create the schedule disabled."`
}

// Run creates the schedule and prints its first time.
func (cmd *scheduleCreate) Run(c *session) error {
	in, err := cmd.body(c, cmd)
	switch {
	case err != nil:
		return err
	case cmd.Name == "":
		return console.Wrong("give --name")
	case cmd.Cron == "":
		return console.Wrong("give --cron: the times of the callbacks")
	case in["callback"] == nil:
		return console.Wrong("give the callback to create: --callback, --callback-file, or " +
			"--url or --endpoint with --payload")
	}
	return cmd.send(c, post("/v1/schedules", in), "created")
}

// body returns the request body of a command that embeds these flags.
func (f *scheduleFields) body(c *session, cmd any) (body, error) {
	in, err := bodyOf(c, cmd)
	if err == nil {
		err = f.putCallback(c, in)
	}
	return in, err
}

// send makes the request that creates or changes a schedule, and prints the result.
func (f *scheduleFields) send(c *session, r request, done string) error {
	return printResponse(c, r, func(s *client.Schedule) {
		when := "disabled"
		if s.Enabled && !s.NextAt.IsZero() {
			when = "next " + console.ClockTime(s.NextAt) + wallTime(s.NextAt, s.Timezone) + ", " +
				nextRun(c, s, time.Now())
		}
		c.printf("%s  %s  %s; %s\n", s.ID, console.Short(s.Name, console.Widest), done, when)
	})
}

// scheduleSet changes a schedule.
type scheduleSet struct {
	scheduleArg
	scheduleFields
	Enabled  bool `in:"enabled" xor:"enabled" aliases:"enable" help:"Enable the schedule. Its next time is calculated from now."`
	Disabled bool `in:"enabled,not" xor:"enabled" aliases:"disable" help:"Disable the schedule."`
}

// Help is the text below the summary of schedule set --help.
func (*scheduleSet) Help() string {
	return "Other fields stay. A new callback replaces all of the old one. After a change of cron or time " +
		"zone, and after --enabled, the next time is calculated from now."
}

// Run changes the schedule.
func (cmd *scheduleSet) Run(c *session) error {
	in, err := cmd.body(c, cmd)
	if err == nil && !in.changes() {
		err = console.Wrong("nothing to change: give a field to set")
	}
	if err != nil {
		return err
	}
	return cmd.send(c, request{method: http.MethodPatch, in: in}.forSchedule(cmd.ID), "changed")
}
