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
		return r.orSay(fmt.Sprintf("a schedule is named by its id, and %q is none; \"dispatcher schedule "+
			"list --search NAME\" shows ids", id))
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
	return list(c, cmd.listFlags, "/v1/schedules", cmd, "no schedules match", header,
		func(s *client.Schedule) []any {
			return []any{
				s.ID, console.Short(s.Name, 32), console.Short(s.Cron, 32), console.Short(s.Timezone, 32),
				nextRun(c, s, now), lastRun(c, s, now),
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
		c.Lines(10, "schedule", s.ID, "name", s.Name, "cron", s.Cron+", in "+s.Timezone, "missed",
			meaning(string(s.Missed)),
			"next", next, "last", last, "made by it", s.LastCallbackID, "made",
			console.ClockTime(s.CreatedAt),
			"changed", console.ClockTime(s.UpdatedAt), "callback", jsonText(s.Callback))
	})
}

// wallTime says what the clocks show at a time in the zone that a cron is read in, unless that is the
// reader's own.
func wallTime(t time.Time, zone string) string {
	there, err := time.LoadLocation(zone)
	if err != nil || t.In(there).Format(time.RFC3339) == t.Local().Format(time.RFC3339) {
		return ""
	}
	return t.In(there).Format(" (2006-01-02 15:04 ") + zone + ")"
}

// scheduleArg names a schedule.
type scheduleArg struct {
	ID string `arg:"" help:"Id of the schedule."`
}

// scheduleRun makes a schedule's callback.
type scheduleRun struct {
	scheduleArg
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
	scheduleArg
	answerFlags
}

// Run prints the callbacks.
func (cmd *scheduleRuns) Run(c *session) error {
	return ask(c, get("/runs").forSchedule(cmd.ID), func(runs *client.Page[client.ScheduleRun]) {
		if len(runs.Data) == 0 {
			c.printf("it has made no callback yet\n")
			return
		}
		console.ShowTable(c.Console, runs.Data, "callback, due, made, trigger",
			func(r *client.ScheduleRun) []any {
				return []any{r.CallbackID, console.ClockTime(r.DueAt), console.ClockTime(r.FiredAt),
					r.Trigger}
			})
	})
}

// scheduleDelete removes a schedule.
type scheduleDelete struct {
	scheduleArg
	reasonFlag
	serverFlags
}

// Run removes it.
func (cmd *scheduleDelete) Run(c *session) error {
	r := request{method: http.MethodDelete, in: cmd}.forSchedule(cmd.ID)
	return c.done(r, "%s is removed; callbacks that it has made stay", console.Printable(cmd.ID))
}

// scheduleFields are what can be said of a schedule, whether it is made or changed.
type scheduleFields struct {
	Name         string `in:"name" placeholder:"TEXT" help:"Its name, which no other schedule of the project has."`
	Cron         string `in:"cron" placeholder:"SPEC" help:"When: five fields as in crontab, such as \"30 1 * * *\"; @daily and the like; or \"@every 10m\"."`
	Timezone     string `in:"timezone" placeholder:"ZONE" help:"Where the fields are read, such as Asia/Shanghai. Default: UTC."`
	Missed       string `in:"missed" placeholder:"once|skip" help:"What becomes of times at which no dispatcher ran: one callback for all of them, or none. Default: once."`
	Callback     string `placeholder:"JSON|@FILE|-" help:"The callback that it makes, as POST /v1/callbacks takes it: {\"url\": \"https://shop.example/close\", \"payload\": {}, \"policy\": \"payment\"}."`
	CallbackFile string `placeholder:"FILE" help:"The same from a file; - is the standard input."`
	URL          string `placeholder:"URL" help:"Or, for the plain case: the address that is called, by POST, with --payload."`
	Endpoint     string `placeholder:"ID|EXTERNAL_ID" help:"The endpoint that is called, with --payload."`
	Payload      string `placeholder:"JSON|@FILE|-" help:"With --url or --endpoint: what is sent, JSON."`
	changeFlags
}

// putCallback writes the callback, if one was given, in one of its ways.
func (f *scheduleFields) putCallback(c *session, in body) (err error) {
	plain := body{}
	if f.URL != "" {
		plain["url"] = f.URL
	}
	if f.Endpoint != "" {
		plain["endpoint"] = f.Endpoint
	}
	if f.Payload != "" {
		plain["payload"], err = readJSON(c, "payload", f.Payload)
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
	case f.Callback != "" && f.CallbackFile != "" || value != "" && len(plain) > 0:
		return console.Wrong("give the callback in one way: --callback, --callback-file, or --url or " +
			"--endpoint with --payload")
	case value != "":
		in["callback"], err = readObject(c, flag, value)
	case len(plain) == 0:
	case f.URL == "" && f.Endpoint == "":
		return console.Wrong("--payload needs --url or --endpoint")
	default:
		in["callback"] = plain
	}
	return err
}

// scheduleCreate makes a schedule.
type scheduleCreate struct {
	scheduleFields
	Disabled bool `in:"enabled,not" aliases:"disable" help:"Make it disabled: it makes no callback until it is enabled."`
}

// Run makes it, and says when it is due first.
func (cmd *scheduleCreate) Run(c *session) error {
	in, err := cmd.body(c, cmd)
	switch {
	case err != nil:
		return err
	case cmd.Name == "":
		return console.Wrong("give --name")
	case cmd.Cron == "":
		return console.Wrong("give --cron: when it makes its callback")
	case in["callback"] == nil:
		return console.Wrong("give the callback that it makes: --callback, --callback-file, or --url or " +
			"--endpoint with --payload")
	}
	return cmd.hand(c, post("/v1/schedules", in), "made")
}

// body is that of the request of a command that has these flags.
func (f *scheduleFields) body(c *session, cmd any) (body, error) {
	in, err := bodyOf(c, cmd)
	if err == nil {
		err = f.putCallback(c, in)
	}
	return in, err
}

// hand makes the request that makes or changes a schedule, and says what became of it.
func (f *scheduleFields) hand(c *session, r request, done string) error {
	return ask(c, r, func(s *client.Schedule) {
		when := "it is disabled"
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
	Enabled  bool `in:"enabled" xor:"enabled" aliases:"enable" help:"Enable it: its next time counts from now."`
	Disabled bool `in:"enabled,not" xor:"enabled" aliases:"disable" help:"Disable it: it makes no callback until it is enabled."`
}

// Help is what schedule set --help says below the flags' summary.
func (*scheduleSet) Help() string {
	return "What is not given stays. The callback is given whole, in whichever way: what is not named " +
		"again is gone. A new cron or time zone, and enabling, " +
		"count the next time from now."
}

// Run changes it.
func (cmd *scheduleSet) Run(c *session) error {
	in, err := cmd.body(c, cmd)
	if err == nil && !in.changes() {
		err = console.Wrong("nothing to change: give what is to be another")
	}
	if err != nil {
		return err
	}
	return cmd.hand(c, request{method: http.MethodPatch, in: in}.forSchedule(cmd.ID), "changed")
}
