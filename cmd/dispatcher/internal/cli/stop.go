package cli

import (
	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// StopCommand stops all sending, or shows whether it is stopped.
type StopCommand struct {
	Show   bool   `help:"Show whether sending is stopped, and change nothing."`
	For    string `in:"for" xor:"end" placeholder:"DURATION" help:"Stop for this long, such as 2h. Default: until \"dispatcher start\"."`
	Until  string `in:"until" xor:"end" placeholder:"TIME" help:"Stop until this time, RFC 3339."`
	Reason string `in:"reason" placeholder:"TEXT" help:"Reason; required. Everybody sees it while sending is stopped, and the audit log keeps it."`
	Yes    bool   `help:"Do not ask for confirmation on a terminal."`
	answerFlags
}

// Help is the text below the summary of stop --help.
func (*StopCommand) Help() string {
	return "Covers all projects and processes, so it needs the admin key of the settings. No callback is " +
		"dropped. Within a second no new attempt starts; attempts in flight end normally. The stop " +
		"survives restarts. To pause one project, use \"dispatcher pause\". With --show any key will do."
}

// Run stops sending after a confirmation.
func (cmd *StopCommand) Run(c *session) error {
	if cmd.Show {
		return printResponse(c, get("/v1/stop"), func(s *client.Stop) { printStop(c, s) })
	}
	if cmd.Reason == "" {
		return console.Wrong("give a --reason, or --show to see whether sending is stopped")
	}
	if !cmd.Yes && !c.Confirm("Stop all sending of every project?") {
		return console.Wrong("nothing was changed")
	}
	return printResponse(c, post("/v1/stop", cmd), func(s *client.Stop) { printStop(c, s) })
}

// printStop prints one line about the stop.
func printStop(c *session, s *client.Stop) {
	if !s.Stopped {
		c.printf("sending is on\n")
		return
	}
	end := "until \"dispatcher start\""
	if !s.Until.IsZero() {
		end = "until " + console.ClockTime(s.Until)
	}
	c.printf("all sending is stopped since %s, %s, by %s: %s\n", console.ClockTime(s.Since), end, s.By,
		console.Short(s.Reason, console.Widest))
}

// StartCommand ends a stop.
type StartCommand struct {
	Yes bool `help:"Do not ask for confirmation on a terminal."`
	changeFlags
}

// Help is the text below the summary of start --help.
func (*StartCommand) Help() string {
	return "Needs the admin key of the settings. Lanes start with few attempts at once, as after a pause. " +
		"What you paused stays paused."
}

// Run starts sending after a confirmation.
func (cmd *StartCommand) Run(c *session) error {
	if !cmd.Yes && !c.Confirm("Start sending of every project?") {
		return console.Wrong("nothing was changed")
	}
	return printResponse(c, post("/v1/start", cmd), func(s *client.Stop) { printStop(c, s) })
}
