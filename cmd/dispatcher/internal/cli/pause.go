package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// pauseFlags say for how long something is held, and why.
type pauseFlags struct {
	For    string `xor:"end" placeholder:"DURATION" help:"Hold it for so long, such as 2h. Default, without --until too: until it is resumed."`
	Until  string `xor:"end" placeholder:"TIME" help:"Hold it until this time, RFC 3339."`
	Reason string `placeholder:"TEXT" help:"Why: it is shown to whoever asks what holds it, and kept in the audit."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines."`
}

// request is the body of the call; nil: nothing was given.
func (f *pauseFlags) request() any {
	in := map[string]any{}
	putTexts(in, map[string]string{"for": f.For, "until": f.Until, "reason": f.Reason})
	if len(in) == 0 {
		return nil
	}
	return in
}

// resumeFlags are those of every resume.
type resumeFlags struct {
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines."`
}

// A shownPause is how the API tells that something is held.
type shownPause struct {
	Paused      bool       `json:"paused"`
	PausedUntil *time.Time `json:"paused_until"`
	PauseReason string     `json:"pause_reason"`
}

// sentence says for how long it is held, and why.
func (p *shownPause) sentence() string {
	s := "until it is resumed"
	if p.PausedUntil != nil {
		s = "until " + console.ClockTime(p.PausedUntil)
	}
	if p.PauseReason != "" {
		s += ": " + console.Short(p.PauseReason, console.Widest)
	}
	return s
}

// PauseCommand holds all that a project sends.
type PauseCommand struct {
	remote.Flags
	pauseFlags
}

// Help is what pause --help says below the flags' summary.
func (*PauseCommand) Help() string {
	return "Callbacks are accepted as before and none is dropped; within a second no new attempt begins, and what is on the wire ends. \"dispatcher endpoint pause\" and " +
		"\"dispatcher lane pause\" hold one destination alone."
}

// A projectPause is what the API says of a whole project.
type projectPause struct {
	Project string `json:"project"`
	shownPause
}

// Run holds the project.
func (cmd *PauseCommand) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var p projectPause
	answer, err := cl.Call(ctx, http.MethodPost, "/v1/pause", cmd.request(), &p)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	fmt.Fprintf(c.Out, "nothing of the project %s is sent %s\n", console.Printable(p.Project), p.sentence())
	return nil
}

// ResumeCommand lets a project go on.
type ResumeCommand struct {
	remote.Flags
	resumeFlags
}

// Run lets the project go on.
func (cmd *ResumeCommand) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var p projectPause
	answer, err := cl.Call(ctx, http.MethodPost, "/v1/resume", reasonOf(cmd.Reason), &p)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	fmt.Fprintf(c.Out, "the project %s goes on; endpoints and lanes that are paused by themselves stay so\n", console.Printable(p.Project))
	return nil
}
