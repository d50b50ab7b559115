// Package importer hands over files of callbacks, one a line, through a running server. A run that is
// repeated makes nothing twice, and goes on where the last one ended.
package importer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// Command hands over a file of callbacks.
type Command struct {
	remote.Flags
	File   string `arg:"" placeholder:"FILE.ndjson" help:"File with one callback a line, as POST /v1/callbacks takes it; - reads the standard input."`
	Rate   string `placeholder:"N/s" help:"At most so many callbacks: 500/s, 6000/m, or a plain number for each second."`
	DryRun bool   `xor:"form" help:"Only check each line, without a server, which alone knows endpoints and policies of your own; nothing is sent, no file is written."`
	Resume bool   `xor:"form" help:"Go on where an earlier import of the same file ended."`
	JSON   bool   `help:"Print the summary for machines."`
}

// Help is what import --help says below the flags' summary.
func (*Command) Help() string {
	return "Lines go to the server in batches of at most 1000. A line that the server refuses does not " +
		"stop the others: it is written, with its number and " +
		"what is wrong, to FILE.errors.ndjson (for -, to the error output). A server that is away or overloaded is asked again, for 15 minutes.\n\n" +
		"An import that is run again makes nothing twice: a line without an idempotency_key gets one made of the file's hash and the line's number. " +
		"Keys are kept for as long as a callback is open, and at least 7 days; a callback that was sent by POST /v1/callbacks with the same key and the same bytes is " +
		"the same one. An edited file is another file: give each line an idempotency_key of its own (an order's number, say), or put the mended lines into a new file.\n\n" +
		"How far it came is kept in FILE.progress after every batch; --resume skips what was done. After SQL was restored from a backup run it without --resume."
}

// The most of one line, and of one batch: below what the server takes.
const (
	maxLine  = 512 << 10
	MaxBatch = 8 << 20
	MaxCount = 1000
)

// A summary is what an import comes to.
type summary struct {
	// Lines is how many lines were looked at, blank ones apart. Accepted are new, Replayed were accepted
	// before, Refused were not accepted.
	Lines    int `json:"lines"`
	Accepted int `json:"accepted"`
	Replayed int `json:"replayed"`
	Refused  int `json:"refused"`
	// Skipped lines were done by an earlier import that this one resumed.
	Skipped int    `json:"skipped"`
	DryRun  bool   `json:"dry_run"`
	Errors  string `json:"errors_file,omitempty"`
	Took    string `json:"took"`
}

// Run imports, or checks, and ends with 1 if a line was refused.
func (cmd *Command) Run(ctx context.Context, c *console.Console) error {
	rate, err := remote.ParseRate(cmd.Rate)
	if err != nil {
		return console.Wrong("--rate %s", err)
	}
	if cmd.File == "-" && cmd.Resume {
		return console.Wrong("--resume needs a file: what came by the standard input cannot be read again")
	}
	source, err := OpenSource(c, cmd.File)
	if err != nil {
		return err
	}
	defer source.Close()
	began := time.Now()
	var sum *summary
	if cmd.DryRun {
		sum, err = dryRun(ctx, c, source)
	} else {
		sum, err = cmd.send(ctx, c, source, rate)
	}
	if sum != nil {
		sum.Took = time.Since(began).Round(time.Millisecond).String()
		shown := cmd.show(c, sum, err != nil)
		if err == nil {
			err = shown
		}
	}
	if err == nil && sum.Refused > 0 {
		err = console.ErrPrinted
	}
	return err
}

// show prints the summary.
func (cmd *Command) show(c *console.Console, sum *summary, broken bool) error {
	if cmd.JSON {
		return c.PrintValue(sum)
	}
	var err error
	switch where := ""; {
	case sum.DryRun:
		_, err = fmt.Fprintf(c.Out, "%d lines: %d could be sent, %d could not; nothing was sent\n", sum.Lines,
			sum.Lines-sum.Refused, sum.Refused)
	default:
		if sum.Refused > 0 && sum.Errors != "" {
			where = " (see " + sum.Errors + ")"
		}
		verb := "imported"
		if broken {
			verb = "stopped after"
		}
		_, err = fmt.Fprintf(c.Out, "%s %d lines in %s: %d accepted, %d were accepted before, %d refused%s",
			verb, sum.Lines, sum.Took, sum.Accepted, sum.Replayed, sum.Refused, where)
		if sum.Skipped > 0 {
			_, err = fmt.Fprintf(c.Out, "; %d lines were done by an earlier import", sum.Skipped)
		}
		fmt.Fprintln(c.Out)
	}
	return err
}

// send imports the source.
func (cmd *Command) send(ctx context.Context, c *console.Console, source *Source,
	rate float64) (*summary, error) {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return nil, err
	}
	books, err := openBooks(c, source, cmd.Resume)
	if err != nil {
		return nil, err
	}
	im := &importer{c: c, cl: cl, source: source, books: books, rate: rate}
	im.sum.Skipped = books.done.Lines
	im.sum.Errors = books.errorsPath
	im.bar = NewBar(c, source.Lines, books.done.Line)
	err = im.run(ctx)
	im.bar.End(err != nil)
	closed := books.close()
	if err == nil {
		err = closed
	}
	if err != nil && cmd.File != "-" {
		err = &resumableError{err}
	}
	return &im.sum, err
}

// A resumableError ended an import that can be gone on with.
type resumableError struct{ error }

func (e *resumableError) Error() string {
	text := e.error.Error()
	if errors.Is(e.error, context.Canceled) {
		text = "interrupted"
	}
	return text + "; go on with --resume"
}

// dryRun checks every line as a server would, as far as that needs none.
func dryRun(ctx context.Context, c *console.Console, source *Source) (*summary, error) {
	sum := &summary{DryRun: true}
	for ctx.Err() == nil {
		line, more, err := source.Next()
		if err != nil {
			return sum, err
		}
		if !more {
			return sum, nil
		}
		sum.Lines++
		bad := line.Problem
		if bad == nil {
			if err := api.Check(line.Text, time.Now()); err != nil {
				bad = localProblem(err)
			}
		}
		if bad != nil {
			sum.Refused++
			fmt.Fprintf(c.Err, "line %d: %s\n", line.Number, remote.InLine(bad))
		}
	}
	return sum, ctx.Err()
}

// localProblem is an error of the check as the server would have put it.
func localProblem(err error) *client.Problem {
	var invalid *store.InvalidError
	if errors.As(err, &invalid) {
		p := &client.Problem{Status: 422, Code: "invalid",
			Detail: "the line is not a callback that can be accepted"}
		for _, f := range invalid.Fields {
			p.Errors = append(p.Errors, client.FieldError(f))
		}
		return p
	}
	return &client.Problem{Status: 422, Code: "invalid", Detail: err.Error()}
}
