package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// endpointTest sends a test.
type endpointTest struct {
	remote.Flags
	ID      string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	Wait    bool   `help:"Wait until it has ended, show how, and exit with 1 unless it succeeded."`
	Timeout string `default:"90s" placeholder:"DURATION" help:"With --wait: how long to wait. Default: 90s."`
	JSON    bool   `name:"json" help:"Print JSON for machines: the callback, with --wait its attempts under \"attempts\"."`
}

// quietWait is how long nothing is said of a test that has not ended.
const quietWait = 3 * time.Second

// Run sends the test, and with --wait says how it ended.
func (cmd *endpointTest) Run(ctx context.Context, c *console.Console) error {
	limit, err := schedule.ParseDuration(cmd.Timeout)
	if err != nil || limit <= 0 {
		return console.Wrong("--timeout: %q is not a duration such as 90s", cmd.Timeout)
	}
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	r, err := post("/test", nil).forEndpoint(ctx, cl, cmd.ID)
	if err != nil {
		return err
	}
	var cb client.Callback
	answer, err := r.made(ctx, cl, &cb)
	if err != nil {
		return err
	}
	if cmd.Wait {
		return cmd.await(ctx, c, cl, cb.ID, limit)
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	fmt.Fprintf(c.Out, "%s  is attempted once (see \"dispatcher callback get %[1]s\", or give --wait)\n", console.Printable(cb.ID))
	return nil
}

// await shows how a test ended, or what keeps it.
func (cmd *endpointTest) await(ctx context.Context, c *console.Console, cl *remote.Client, id string, limit time.Duration) error {
	began := time.Now()
	for said := false; ; {
		var cb client.Callback
		answer, err := cl.Call(ctx, http.MethodGet, remote.CallbackPath(id), nil, &cb)
		if err != nil {
			return err
		}
		if !cb.FinishedAt.IsZero() {
			return cmd.ended(ctx, c, cl, &cb, answer)
		}
		waited := time.Since(began)
		if waited >= limit || !said && waited >= quietWait {
			var x client.Explanation
			if _, err := cl.Call(ctx, http.MethodGet, remote.CallbackPath(id)+"/explain", nil, &x); err != nil {
				return err
			}
			if waited >= limit {
				showExplanation(c, c.Err, &x)
				return fmt.Errorf("the test has not ended within %s; it stays open (see \"dispatcher callback get %s\")", limit, console.Printable(id))
			}
			fmt.Fprintf(c.Err, "still waiting: %s\n", console.Printable(x.Summary))
			said = true
		}
		console.Pause(ctx, min(max(waited/10, 20*time.Millisecond), time.Second))
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// ended prints the attempt of a test that is terminal, and ends with 1 if it failed.
func (cmd *endpointTest) ended(ctx context.Context, c *console.Console, cl *remote.Client, cb *client.Callback, answer []byte) error {
	attempts, err := remote.NewestAttempts(ctx, cl, cb.ID, 0)
	if err != nil {
		return err
	}
	if cmd.JSON {
		if err := printWithAttempts(c, answer, attempts); err != nil {
			return err
		}
	} else {
		list, err := remote.DecodeAttempts(attempts)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "%s  %s\n", console.Printable(cb.ID), stateText(c, cb))
		for i := range list {
			a := &list[i]
			colour := console.Red
			if a.Outcome == "succeeded" {
				colour = console.Green
			}
			fmt.Fprintf(c.Out, "  %s %s  %s  after %.1fms\n", console.Printable(cb.Method), console.Short(cb.URL, console.Widest),
				c.Paint(answerText(a), colour), a.TimingsMs.Total)
		}
	}
	if cb.State != "succeeded" {
		return console.ExitStatus(console.ExitFailed)
	}
	return nil
}
