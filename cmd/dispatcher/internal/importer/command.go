// Package importer submits files of callbacks, one per line, to a running server. A repeated run creates no
// callback twice. It can continue where the last run stopped.
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

// Command imports a file of callbacks.
type Command struct {
	remote.Flags
	File   string `arg:"" placeholder:"FILE.ndjson" help:"File with one callback per line, the body of POST /v1/callbacks. - reads the standard input."`
	Rate   string `placeholder:"N/s" help:"Maximum rate of callbacks: 500/s, 6000/m, or a number per second."`
	DryRun bool   `xor:"form" help:"Only check the lines. Needs no server, so endpoints and your own policies are not checked. Sends nothing and writes no file."`
	Resume bool   `xor:"form" help:"Continue where an earlier import of the same file stopped."`
	JSON   bool   `help:"Print the summary as JSON."`
}

// Help is the text below the summary of import --help.
func (*Command) Help() string {
	return "Lines are sent in batches of up to 1000. A refused line does not stop the others: it is " +
		"written with its number and the error to FILE.errors.ndjson (for -, to the error output). " +
		"If the server is down or overloaded, the import retries for 15 minutes.\n\n" +
		"You can run an import again; no callback is created twice. A line without an idempotency_key gets " +
		"one from the hash of the file and the line number. Keys are kept while a callback is open, and at " +
		"least 7 days. A callback that was sent by POST /v1/callbacks with the same key and the same bytes " +
		"is not created again either. An edited file has another hash. So give each line its own " +
		"idempotency_key, such as an order number, or put the fixed lines into a new file.\n\n" +
		"The progress is stored in FILE.progress after every batch; --resume skips the finished lines. " +
		"After SQL was restored from a backup, run the import without --resume."
}

// Limits of a line in bytes, and of a batch in bytes and lines. They are below the server's limits.
const (
	maxLine  = 512 << 10
	MaxBatch = 8 << 20
	MaxCount = 1000
)

// summary is the result of an import.
type summary struct {
	// Lines is the number of lines that are not blank. Accepted lines are new, Replayed ones were accepted
	// before, and Refused ones were not accepted.
	Lines    int `json:"lines"`
	Accepted int `json:"accepted"`
	Replayed int `json:"replayed"`
	Refused  int `json:"refused"`
	// Canceled counts the Replayed lines whose callback is canceled, so that it is not sent.
	Canceled int `json:"canceled"`
	// Skipped lines were finished by the earlier import that this one continues.
	Skipped int    `json:"skipped"`
	DryRun  bool   `json:"dry_run"`
	Errors  string `json:"errors_file,omitempty"`
	Took    string `json:"took"`
}

// Run imports or checks the file. The exit code is 1 if a line was refused.
func (cmd *Command) Run(ctx context.Context, c *console.Console) error {
	rate, err := remote.ParseRate(cmd.Rate)
	if err != nil {
		return console.Wrong("--rate %s", err)
	}
	if cmd.File == "-" && cmd.Resume {
		return console.Wrong("--resume needs a file; the standard input cannot be read again")
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
		printed := cmd.print(c, sum, err != nil)
		if err == nil {
			err = printed
		}
	}
	if err == nil && sum.Refused > 0 {
		err = console.ErrPrinted
	}
	return err
}

// print prints the summary. failed says that the import stopped early.
func (cmd *Command) print(c *console.Console, sum *summary, failed bool) error {
	if cmd.JSON {
		return c.PrintValue(sum)
	}
	var err error
	switch where := ""; {
	case sum.DryRun:
		_, err = fmt.Fprintf(c.Out, "%d lines: %d valid, %d invalid; nothing was sent\n", sum.Lines,
			sum.Lines-sum.Refused, sum.Refused)
	default:
		if sum.Refused > 0 && sum.Errors != "" {
			where = " (see " + sum.Errors + ")"
		}
		canceled := ""
		if sum.Canceled > 0 {
			canceled = fmt.Sprintf(" (%d of them canceled)", sum.Canceled)
		}
		verb := "imported"
		if failed {
			verb = "stopped after"
		}
		_, err = fmt.Fprintf(c.Out, "%s %d lines in %s: %d accepted, %d accepted before%s, %d refused%s",
			verb, sum.Lines, sum.Took, sum.Accepted, sum.Replayed, canceled, sum.Refused, where)
		if sum.Skipped > 0 {
			_, err = fmt.Fprintf(c.Out, "; skipped %d lines of an earlier import", sum.Skipped)
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
	checkpoint, err := openCheckpoint(c, source, cmd.Resume)
	if err != nil {
		return nil, err
	}
	im := &importer{c: c, cl: cl, source: source, checkpoint: checkpoint, rate: rate}
	im.sum.Skipped = checkpoint.done.Lines
	im.sum.Errors = checkpoint.errorsPath
	im.progress = c.NewProgress("lines", source.Lines)
	im.progress.Set(checkpoint.done.Line, source.Lines)
	err = im.run(ctx)
	im.progress.End(err != nil)
	closed := checkpoint.close()
	if err == nil {
		err = closed
	}
	if err != nil && cmd.File != "-" {
		err = &resumableError{err}
	}
	return &im.sum, err
}

// resumableError is an error after which --resume can continue the import.
type resumableError struct{ error }

func (e *resumableError) Error() string {
	text := e.error.Error()
	if errors.Is(e.error, context.Canceled) {
		text = "interrupted"
	}
	return text + "; continue with --resume"
}

// dryRun checks each line without a server, as far as that is possible.
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

// localProblem returns an error of the check in the form of the server's errors.
func localProblem(err error) *client.Problem {
	var invalid *store.InvalidError
	if errors.As(err, &invalid) {
		p := &client.Problem{Status: 422, Code: "invalid",
			Detail: "the line is not a valid callback"}
		for _, f := range invalid.Fields {
			p.Errors = append(p.Errors, client.FieldError(f))
		}
		return p
	}
	return &client.Problem{Status: 422, Code: "invalid", Detail: err.Error()}
}
