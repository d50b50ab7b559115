package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// RedriveCommand has the commands for redrives.
type RedriveCommand struct {
	Create  redriveCreate  `cmd:"" help:"Start one action on all callbacks that match a filter now, and show its progress."`
	List    redriveList    `cmd:"" help:"List redrives, newest first."`
	Get     redriveGet     `cmd:"" help:"Show one redrive; with --wait, until it has finished."`
	Pause   redrivePause   `cmd:"" help:"Pause a redrive."`
	Resume  redriveResume  `cmd:"" help:"Resume a paused redrive."`
	Approve redriveApprove `cmd:"" help:"Approve a redrive of another key or person that awaits it."`
	Cancel  redriveCancel  `cmd:"" help:"Cancel a redrive. What it has already changed stays changed."`
}

// redriveCreate starts a redrive.
type redriveCreate struct {
	Action      string `in:"action" arg:"" enum:"retry,cancel,reschedule,set_url" help:"Action: retry (attempt them now), cancel, reschedule (move them, needs --due-at or --delay) or set_url (needs --url)."`
	filterFlags `in:"filter" group:"Filter:"`
	EndReason   string `in:"filter.reason" group:"Filter:" placeholder:"REASON" help:"Only if they ended for this reason, such as exhausted."`
	Rate        string `in:"rate" placeholder:"N/s" help:"Maximum rate of callbacks: 100/s, 300/m, 10/h or 1/d. Default: 1000/s."`
	DryRun      bool   `in:"dry_run" xor:"how" help:"Only count the matching callbacks."`
	Ladder      string `in:"ladder" placeholder:"once|restart" help:"For retry: one more attempt, or a new retry schedule. Default: restart."`
	URL         string `in:"url" placeholder:"URL" help:"For set_url: the new URL."`
	DueAt       string `in:"due_at" xor:"time" placeholder:"TIME" help:"For reschedule: time of the next attempts, RFC 3339."`
	Delay       string `in:"delay" xor:"time" placeholder:"DURATION" help:"For reschedule: wait before the next attempts."`
	Detach      bool   `xor:"how" help:"Do not wait until the redrive has finished."`
	changeFlags
}

// Help is the text below the summary of redrive create --help.
func (*redriveCreate) Help() string {
	return "A redrive runs on the server, also if this command is interrupted: \"dispatcher redrive get ID " +
		"--wait\" shows it again. If it needs an approval (setting approval_above) the command ends with " +
		"exit code 3, and prints the command for the second person. Without --state, retry takes only " +
		"dead callbacks. Give at least one filter; to take all callbacks, name all states. A callback " +
		"that is being attempted, or whose state does not allow the action, stays unchanged and is " +
		"counted as such."
}

// Run starts the redrive and, without --detach, waits for its end.
func (cmd *redriveCreate) Run(c *session) error {
	r := post("/v1/redrives", cmd)
	if cmd.DryRun {
		return printResponse(c, r, func(tried *client.RedriveTried) {
			c.printf("%d callbacks match; nothing was changed\n", tried.Matched)
		})
	}
	var job client.Redrive
	answer, err := c.call(r, &job)
	switch {
	case err != nil:
		return err
	case !cmd.Detach:
		return awaitRedrive(c, job.ID, false)
	case c.json:
		return c.PrintJSON(answer)
	}
	c.printf("%s  started (see \"dispatcher redrive get %[1]s\")\n", job.ID)
	return nil
}

// Intervals between two looks at a redrive, and how long its server may be out of reach.
const (
	redriveLook    = 500 * time.Millisecond
	redriveUnknown = 15 * time.Minute
)

// awaitRedrive shows the progress of a redrive until it has finished, then prints it. It fails unless the
// redrive is done. Without throughApproval it also ends when the redrive awaits an approval.
func awaitRedrive(c *session, id string, throughApproval bool) error {
	progress := c.NewProgress("callbacks", 0)
	job, answer, err := watchRedrive(c, id, progress, throughApproval)
	progress.End(err != nil || job.State != "done")
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted; the redrive goes on: see \"dispatcher redrive get %s --wait\", or "+
			"end it with \"dispatcher redrive cancel %[1]s\"", id)
	case err != nil:
		return err
	case c.json:
		err = c.PrintJSON(answer)
	default:
		c.printf("%s\n", redriveSentence(&job))
	}
	switch {
	case err == nil && job.State == client.RedriveAwaiting:
		err = console.ErrAwaiting
	case err == nil && job.State != "done":
		err = console.ErrPrinted
	}
	return err
}

// watchRedrive reads a redrive again and again until it has finished. It survives a restart of the server.
func watchRedrive(
	c *session, id string, progress *console.Progress, throughApproval bool,
) (job client.Redrive, answer []byte, err error) {
	answered, state := time.Now(), ""
	for try := 0; ; {
		job = client.Redrive{}
		answer, err = c.call(get(redrivePath(id)).onMissing(noRedrive(id)), &job)
		wait, again := redriveLook, true
		if err != nil {
			wait, again = remote.Backoff(err, try)
			try++
		} else {
			try, answered = 0, time.Now()
			progress.Set(int(job.Done+job.Failed), int(job.Matched))
			if job.State != state && job.State == "paused" {
				progress.Log("the redrive is paused; \"dispatcher redrive resume " + id + "\" resumes it")
			}
			if job.State != state && job.State == client.RedriveAwaiting {
				progress.Log(awaitingText(&job))
			}
			state = job.State
			if !job.FinishedAt.IsZero() || state == client.RedriveAwaiting && !throughApproval {
				return job, answer, nil
			}
		}
		if c.ctx.Err() != nil {
			return job, answer, context.Canceled
		}
		if !again || time.Since(answered) > redriveUnknown {
			return job, answer, err
		}
		console.Pause(c.ctx, wait)
	}
}

// awaitingText says who may approve a redrive, until when and how.
func awaitingText(r *client.Redrive) string {
	return fmt.Sprintf("nothing is changed yet: the redrive of %d callbacks awaits an approval. Another "+
		"key or person with the scope operate must run \"dispatcher redrive approve %s\"; without an "+
		"approval it is canceled at %s", r.Matched, r.ID, console.ClockTime(r.ApproveBy))
}

// redriveSentence formats a redrive with its progress.
func redriveSentence(r *client.Redrive) string {
	s := fmt.Sprintf("%s  %s %s: %d of %d callbacks", r.ID, r.Action, r.State, r.Done, r.Matched)
	if r.Failed > 0 {
		s += fmt.Sprintf(", %d unchanged", r.Failed)
	}
	return s
}

// redrivePath returns the API path of one redrive.
func redrivePath(id string) string { return "/v1/redrives/" + url.PathEscape(id) }

// noRedrive is the error for an id that does not exist.
func noRedrive(id string) string { return fmt.Sprintf("no redrive has the id %q", id) }

// redriveList lists redrives.
type redriveList struct{ listFlags }

// Run prints the redrives.
func (cmd *redriveList) Run(c *session) error {
	header, now := "id, action, state, done, unchanged, matched, rate, started, by, reason", time.Now()
	return list(c, cmd.listFlags, "/v1/redrives", cmd, "there are no redrives", header,
		func(r *client.Redrive) []any {
			return []any{
				r.ID, r.Action, redriveState(c, r), r.Done, r.Failed, r.Matched, r.Rate,
				ago(r.CreatedAt, now), console.Short(r.Actor, 40), console.Short(r.Reason, 40),
			}
		})
}

// redriveState formats the state in a colour.
func redriveState(c *session, r *client.Redrive) string {
	switch r.State {
	case "done":
		return c.Paint(r.State, console.Green)
	case "paused", "canceled", client.RedriveAwaiting:
		return c.Paint(r.State, console.Yellow)
	}
	return c.Paint(r.State, console.Cyan)
}

// redriveArg is the argument that names a redrive.
type redriveArg struct {
	ID string `arg:"" help:"Id of the redrive, rd_ and 26 characters."`
}

// redriveGet shows one redrive.
type redriveGet struct {
	redriveArg
	Wait bool `help:"Show its progress until it has finished. The exit code is 1 unless it is done."`
	answerFlags
}

// Run prints the redrive.
func (cmd *redriveGet) Run(c *session) error {
	if cmd.Wait {
		return awaitRedrive(c, cmd.ID, true)
	}
	r := get(redrivePath(cmd.ID)).onMissing(noRedrive(cmd.ID))
	return printResponse(c, r, func(r *client.Redrive) {
		c.Lines(10, "redrive", r.ID, "action", string(r.Action), "state", redriveState(c, r),
			"filter", jsonText(r.Filter), "ladder", r.Ladder, "url", r.URL,
			"due", console.ClockTime(r.DueAt), "delay", string(r.Delay),
			"progress", fmt.Sprintf("%d of %d callbacks, %d unchanged", r.Done, r.Matched, r.Failed),
			"rate", r.Rate, "by", r.Actor, "reason", r.Reason,
			"approve by", console.ClockTime(r.ApproveBy), "approver", r.Approver,
			"approved", console.ClockTime(r.ApprovedAt), "started", console.ClockTime(r.CreatedAt),
			"finished", console.ClockTime(r.FinishedAt))
	})
}

// redriveChange are the argument and the flags of a command that pauses, resumes or cancels.
type redriveChange struct {
	redriveArg
	changeFlags
}

// run changes the redrive.
func (cmd *redriveChange) run(c *session, call string) error {
	r := post(redrivePath(cmd.ID)+"/"+call, cmd).onMissing(noRedrive(cmd.ID))
	return printResponse(c, r, func(r *client.Redrive) { c.printf("%s\n", redriveSentence(r)) })
}

// redrivePause pauses a redrive.
type redrivePause struct{ redriveChange }

// Run pauses the redrive.
func (cmd *redrivePause) Run(c *session) error { return cmd.run(c, "pause") }

// redriveResume resumes a redrive.
type redriveResume struct{ redriveChange }

// Run resumes the redrive.
func (cmd *redriveResume) Run(c *session) error { return cmd.run(c, "resume") }

// redriveApprove approves a redrive.
type redriveApprove struct{ redriveChange }

// Run approves the redrive.
func (cmd *redriveApprove) Run(c *session) error { return cmd.run(c, "approve") }

// redriveCancel cancels a redrive.
type redriveCancel struct{ redriveChange }

// Run cancels the redrive.
func (cmd *redriveCancel) Run(c *session) error { return cmd.run(c, "cancel") }
