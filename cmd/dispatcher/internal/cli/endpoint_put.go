package cli

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/importer"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// endpointPut makes or replaces endpoints by their external ids.
type endpointPut struct {
	serverFlags
	File string `arg:"" placeholder:"FILE.ndjson" help:"File with one endpoint a line, as PUT /v1/endpoints/by-external-id takes it, with its external_id; - reads the standard input."`
	reasonFlag
	JSON bool `help:"Print the summary for machines."`
}

// Help is what endpoint put --help says below the flags' summary.
func (*endpointPut) Help() string {
	return "A line such as {\"external_id\": \"merchant-7\", \"url\": \"https://shop.example/notify\", " +
		"\"policy\": \"payment\"} makes the endpoint, or replaces it whole: what a line does not " +
		"name gets its default, except a pause, whether it is enabled, and its secret. Run again, the same file changes nothing. Lines go to the server in batches of at " +
		"most 1000; one that is refused is named on the error output and does not stop the others, and the exit code is 1. Secrets are made when they are first needed: " +
		"\"dispatcher endpoint secret\" prints them."
}

// A putSummary is what a file of endpoints comes to.
type putSummary struct {
	Lines    int `json:"lines"`
	Made     int `json:"made"`
	Replaced int `json:"replaced"`
	Refused  int `json:"refused"`
}

// An endpointWriter sends the lines of a source.
type endpointWriter struct {
	c      *session
	source *importer.Source
	reason string
	bar    *importer.Bar
	sum    putSummary
}

// Run puts the endpoints, and ends with 1 if a line was refused.
func (cmd *endpointPut) Run(c *session) error {
	if err := c.connect(); err != nil {
		return err
	}
	source, err := importer.OpenSource(c.Console, cmd.File)
	if err != nil {
		return err
	}
	defer source.Close()
	w := &endpointWriter{c: c, source: source, reason: cmd.Reason,
		bar: importer.NewBar(c.Console, source.Lines, 0)}
	err = w.run()
	w.bar.End(err != nil)
	if cmd.JSON {
		shown := c.PrintValue(w.sum)
		if err == nil {
			err = shown
		}
	} else {
		c.printf("%d endpoints: %d made, %d replaced, %d refused\n", w.sum.Lines, w.sum.Made, w.sum.Replaced,
			w.sum.Refused)
	}
	if err == nil && w.sum.Refused > 0 {
		err = console.ErrShown
	}
	return err
}

// run sends batch after batch until the source ends.
func (w *endpointWriter) run() error {
	for more := true; more; {
		b, err := w.source.Batch(importer.MaxCount, func(line *importer.Line) {
			w.refused(line, line.Problem)
		})
		w.sum.Lines += b.Read
		if err != nil {
			return err
		}
		if len(b.Lines) > 0 {
			if err := w.hand(b.Lines); err != nil {
				return fmt.Errorf("lines %d to %d: %w; the file can be run again, what is the same stays "+
					"as it is",
					b.Lines[0].Number, b.Last.Number, err)
			}
		}
		if b.Last != nil {
			w.bar.At(b.Last.Number)
		}
		more = b.More
	}
	return nil
}

// hand makes one call for a batch. The lines keep their bytes: the order of their members is nobody's, but a
// number is what it is.
func (w *endpointWriter) hand(batch []*importer.Line) error {
	in := struct {
		Reason    string            `json:"reason,omitempty"`
		Endpoints []json.RawMessage `json:"endpoints"`
	}{Reason: w.reason}
	for _, line := range batch {
		in.Endpoints = append(in.Endpoints, line.Text)
	}
	var answer importer.Results
	if _, err := w.c.call(post("/v1/endpoints/batch", in), &answer); err != nil {
		return err
	}
	if len(answer.Results) != len(batch) {
		return fmt.Errorf("%s answered %d results: it is not a dispatcher, or not this version",
			w.c.client.Base, len(answer.Results))
	}
	for i, r := range answer.Results {
		switch {
		case r.Status == http.StatusCreated:
			w.sum.Made++
		case r.Status == http.StatusOK:
			w.sum.Replaced++
		case r.Problem != nil:
			r.Problem.Status = r.Status
			w.refused(batch[i], r.Problem)
		default:
			w.refused(batch[i], &client.Problem{Status: r.Status})
		}
	}
	return nil
}

// refused says which line was not taken, and why.
func (w *endpointWriter) refused(line *importer.Line, why *client.Problem) {
	w.sum.Refused++
	text := fmt.Sprintf("line %d: %s", line.Number, remote.InLine(why))
	if w.bar.Bar != nil {
		w.bar.Bar.Log("%s", text)
		return
	}
	fmt.Fprintln(w.c.Err, text)
}
