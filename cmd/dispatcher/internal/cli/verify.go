package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// VerifyCommand compares SQL with the index. The running server does it, because it can read both at once.
type VerifyCommand struct {
	serverFlags
	All     bool `help:"Print all ids of each difference, not only examples."`
	Unknown bool `xor:"form" help:"Print only the ids that the index has and SQL does not have, one per line. Everything else goes to the error output."`
	JSON    bool `xor:"form" help:"Print the server's response as JSON."`
}

// Help is the text below the summary of verify --help.
func (*VerifyCommand) Help() string {
	return "Compares all projects, so it needs the admin key of the settings. " +
		"SQL and the index differ for moments in normal operation. So a difference counts only if it is " +
		"seen twice, two seconds apart. The exit code is 1 if anything differs. After a restore of SQL " +
		"from a backup: \"dispatcher serve --hold\", then " +
		"\"dispatcher verify --unknown > ids.txt\" (see docs/guide/operations.md)."
}

// Run prints the differences. The exit code is 1 if there are any.
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
		return fmt.Errorf("write the differences: %w", err)
	}
	if !d.Clean {
		return console.ErrPrinted
	}
	return nil
}

// difference is one kind of difference between SQL and the index, with its meaning and its fix.
type difference struct {
	name         string
	count        int
	ids          []string
	meaning, fix string
}

// differencesOf returns all kinds of differences, worst first. A count can be zero.
func differencesOf(d *client.Drift) []difference {
	return []difference{
		{"unknown", d.Unknown, d.UnknownIDs,
			"in the index but not in SQL: either accepted after the backup that SQL was restored from, " +
				"or the index belongs to another database; they are not sent",
			"with sending off (serve --hold), store the ids (\"dispatcher verify --unknown > ids.txt\") " +
				"and let the senders submit these callbacks again (\"dispatcher import\"); " +
				"then run \"dispatcher rebuild\""},
		{"missing", d.Missing, d.MissingIDs,
			"open in SQL but not in the index: they would be sent late",
			"nothing: the sweep adds them within 20 s after they fall due; " +
				"\"dispatcher rebuild\" adds them now"},
		{"late", d.Late, d.LateIDs,
			"in the index with a later time than in SQL",
			"nothing: the sweep moves them once they are due; \"dispatcher rebuild\" moves them now"},
		{"ended", d.Ended, d.EndedIDs,
			"in the index but finished in SQL: they are not sent",
			"nothing: each is removed when it falls due; \"dispatcher rebuild\" removes them now"},
	}
}

// showDrift prints the differences with their meaning and what to do.
func showDrift(c *session, w io.Writer, d *client.Drift, all bool) {
	fmt.Fprintf(w, "compared %d open callbacks in SQL with %d items in the index\n", d.Rows, d.Items)
	if d.BeyondHorizon > 0 {
		fmt.Fprintf(w, "%d callbacks are due beyond the horizon and are loaded into the index later\n",
			d.BeyondHorizon)
	}
	if d.Clean {
		fmt.Fprintln(w, c.Paint("they agree", console.Green))
		return
	}
	fmt.Fprintln(w, c.Paint("they differ", console.Red)+" (seen twice, two seconds apart)")
	if d.Generation != d.IndexGeneration {
		fmt.Fprintf(w, "\n%s: the index has generation %d, SQL has %d; sending is off, so the index was not "+
			"changed\n  what to do: check the unknown ids first; then run \"dispatcher rebuild\" or start "+
			"without --hold: both empty the index and fill it from SQL\n",
			c.Paint("generation", console.Bold), d.IndexGeneration, d.Generation)
	}
	for _, f := range differencesOf(d) {
		if f.count == 0 {
			continue
		}
		name := c.Paint(f.name, console.Bold)
		fmt.Fprintf(w, "\n%s: %d %s\n  what to do: %s\n", name, f.count, f.meaning, f.fix)
		some := f.ids[:min(len(f.ids), exampleIDs)]
		switch {
		case all:
			for _, id := range f.ids {
				fmt.Fprintf(w, "  %s\n", id)
			}
		case len(some) > 0 && f.count > len(some):
			fmt.Fprintf(w, "  %s and %d more (--all lists them)\n", strings.Join(some, " "),
				f.count-len(some))
		case len(some) > 0:
			fmt.Fprintf(w, "  %s\n", strings.Join(some, " "))
		}
	}
}

const (
	// exampleIDs is how many ids of a difference are printed without --all.
	exampleIDs = 3
	// maxVerifyAnswer is enough for the ids of about thirty million differences.
	maxVerifyAnswer = 1 << 30
)

// RebuildCommand rebuilds the index through the running server.
type RebuildCommand struct {
	DryRun bool `in:"dry_run" help:"Only print what would be put into the index."`
	changeFlags
}

// Help is the text below the summary of rebuild --help.
func (*RebuildCommand) Help() string {
	return "Rebuilds the index of all projects, so it needs the admin key of the settings."
}

// Run rebuilds the index and prints the number of callbacks.
func (cmd *RebuildCommand) Run(c *session) error {
	r := post("/v1/index/rebuild", cmd)
	show := func(report *client.Rebuild) {
		if report.DryRun {
			c.printf("a rebuild would put %d open callbacks into the index, %d of them in flight; nothing "+
				"was changed\n", report.Open, report.Claimed)
			return
		}
		c.printf("the index was rebuilt in %s: %d open callbacks, %d of them in flight, generation %d\n",
			report.Took, report.Open, report.Claimed, report.Generation)
	}
	if err := r.fill(c); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if cmd.DryRun {
		return printResponse(c, r, show)
	}
	progress := c.NewProgress("callbacks", 0)
	watched := *c
	ctx, stop := context.WithCancel(c.ctx)
	defer stop()
	watched.ctx = ctx
	var watcher sync.WaitGroup
	watcher.Go(func() { watchRebuild(&watched, progress) })
	var report client.Rebuild
	answer, err := c.call(r, &report)
	stop()
	watcher.Wait()
	if err == nil {
		progress.Set(report.Open, report.Open)
	}
	progress.End(err != nil)
	switch {
	case err != nil:
		return err
	case c.json:
		return c.PrintJSON(answer)
	}
	show(&report)
	return nil
}

// rebuildLook is the time between two looks at a rebuild.
const rebuildLook = time.Second

// watchRebuild shows the growing size of the index until the session ends. It only informs, so it ignores
// errors. For a bar it first counts what the index will have.
func watchRebuild(c *session, progress *console.Progress) {
	var counted client.Rebuild
	if progress.Drawn() {
		if _, err := c.call(post("/v1/index/rebuild", body{"dry_run": true}), &counted); err != nil {
			counted = client.Rebuild{}
		}
	}
	for {
		console.Pause(c.ctx, rebuildLook)
		if c.ctx.Err() != nil {
			return
		}
		var s client.Stats
		_, err := c.call(get("/v1/stats"), &s)
		if x, ok := s.Index.Get(); ok && err == nil {
			progress.Set(int(x.Delayed+x.Ready+x.Leased), counted.Open)
		}
	}
}
