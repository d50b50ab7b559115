package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// awaitAct shows the progress of an act until it has finished, then prints it. It fails unless the act is
// done, and if no row has the id that it is about.
func awaitAct(c *session, of *relayArg, id string) error {
	progress := c.NewProgress("rows", 0)
	s, answer, err := watchAct(c, of, id, progress)
	done := err == nil && s.Act.State == "done"
	progress.End(!done)
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted; the relay goes on: see \"dispatcher relay status %[1]s\", or end it "+
			"with \"dispatcher relay cancel %[1]s\"", of.Source)
	case err != nil:
		return err
	case c.json:
		err = c.PrintJSON(answer)
	default:
		c.printf("%s  %s\n", s.Name, actSentence(s.Act))
	}
	switch {
	case err != nil:
		return err
	case !done:
		return console.ErrPrinted
	case s.Act.RowID != "" && s.Act.Matched == 0:
		return fmt.Errorf("no refused row has the id %q; \"dispatcher relay refused %s\" lists them",
			s.Act.RowID, of.Source)
	}
	return nil
}

// watchAct reads the source again and again until its act has finished. It survives a restart of the server.
func watchAct(
	c *session, of *relayArg, id string, progress *console.Progress,
) (s client.RelaySource, answer []byte, err error) {
	answered, warned := time.Now(), ""
	for try := 0; ; {
		s = client.RelaySource{}
		answer, err = c.call(of.asked(get(of.path())), &s)
		wait, again := redriveLook, true
		if err != nil {
			wait, again = remote.Backoff(err, try)
			try++
		} else {
			try, answered = 0, time.Now()
			if s.Act == nil || s.Act.ID != id {
				return s, answer, errors.New("the act has finished, and another one was asked for since; " +
					"the audit log has both")
			}
			progress.Set(actedRows(s.Act), s.Act.Matched)
			if !actOpen(s.Act) {
				return s, answer, nil
			}
			if why := actDelay(&s); why != "" && why != warned {
				warned = why
				progress.Log(why)
			}
		}
		if c.ctx.Err() != nil {
			return s, answer, context.Canceled
		}
		if !again || time.Since(answered) > redriveUnknown {
			return s, answer, err
		}
		console.Pause(c.ctx, wait)
	}
}

// actOpen reports whether the act has not ended.
func actOpen(a *client.RelayAct) bool { return a.State == "waiting" || a.State == "running" }

// actDelay returns why an open act makes no progress. Empty: no reason is known.
func actDelay(s *client.RelaySource) string {
	switch {
	case s.Holder == "":
		return "no relay reads " + s.Name + "; the act begins when one does"
	case s.Act.Error != "":
		return "the " + s.Act.Action + " waits: " + console.Printable(s.Act.Error)
	case s.Error != "":
		return "the relay of " + s.Name + " is delayed: " + console.Printable(s.Error)
	}
	return ""
}

// actedRows is how many rows the relay has handled.
func actedRows(a *client.RelayAct) int { return a.Accepted + a.Replayed + a.Refused + a.Dropped }

// actSentence formats an act with its progress.
func actSentence(a *client.RelayAct) string {
	var rows string
	switch {
	case a.Action == "drop":
		rows = fmt.Sprintf("%d of %d refused rows deleted", a.Dropped, a.Matched)
	case a.DryRun:
		rows = fmt.Sprintf("%d kept rows; nothing was submitted", a.Matched)
	default:
		of := map[bool]string{true: "kept", false: "refused"}[a.Action == "replay"]
		rows = fmt.Sprintf("%d %s rows: %d accepted, %d replayed, %d refused", a.Matched, of, a.Accepted,
			a.Replayed, a.Refused)
	}
	text := a.Action + " " + a.State + ": " + rows
	if a.Error != "" {
		text += "; " + a.Error
	}
	return text
}
