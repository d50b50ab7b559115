package cli

import (
	"net/http"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// scheduleFields are what can be said of a schedule, whether it is made or changed.
type scheduleFields struct {
	Name         string `in:"name" placeholder:"TEXT" help:"Its name, which no other schedule of the project has."`
	Cron         string `in:"cron" placeholder:"SPEC" help:"When: five fields as in crontab, such as \"30 1 * * *\"; @daily and the like; or \"@every 10m\"."`
	Timezone     string `in:"timezone" placeholder:"ZONE" help:"Where the fields are read, such as Asia/Shanghai. Default: UTC."`
	Missed       string `in:"missed" placeholder:"once|skip" help:"What becomes of times at which no dispatcher ran: one callback for all of them, or none. Default: once."`
	Callback     string `placeholder:"JSON|@FILE|-" help:"The callback that it makes, as POST /v1/callbacks takes it: {\"url\": \"https://shop.example/close\", \"payload\": {}, \"policy\": \"payment\"}."`
	CallbackFile string `placeholder:"FILE" help:"The same from a file; - is the standard input."`
	URL          string `name:"url" placeholder:"URL" help:"Or, for the plain case: the address that is called, by POST, with --payload."`
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
		if plain["payload"], err = readJSON(c, "payload", f.Payload); err != nil {
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
		return console.Wrong("give the callback in one way: --callback, --callback-file, or --url or --endpoint with --payload")
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
		return console.Wrong("give the callback that it makes: --callback, --callback-file, or --url or --endpoint with --payload")
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
			when = "next " + console.ClockTime(s.NextAt) + wallTime(s.NextAt, s.Timezone) + ", " + nextRun(c, s, time.Now())
		}
		c.printf("%s  %s  %s; %s\n", s.ID, console.Short(s.Name, console.Widest), done, when)
	})
}

// scheduleSet changes a schedule.
type scheduleSet struct {
	ID string `arg:"" help:"Id of the schedule."`
	scheduleFields
	Enabled  bool `in:"enabled" xor:"enabled" aliases:"enable" help:"Enable it: its next time counts from now."`
	Disabled bool `in:"enabled,not" xor:"enabled" aliases:"disable" help:"Disable it: it makes no callback until it is enabled."`
}

// Help is what schedule set --help says below the flags' summary.
func (*scheduleSet) Help() string {
	return "What is not given stays. The callback is given whole, in whichever way: what is not named again is gone. A new cron or time zone, and enabling, " +
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
