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

// endpointPut creates or replaces endpoints by their external ids.
type endpointPut struct {
	serverFlags
	File string `arg:"" placeholder:"FILE.ndjson" help:"File with one endpoint per line: the body of PUT /v1/endpoints/by-external-id and an external_id. - reads the standard input."`
	reasonFlag
	JSON bool `help:"Print the summary as JSON."`
}

// Help is the text below the summary of endpoint put --help.
func (*endpointPut) Help() string {
	return "A line such as {\"external_id\": \"merchant-7\", \"url\": \"https://shop.example/notify\", " +
		"\"policy\": \"payment\"} creates the endpoint or replaces all of it. " +
		"Fields that a line leaves out get their defaults. " +
		"Only the pause, the field enabled and the secret are kept. " +
		"The same file can be run again; it changes nothing then. " +
		"Lines are sent in batches of up to 1000. A refused line is reported on the error output and " +
		"does not stop the others; the exit code is 1 then. Secrets are generated at their first use: " +
		"\"dispatcher endpoint secret\" prints them."
}

// putSummary counts the lines of a file by their result.
type putSummary struct {
	Lines    int `json:"lines"`
	Made     int `json:"made"`
	Replaced int `json:"replaced"`
	Refused  int `json:"refused"`
}

// endpointWriter sends the lines of a source to the server.
type endpointWriter struct {
	c        *session
	source   *importer.Source
	reason   string
	progress *console.Progress
	sum      putSummary
}

// Run sends the file. Its exit code is 1 if a line was refused.
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
		progress: c.NewProgress("lines", source.Lines)}
	err = w.run()
	w.progress.End(err != nil)
	if cmd.JSON {
		printed := c.PrintValue(w.sum)
		if err == nil {
			err = printed
		}
	} else {
		c.printf("%d endpoints: %d created, %d replaced, %d refused\n",
			w.sum.Lines, w.sum.Made, w.sum.Replaced, w.sum.Refused)
	}
	if err == nil && w.sum.Refused > 0 {
		err = console.ErrPrinted
	}
	return err
}

// run sends batches until the source ends.
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
			if err := w.send(b.Lines); err != nil {
				return fmt.Errorf("lines %d to %d: %w; you can run the file again",
					b.Lines[0].Number, b.Last.Number, err)
			}
		}
		if b.Last != nil {
			w.progress.Set(b.Last.Number, w.source.Lines)
		}
		more = b.More
	}
	return nil
}

// send sends one batch. The lines keep their bytes, so that no number loses precision.
func (w *endpointWriter) send(batch []*importer.Line) error {
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
		return fmt.Errorf("%s returned %d results: it is no dispatcher, or another version",
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

// refused reports a line that the server did not accept.
func (w *endpointWriter) refused(line *importer.Line, why *client.Problem) {
	w.sum.Refused++
	w.progress.Log(fmt.Sprintf("line %d: %s", line.Number, remote.InLine(why)))
}
