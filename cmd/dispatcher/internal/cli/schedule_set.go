package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
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
	Reason       string `placeholder:"TEXT" help:"Why, for the audit."`
	JSON         bool   `name:"json" help:"Print the server's answer for machines."`
}

// put writes what was given into the body of a request.
func (f *scheduleFields) put(c *console.Console, in map[string]any) error {
	putTexts(in, map[string]string{"name": f.Name, "cron": f.Cron, "timezone": f.Timezone, "missed": f.Missed})
	return f.putCallback(c, in)
}

// putCallback writes the callback, if one was given, in one of its ways.
func (f *scheduleFields) putCallback(c *console.Console, in map[string]any) error {
	plain := map[string]any{}
	putTexts(plain, map[string]string{"url": f.URL, "endpoint": f.Endpoint})
	if err := putJSON(c, plain, "payload", "payload", f.Payload); err != nil {
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
		return &console.UsageError{Lines: []string{"give the callback in one way: --callback, --callback-file, or --url or --endpoint with --payload"}}
	case value != "":
		callback, err := readObject(c, flag, value)
		in["callback"] = callback
		return err
	case len(plain) == 0:
		return nil
	case f.URL == "" && f.Endpoint == "":
		return &console.UsageError{Lines: []string{"--payload needs --url or --endpoint"}}
	}
	in["callback"] = plain
	return nil
}

// scheduleCreate makes a schedule.
type scheduleCreate struct {
	remote.Flags
	scheduleFields
	Disabled bool `aliases:"disable" help:"Make it disabled: it makes no callback until it is enabled."`
}

// Run makes it, and says when it is due first.
func (cmd *scheduleCreate) Run(ctx context.Context, c *console.Console) error {
	in := map[string]any{}
	if err := cmd.put(c, in); err != nil {
		return err
	}
	switch {
	case cmd.Name == "":
		return &console.UsageError{Lines: []string{"give --name"}}
	case cmd.Cron == "":
		return &console.UsageError{Lines: []string{"give --cron: when it makes its callback"}}
	case in["callback"] == nil:
		return &console.UsageError{Lines: []string{"give the callback that it makes: --callback, --callback-file, or --url or --endpoint with --payload"}}
	}
	if cmd.Disabled {
		in["enabled"] = false
	}
	return cmd.hand(ctx, c, cmd.Flags, http.MethodPost, "", in, "made")
}

// hand makes the call that makes or changes a schedule, and says what became of it; no id: it is made.
func (f *scheduleFields) hand(ctx context.Context, c *console.Console, server remote.Flags, method, id string, in map[string]any, done string) error {
	putTexts(in, map[string]string{"reason": f.Reason})
	cl, err := remote.New(c, server)
	if err != nil {
		return err
	}
	var (
		s      shownSchedule
		answer []byte
	)
	if id == "" {
		answer, err = cl.Call(ctx, method, "/v1/schedules", in, &s)
	} else {
		answer, err = callSchedule(ctx, cl, method, id, "", in, &s)
	}
	if err != nil {
		return err
	}
	if f.JSON {
		return console.PrintJSON(c, answer)
	}
	when := "it is disabled"
	if s.Enabled && s.NextAt != nil {
		when = "next " + console.ClockTime(s.NextAt) + wallTime(s.NextAt, s.Timezone) + ", " + nextRun(c, &s, time.Now())
	}
	fmt.Fprintf(c.Out, "%s  %s; %s\n", s.title(), done, when)
	return nil
}

// scheduleSet changes a schedule.
type scheduleSet struct {
	remote.Flags
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
	in := map[string]any{}
	if err := cmd.put(c, in); err != nil {
		return err
	}
	if cmd.Enabled || cmd.Disabled {
		in["enabled"] = cmd.Enabled
	}
	if len(in) == 0 {
		return &console.UsageError{Lines: []string{"nothing to change: give what is to be another"}}
	}
	return cmd.hand(ctx, c, cmd.Flags, http.MethodPatch, cmd.ID, in, "changed")
}
