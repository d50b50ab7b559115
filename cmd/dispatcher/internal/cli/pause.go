package cli

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// pauseFlags say for how long something is held, and why.
type pauseFlags struct {
	For    string `xor:"end" placeholder:"DURATION" help:"Hold it for so long, such as 2h. Default, without --until too: until it is resumed."`
	Until  string `xor:"end" placeholder:"TIME" help:"Hold it until this time, RFC 3339."`
	Reason string `placeholder:"TEXT" help:"Why: it is shown to whoever asks what holds it, and kept in the audit."`
	answerFlags
}

// body is that of the request; nil: nothing was given.
func (f *pauseFlags) body() any {
	in := body{}
	in.texts("for", f.For, "until", f.Until, "reason", f.Reason)
	if len(in) == 0 {
		return nil
	}
	return in
}

// pausedText says for how long something is held, and why.
func pausedText(p *client.Pause) string {
	s := "until it is resumed"
	if !p.PausedUntil.IsZero() {
		s = "until " + console.ClockTime(p.PausedUntil)
	}
	if p.PauseReason != "" {
		s += ": " + console.Short(p.PauseReason, console.Widest)
	}
	return s
}

// PauseCommand holds all that a project sends.
type PauseCommand struct{ pauseFlags }

// Help is what pause --help says below the flags' summary.
func (*PauseCommand) Help() string {
	return "Callbacks are accepted as before and none is dropped; within a second no new attempt begins, and what is on the wire ends. \"dispatcher endpoint pause\" and " +
		"\"dispatcher lane pause\" hold one destination alone."
}

// Run holds the project.
func (cmd *PauseCommand) Run(ctx context.Context, c *console.Console) error {
	return ask(ctx, c, cmd.answerFlags, post("/v1/pause", cmd.body()), func(p *client.ProjectPause) {
		fmt.Fprintf(c.Out, "nothing of the project %s is sent %s\n", console.Printable(p.Project), pausedText(&p.Pause))
	})
}

// ResumeCommand lets a project go on.
type ResumeCommand struct{ changeFlags }

// Run lets the project go on.
func (cmd *ResumeCommand) Run(ctx context.Context, c *console.Console) error {
	return ask(ctx, c, cmd.answerFlags, post("/v1/resume", reasonOf(cmd.Reason)), func(p *client.ProjectPause) {
		fmt.Fprintf(c.Out, "the project %s goes on; endpoints and lanes that are paused by themselves stay so\n", console.Printable(p.Project))
	})
}
