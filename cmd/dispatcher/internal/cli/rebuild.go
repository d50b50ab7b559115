package cli

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// RebuildCommand rebuilds the index through the running server.
type RebuildCommand struct {
	DryRun bool `help:"Only say what would be put into the index."`
	changeFlags
}

// Help is what rebuild --help says below the flags' summary.
func (*RebuildCommand) Help() string {
	return "The index is that of all projects, so that this needs the admin key of the settings."
}

// Run rebuilds and says how much.
func (cmd *RebuildCommand) Run(ctx context.Context, c *console.Console) error {
	in := body{"dry_run": cmd.DryRun}
	in.texts("reason", cmd.Reason)
	return ask(ctx, c, cmd.answerFlags, post("/v1/index/rebuild", in), func(report *client.Rebuild) {
		if report.DryRun {
			fmt.Fprintf(c.Out, "a rebuild would put %d open callbacks into the index, %d of them in flight; nothing was changed\n", report.Open, report.Claimed)
			return
		}
		fmt.Fprintf(c.Out, "the index was rebuilt in %s: %d open callbacks, %d of them in flight, generation %d\n",
			console.Printable(report.Took), report.Open, report.Claimed, report.Generation)
	})
}
