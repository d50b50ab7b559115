package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// importCommand hands over a file of callbacks.
type importCommand struct {
	clientFlags
	File   string `arg:"" placeholder:"FILE.ndjson" help:"File with one callback a line, as POST /v1/callbacks takes it; - reads the standard input."`
	Rate   string `name:"rate" placeholder:"N/s" help:"At most so many callbacks: 500/s, 6000/m, or a plain number for each second."`
	DryRun bool   `name:"dry-run" xor:"form" help:"Only check each line, without a server, which alone knows endpoints and policies of your own; nothing is sent, no file is written."`
	Resume bool   `name:"resume" xor:"form" help:"Go on where an earlier import of the same file ended."`
	JSON   bool   `name:"json" help:"Print the summary for machines."`
}

// Help is what import --help says below the flags' summary.
func (*importCommand) Help() string {
	return "Lines go to the server in batches of at most 1000. A line that the server refuses does not stop the others: it is written, with its number and " +
		"what is wrong, to FILE.errors.ndjson (for -, to the error output). A server that is away or overloaded is asked again, for 15 minutes.\n\n" +
		"An import that is run again makes nothing twice: a line without an idempotency_key gets one made of the file's hash and the line's number. " +
		"Keys are kept for as long as a callback is open, and at least 7 days; a callback that was sent by POST /v1/callbacks with the same key and the same bytes is " +
		"the same one. An edited file is another file: give each line an idempotency_key of its own (an order's number, say), or put the mended lines into a new file.\n\n" +
		"How far it came is kept in FILE.progress after every batch; --resume skips what was done. After SQL was restored from a backup run it without --resume."
}

// The most of one line, and of one batch: below what the server takes.
const (
	maxImportLine  = 512 << 10
	maxImportBatch = 8 << 20
	maxImportCount = 1000
)

// A summary is what an import comes to.
type summary struct {
	// Lines is how many lines were looked at, blank ones apart. Accepted are new, Replayed were accepted before, Refused were not
	// accepted.
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
func (cmd *importCommand) Run(ctx context.Context, c *console) error {
	rate, err := parseRate(cmd.Rate)
	if err != nil {
		return &usageError{lines: []string{"--rate " + err.Error()}}
	}
	if cmd.File == "-" && cmd.Resume {
		return &usageError{lines: []string{"--resume needs a file: what came by the standard input cannot be read again"}}
	}
	source, err := openSource(c, cmd.File)
	if err != nil {
		return err
	}
	defer source.close()
	began := time.Now()
	var sum *summary
	if cmd.DryRun {
		sum, err = dryRun(ctx, c, source)
	} else {
		sum, err = cmd.send(ctx, c, source, rate)
	}
	if sum != nil {
		sum.Took = time.Since(began).Round(time.Millisecond).String()
		if shown := cmd.show(c, sum, err != nil); err == nil {
			err = shown
		}
	}
	if err == nil && sum.Refused > 0 {
		err = exitStatus(exitFailed)
	}
	return err
}

// show prints the summary.
func (cmd *importCommand) show(c *console, sum *summary, broken bool) error {
	if cmd.JSON {
		encoder := json.NewEncoder(c.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(sum)
	}
	var err error
	switch where := ""; {
	case sum.DryRun:
		_, err = fmt.Fprintf(c.out, "%d lines: %d could be sent, %d could not; nothing was sent\n", sum.Lines, sum.Lines-sum.Refused, sum.Refused)
	default:
		if sum.Refused > 0 && sum.Errors != "" {
			where = " (see " + sum.Errors + ")"
		}
		verb := "imported"
		if broken {
			verb = "stopped after"
		}
		_, err = fmt.Fprintf(c.out, "%s %d lines in %s: %d accepted, %d were accepted before, %d refused%s", verb, sum.Lines, sum.Took, sum.Accepted, sum.Replayed, sum.Refused, where)
		if sum.Skipped > 0 {
			_, err = fmt.Fprintf(c.out, "; %d lines were done by an earlier import", sum.Skipped)
		}
		fmt.Fprintln(c.out)
	}
	return err
}

// send imports the source.
func (cmd *importCommand) send(ctx context.Context, c *console, source *source, rate float64) (*summary, error) {
	cl, err := newClient(c, cmd.clientFlags)
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
	im.bar = newImportBar(c, source.lines, books.done.Line)
	err = im.run(ctx)
	im.bar.end(err != nil)
	if closed := books.close(); err == nil {
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
func dryRun(ctx context.Context, c *console, source *source) (*summary, error) {
	sum := &summary{DryRun: true}
	for ctx.Err() == nil {
		line, more, err := source.next()
		if err != nil {
			return sum, err
		}
		if !more {
			return sum, nil
		}
		sum.Lines++
		bad := line.problem
		if bad == nil {
			if err := api.Check(line.text, time.Now()); err != nil {
				bad = localProblem(err)
			}
		}
		if bad != nil {
			sum.Refused++
			fmt.Fprintf(c.err, "line %d: %s\n", line.number, bad)
		}
	}
	return sum, ctx.Err()
}

// localProblem is an error of the check as the server would have put it.
func localProblem(err error) *apiError {
	var invalid *store.InvalidError
	if errors.As(err, &invalid) {
		return &apiError{Status: 422, Code: "invalid", Detail: "the line is not a callback that can be accepted", Errors: invalid.Fields}
	}
	return &apiError{Status: 422, Code: "invalid", Detail: err.Error()}
}

// parseRate reads "500/s", "6000/m", "100/h" or a plain number for each second; empty is no limit, which is zero.
func parseRate(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, unit, found := strings.Cut(text, "/")
	seconds, known := map[string]float64{"": 1, "s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !known || found && unit == "" || !(n > 0 && n <= 1e9) {
		return 0, fmt.Errorf("%q is not a rate such as 500/s or 6000/m", text)
	}
	return n / seconds, nil
}

// cannotRead is an error of a file without the operation's name.
func cannotRead(path string, err error) error {
	var cause *os.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	return fmt.Errorf("cannot read %s: %w", path, err)
}
