package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// VerifyCommand compares SQL with the index through the running server, which alone sees both at once.
type VerifyCommand struct {
	serverFlags
	All     bool `help:"Name every id of each difference, not only an example."`
	Unknown bool `xor:"form" help:"Print only the ids that the index holds and SQL does not know, all of them, one a line; what else is found goes to the error output."`
	JSON    bool `xor:"form" help:"Print the server's answer for machines."`
}

// Help is what verify --help says below the flags' summary.
func (*VerifyCommand) Help() string {
	return "It is of all projects, so that it needs the admin key of the settings. " +
		"What differs for a moment because it is on its way is left out: a difference counts when it is seen twice, two seconds apart. " +
		"The exit code is 1 if anything differs. After SQL was restored from a backup: \"dispatcher serve --hold\", then " +
		"\"dispatcher verify --unknown > ids.txt\" (see docs/guide/operations.md)."
}

// Run prints what differs, and ends with 1 if anything does.
func (cmd *VerifyCommand) Run(c *session) error {
	c.maxAnswer = maxVerifyAnswer
	in := body{}
	if cmd.All || cmd.Unknown {
		in["all"] = true
	}
	var d client.Drift
	answer, err := c.call(post("/v1/index/verify", in), &d)
	if err != nil {
		return err
	}
	switch {
	case cmd.JSON:
		err = c.PrintJSON(answer)
	case cmd.Unknown:
		showDrift(c, c.Err, &d, false)
		for _, id := range d.UnknownIDs {
			_, err = fmt.Fprintln(c.Out, id)
			if err != nil {
				break
			}
		}
	default:
		showDrift(c, c.Out, &d, cmd.All)
	}
	if err != nil {
		return fmt.Errorf("write what differs: %w", err)
	}
	if !d.Clean {
		return console.ErrShown
	}
	return nil
}

// A difference is one kind of drift, what it means, and what mends it.
type difference struct {
	name          string
	count         int
	ids           []string
	meaning, cure string
}

// differencesOf are those that there can be, worst first.
func differencesOf(d *client.Drift) []difference {
	return []difference{
		{"unknown", d.Unknown, d.UnknownIDs,
			"in the index, and SQL has no row of them: accepted after the backup that SQL was restored from, or another database's index; nothing is sent for them",
			"have their senders hand them over again (\"dispatcher import\"), with sending held until then (serve --hold); keep the ids with \"dispatcher verify --unknown > ids.txt\"; then run \"dispatcher rebuild\""},
		{"missing", d.Missing, d.MissingIDs,
			"open in SQL, and not in the index: they would be sent late",
			"none needed: the sweep gives them back within 20 s after they fall due; \"dispatcher rebuild\" does it at once"},
		{"late", d.Late, d.LateIDs,
			"in the index for a later time than SQL says",
			"none needed: the sweep moves them once they are due; \"dispatcher rebuild\" does it at once"},
		{"ended", d.Ended, d.EndedIDs,
			"in the index, and terminal in SQL: nothing is sent for them",
			"none needed: each is dropped when it falls due; \"dispatcher rebuild\" drops them at once"},
	}
}

func showDrift(c *session, w io.Writer, d *client.Drift, all bool) {
	fmt.Fprintf(w, "compared %d open callbacks in SQL with %d items of the index\n", d.Rows, d.Items)
	if d.BeyondHorizon > 0 {
		fmt.Fprintf(w, "%d callbacks are due beyond the horizon: the index is given them when their time "+
			"comes\n", d.BeyondHorizon)
	}
	if d.Clean {
		fmt.Fprintln(w, c.Paint("they agree", console.Green))
		return
	}
	fmt.Fprintln(w, c.Paint("they differ", console.Red)+" (seen twice, two seconds apart)")
	if d.Generation != d.IndexGeneration {
		fmt.Fprintf(w, "\n%s: the index has generation %d, SQL says %d; sending is held, so it was left as "+
			"it was found\n  cure: \"dispatcher rebuild\", or a start without --hold; both empty it and fill it from SQL, so look at what is unknown first\n",
			c.Paint("generation", console.Bold), d.IndexGeneration, d.Generation)
	}
	for _, f := range differencesOf(d) {
		if f.count == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s: %d %s\n  cure: %s\n", c.Paint(f.name, console.Bold), f.count, f.meaning, f.cure)
		some := f.ids[:min(len(f.ids), shownIDs)]
		switch {
		case all:
			for _, id := range f.ids {
				fmt.Fprintf(w, "  %s\n", id)
			}
		case len(some) > 0 && f.count > len(some):
			fmt.Fprintf(w, "  %s and %d more (--all names them)\n", strings.Join(some, " "),
				f.count-len(some))
		case len(some) > 0:
			fmt.Fprintf(w, "  %s\n", strings.Join(some, " "))
		}
	}
}

const (
	// shownIDs is how many ids of a difference people are shown as examples.
	shownIDs = 3
	// maxVerifyAnswer has room for the ids of some thirty million differences.
	maxVerifyAnswer = 1 << 30
)

// RebuildCommand rebuilds the index through the running server.
type RebuildCommand struct {
	DryRun bool `in:"dry_run" help:"Only say what would be put into the index."`
	changeFlags
}

// Help is what rebuild --help says below the flags' summary.
func (*RebuildCommand) Help() string {
	return "The index is that of all projects, so that this needs the admin key of the settings."
}

// Run rebuilds and says how much.
func (cmd *RebuildCommand) Run(c *session) error {
	return ask(c, post("/v1/index/rebuild", cmd), func(report *client.Rebuild) {
		if report.DryRun {
			c.printf("a rebuild would put %d open callbacks into the index, %d of them in flight; nothing "+
				"was changed\n", report.Open, report.Claimed)
			return
		}
		c.printf("the index was rebuilt in %s: %d open callbacks, %d of them in flight, generation %d\n",
			report.Took, report.Open, report.Claimed, report.Generation)
	})
}
