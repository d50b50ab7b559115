package cli

import (
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// endpointTest sends a test.
type endpointTest struct {
	serverFlags
	ID      string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	Wait    bool   `help:"Wait until it has ended, show how, and exit with 1 unless it succeeded."`
	Timeout string `default:"90s" placeholder:"DURATION" help:"With --wait: how long to wait. Default: 90s."`
	JSON    bool   `name:"json" help:"Print JSON for machines: the callback, with --wait its attempts under \"attempts\"."`
}

// quietWait is how long nothing is said of a test that has not ended.
const quietWait = 3 * time.Second

// Run sends the test, and with --wait says how it ended.
func (cmd *endpointTest) Run(c *session) error {
	limit, err := schedule.ParseDuration(cmd.Timeout)
	if err != nil || limit <= 0 {
		return console.Wrong("--timeout: %q is not a duration such as 90s", cmd.Timeout)
	}
	r, err := post("/test", nil).forEndpoint(c, cmd.ID)
	if err != nil {
		return err
	}
	var cb client.Callback
	answer, err := c.call(r, &cb)
	switch {
	case err != nil:
		return err
	case cmd.Wait:
		return cmd.await(c, cb.ID, limit)
	case cmd.JSON:
		return console.PrintJSON(c.Console, answer)
	}
	c.printf("%s  is attempted once (see \"dispatcher callback get %[1]s\", or give --wait)\n", cb.ID)
	return nil
}

// await shows how a test ended, or what keeps it.
func (cmd *endpointTest) await(c *session, id string, limit time.Duration) error {
	began := time.Now()
	for said := false; ; {
		var cb client.Callback
		answer, err := c.call(get(remote.CallbackPath(id)), &cb)
		if err != nil {
			return err
		}
		if !cb.FinishedAt.IsZero() {
			return cmd.ended(c, &cb, answer)
		}
		waited := time.Since(began)
		if waited >= limit || !said && waited >= quietWait {
			var x client.Explanation
			if _, err := c.call(get(remote.CallbackPath(id)+"/explain"), &x); err != nil {
				return err
			}
			if waited >= limit {
				showExplanation(c, c.Err, &x)
				return fmt.Errorf("the test has not ended within %s; it stays open (see \"dispatcher callback get %s\")", limit, id)
			}
			fmt.Fprintf(c.Err, "still waiting: %s\n", x.Summary)
			said = true
		}
		console.Pause(c.ctx, min(max(waited/10, 20*time.Millisecond), time.Second))
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
}

// ended prints the attempt of a test that is terminal, and ends with 1 if it failed.
func (cmd *endpointTest) ended(c *session, cb *client.Callback, answer []byte) error {
	raw, err := remote.NewestAttempts(c.ctx, c.client, cb.ID, 0)
	if err != nil {
		return err
	}
	if cmd.JSON {
		if err := printWithAttempts(c, answer, raw); err != nil {
			return err
		}
	} else {
		list, err := safeAttempts(raw)
		if err != nil {
			return err
		}
		c.printf("%s  %s\n", cb.ID, stateText(c, cb))
		for i := range list {
			a := &list[i]
			colour := console.Red
			if a.Outcome == "succeeded" {
				colour = console.Green
			}
			c.printf("  %s %s  %s  after %.1fms\n", cb.Method, console.Short(cb.URL, console.Widest),
				c.Paint(answerText(a), colour), a.TimingsMs.Total)
		}
	}
	if cb.State != "succeeded" {
		return console.ExitStatus(console.ExitFailed)
	}
	return nil
}
