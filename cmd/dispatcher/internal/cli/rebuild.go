package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// RebuildCommand rebuilds the index through the running server.
type RebuildCommand struct {
	remote.Flags
	DryRun bool   `help:"Only say what would be put into the index."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines."`
}

// Help is what rebuild --help says below the flags' summary.
func (*RebuildCommand) Help() string {
	return "The index is that of all projects, so that this needs the admin key of the settings."
}

// Run rebuilds and says how much.
func (cmd *RebuildCommand) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	in := map[string]any{"dry_run": cmd.DryRun}
	if cmd.Reason != "" {
		in["reason"] = cmd.Reason
	}
	var report struct {
		DryRun     bool   `json:"dry_run"`
		Open       int    `json:"open"`
		Claimed    int    `json:"claimed"`
		Generation int64  `json:"generation"`
		Took       string `json:"took"`
	}
	answer, err := cl.Call(ctx, http.MethodPost, "/v1/index/rebuild", in, &report)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	if report.DryRun {
		fmt.Fprintf(c.Out, "a rebuild would put %d open callbacks into the index, %d of them in flight; nothing was changed\n", report.Open, report.Claimed)
		return nil
	}
	fmt.Fprintf(c.Out, "the index was rebuilt in %s: %d open callbacks, %d of them in flight, generation %d\n",
		console.Printable(report.Took), report.Open, report.Claimed, report.Generation)
	return nil
}
