package cli

import (
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// endpointTest sends a test callback.
type endpointTest struct {
	serverFlags
	endpointArg
	reasonFlag
	Wait    bool   `help:"Wait for the result and print it. The exit code is 1 unless the test succeeded."`
	Timeout string `default:"90s" placeholder:"DURATION" help:"With --wait: maximum time to wait. Default: 90s."`
	JSON    bool   `help:"Print the callback as JSON, with --wait including its attempts."`
}

// quietWait is the time after which a waiting command says why the test has not ended.
const quietWait = 3 * time.Second

// Run sends the test. With --wait it prints the result.
func (cmd *endpointTest) Run(c *session) error {
	limit, err := schedule.ParseDuration(cmd.Timeout)
	if err != nil || limit <= 0 {
		return console.Wrong("--timeout: %q is not a duration such as 90s", cmd.Timeout)
	}
	r, err := post("/test", cmd).forEndpoint(c, cmd.ID)
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
		return c.PrintJSON(answer)
	}
	c.printf("%s  sent (see \"dispatcher callback get %[1]s\", or use --wait)\n", cb.ID)
	return nil
}

// await prints the result of a test or, after quietWait, why it is waiting. It fails after limit.
func (cmd *endpointTest) await(c *session, id string, limit time.Duration) error {
	began := time.Now()
	for explained := false; ; {
		var cb client.Callback
		answer, err := c.call(get(remote.CallbackPath(id)), &cb)
		if err != nil {
			return err
		}
		if !cb.FinishedAt.IsZero() {
			return cmd.ended(c, &cb, answer)
		}
		waited := time.Since(began)
		if waited >= limit || !explained && waited >= quietWait {
			var x client.Explanation
			if _, err := c.call(get(remote.CallbackPath(id)+"/explain"), &x); err != nil {
				return err
			}
			if waited >= limit {
				showExplanation(c, c.Err, &x)
				return fmt.Errorf("the test has not ended within %s and stays open "+
					"(see \"dispatcher callback get %s\")", limit, id)
			}
			fmt.Fprintf(c.Err, "still waiting: %s\n", x.Summary)
			explained = true
		}
		console.Pause(c.ctx, min(max(waited/10, 20*time.Millisecond), time.Second))
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
}

// ended prints the attempts of a finished test. Its error has exit code 1 if the test failed.
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
		return console.ErrPrinted
	}
	return nil
}
