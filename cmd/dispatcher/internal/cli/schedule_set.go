package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// scheduleFields are what can be said of a schedule, whether it is made or changed.
type scheduleFields struct {
	Name         string `placeholder:"TEXT" help:"Its name, which no other schedule of the project has."`
	Cron         string `placeholder:"SPEC" help:"When: five fields as in crontab, such as \"30 1 * * *\"; @daily and the like; or \"@every 10m\"."`
	Timezone     string `placeholder:"ZONE" help:"Where the fields are read, such as Asia/Shanghai. Default: UTC."`
	Missed       string `placeholder:"once|skip" help:"What becomes of times at which no dispatcher ran: one callback for all of them, or none. Default: once."`
	Callback     string `placeholder:"JSON|@FILE|-" help:"The callback that it makes, as POST /v1/callbacks takes it: {\"url\": \"https://shop.example/close\", \"payload\": {}, \"policy\": \"payment\"}."`
	CallbackFile string `placeholder:"FILE" help:"The same from a file; - is the standard input."`
	URL          string `name:"url" placeholder:"URL" help:"Or, for the plain case: the address that is called, by POST, with --payload."`
	Endpoint     string `placeholder:"ID|EXTERNAL_ID" help:"The endpoint that is called, with --payload."`
	Payload      string `placeholder:"JSON|@FILE|-" help:"With --url or --endpoint: what is sent, JSON."`
	changeFlags
}

// put writes what was given into the body of a request.
func (f *scheduleFields) put(c *console.Console, in body) error {
	in.texts("name", f.Name, "cron", f.Cron, "timezone", f.Timezone, "missed", f.Missed)
	return f.putCallback(c, in)
}

// putCallback writes the callback, if one was given, in one of its ways.
func (f *scheduleFields) putCallback(c *console.Console, in body) error {
	plain := body{}
	plain.texts("url", f.URL, "endpoint", f.Endpoint)
	if err := plain.json(c, "payload", f.Payload); err != nil {
		return err
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
		callback, err := readObject(c, flag, value)
		in["callback"] = callback
		return err
	case len(plain) == 0:
		return nil
	case f.URL == "" && f.Endpoint == "":
		return console.Wrong("--payload needs --url or --endpoint")
	}
	in["callback"] = plain
	return nil
}

// scheduleCreate makes a schedule.
type scheduleCreate struct {
	scheduleFields
	Disabled bool `aliases:"disable" help:"Make it disabled: it makes no callback until it is enabled."`
}

// Run makes it, and says when it is due first.
func (cmd *scheduleCreate) Run(ctx context.Context, c *console.Console) error {
	in := body{}
	if err := cmd.put(c, in); err != nil {
		return err
	}
	switch {
	case cmd.Name == "":
		return console.Wrong("give --name")
	case cmd.Cron == "":
		return console.Wrong("give --cron: when it makes its callback")
	case in["callback"] == nil:
		return console.Wrong("give the callback that it makes: --callback, --callback-file, or --url or --endpoint with --payload")
	}
	if cmd.Disabled {
		in["enabled"] = false
	}
	return cmd.hand(ctx, c, post("/v1/schedules", in), in, "made")
}

// hand makes the request that makes or changes a schedule, with the reason in its body, and says what became of it.
func (f *scheduleFields) hand(ctx context.Context, c *console.Console, r request, in body, done string) error {
	in.texts("reason", f.Reason)
	return ask(ctx, c, f.answerFlags, r, func(s *client.Schedule) {
		when := "it is disabled"
		if s.Enabled && !s.NextAt.IsZero() {
			when = "next " + console.ClockTime(s.NextAt) + wallTime(s.NextAt, s.Timezone) + ", " + nextRun(c, s, time.Now())
		}
		fmt.Fprintf(c.Out, "%s  %s  %s; %s\n", console.Printable(s.ID), console.Short(s.Name, console.Widest), done, when)
	})
}

// scheduleSet changes a schedule.
type scheduleSet struct {
	ID string `arg:"" help:"Id of the schedule."`
	scheduleFields
	Enabled  bool `xor:"enabled" aliases:"enable" help:"Enable it: its next time counts from now."`
	Disabled bool `xor:"enabled" aliases:"disable" help:"Disable it: it makes no callback until it is enabled."`
}

// Help is what schedule set --help says below the flags' summary.
func (*scheduleSet) Help() string {
	return "What is not given stays. The callback is given whole, in whichever way: what is not named again is gone. A new cron or time zone, and enabling, " +
		"count the next time from now."
}

// Run changes it.
func (cmd *scheduleSet) Run(ctx context.Context, c *console.Console) error {
	in := body{}
	if err := cmd.put(c, in); err != nil {
		return err
	}
	if cmd.Enabled || cmd.Disabled {
		in["enabled"] = cmd.Enabled
	}
	if len(in) == 0 {
		return console.Wrong("nothing to change: give what is to be another")
	}
	r := request{method: http.MethodPatch, in: in}.forSchedule(cmd.ID)
	return cmd.hand(ctx, c, r, in, "changed")
}
