package cli

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// Limits of a list of items. A request of the API takes at most expectPage.
const (
	maxItems     = 500_000
	maxItemBytes = 128 << 20
	expectPage   = 10_000
)

// readItems reads a list of references with topics from a CSV or NDJSON file.
func readItems(c *session, path string) ([]client.RefTopic, error) {
	var from io.Reader = c.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, console.CannotRead(path, err)
		}
		defer f.Close()
		from = f
	}
	in := bufio.NewReader(io.LimitReader(from, maxItemBytes))
	start, err := in.Peek(1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, console.CannotRead(path, err)
	}
	next := nextRow(csv.NewReader(in))
	if bytes.Equal(start, []byte("{")) {
		next = nextObject(json.NewDecoder(in))
	}
	items := []client.RefTopic{}
	for n := 1; ; n++ {
		item, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return items, nil
		case err != nil:
			return nil, fmt.Errorf("%s: entry %d: %w", path, n, err)
		case n == 1 && item.Ref == "ref": // the header of a CSV file
		case item.Ref == "":
			return nil, fmt.Errorf("%s: entry %d: the reference is missing", path, n)
		case len(items) == maxItems:
			return nil, fmt.Errorf("%s has more than %d entries", path, maxItems)
		default:
			items = append(items, item)
		}
	}
}

// nextRow returns the items of a CSV file: a reference and a topic, which may be missing.
func nextRow(rows *csv.Reader) func() (client.RefTopic, error) {
	rows.FieldsPerRecord = -1
	return func() (item client.RefTopic, err error) {
		row, err := rows.Read()
		if err != nil {
			return item, err
		}
		if len(row) > 2 {
			return item, errors.New("has more than two columns; ref and topic are read")
		}
		item.Ref = strings.TrimSpace(row[0])
		if len(row) == 2 {
			item.Topic = strings.TrimSpace(row[1])
		}
		return item, nil
	}
}

// nextObject returns the items of an NDJSON file.
func nextObject(in *json.Decoder) func() (client.RefTopic, error) {
	in.DisallowUnknownFields()
	return func() (item client.RefTopic, err error) { return item, in.Decode(&item) }
}

// reconcileExpect hands in the list of a day.
type reconcileExpect struct {
	File string `arg:"" placeholder:"FILE" help:"CSV or NDJSON file; - reads the standard input. At most 500000 entries."`
	Date string `required:"" placeholder:"DATE" help:"The day, such as 2026-11-21, in the time zone of the project's daily reconciliation."`
	answerFlags
}

// Help is the text below the summary of reconcile expect --help.
func (*reconcileExpect) Help() string {
	return "A CSV file has the columns ref and topic; a first line \"ref,topic\" is left out. An NDJSON " +
		"file has one {\"ref\": …, \"topic\": …} per line. A callback without a topic has an empty one. " +
		"The list of a day is a set: handing in an entry again changes nothing, so a failed run can be " +
		"repeated. An empty file says that the day has no callbacks. Switch the daily reconciliation on " +
		"with \"dispatcher project set\"."
}

// Run sends the list in pieces.
func (cmd *reconcileExpect) Run(c *session) error {
	items, err := readItems(c, cmd.File)
	if err != nil {
		return err
	}
	return changeList(c, items, func(page []client.RefTopic) request {
		return post("/v1/reconcile/expected", client.ExpectedList{Date: cmd.Date, Items: page})
	})
}

// changeList makes one request for each page of items, at least one, and prints how the list has changed.
func changeList(c *session, items []client.RefTopic, of func(page []client.RefTopic) request) error {
	pages := slices.Collect(slices.Chunk(items, expectPage))
	if len(pages) == 0 {
		pages = append(pages, items)
	}
	var answer []byte
	var added, removed int64
	var day client.ExpectedDay
	for _, page := range pages {
		var err error
		answer, err = c.call(of(page), &day)
		if err != nil {
			return err
		}
		added, removed = added+day.Added, removed+day.Removed
	}
	if c.json {
		return c.PrintJSON(answer)
	}
	c.printf("%s  %d added, %d removed, the list has %d\n", day.Date, added, removed, day.Items)
	return nil
}

// reconcileRemove removes entries from the list of a day.
type reconcileRemove struct {
	File string `arg:"" optional:"" placeholder:"FILE" help:"CSV or NDJSON file as of \"dispatcher reconcile expect\"; - reads the standard input."`
	All  bool   `help:"Remove the whole list, as if none had been handed in."`
	Date string `required:"" placeholder:"DATE" help:"The day, such as 2026-11-21."`
	changeFlags
}

// Help is the text below the summary of reconcile remove --help.
func (*reconcileRemove) Help() string {
	return "For entries that were listed by mistake: they would be missing for ever. Entries that the list " +
		"does not have change nothing. Then repeat the day with \"dispatcher reconcile run\"."
}

// Run sends the entries in pieces.
func (cmd *reconcileRemove) Run(c *session) error {
	if cmd.All == (cmd.File != "") {
		return console.Wrong("give either a file or --all")
	}
	var items []client.RefTopic
	if !cmd.All {
		var err error
		items, err = readItems(c, cmd.File)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			return fmt.Errorf("%s has no entries; --all removes the whole list", cmd.File)
		}
	}
	return changeList(c, items, func(page []client.RefTopic) request {
		return request{method: http.MethodDelete, path: "/v1/reconcile/expected",
			in: client.ExpectedRemoval{Date: cmd.Date, Items: page, All: cmd.All, Reason: cmd.Reason},
		}.onMissing("there is no list of " + cmd.Date)
	})
}

// reconcileReports lists reports.
type reconcileReports struct{ listFlags }

// Run prints the reports.
func (cmd *reconcileReports) Run(c *session) error {
	header := "day, , accepted, succeeded, dead, canceled, open, " +
		"listed, missing, unfinished, duplicates, extra"
	return list(c, cmd.listFlags, "/v1/reconcile/reports", cmd,
		"there are no reports (\"dispatcher project set\" switches the daily reconciliation on)", header,
		func(r *client.ReconcileReport) []any {
			return []any{r.Date, verdictText(c, r), r.Accepted, r.Succeeded, r.Dead, r.Canceled, r.Open,
				r.Listed,
				r.Missing, r.Unfinished, r.Duplicates, r.Extra}
		})
}

// verdictText says whether a report is good.
func verdictText(c *session, r *client.ReconcileReport) string {
	if len(r.Wrong) == 0 {
		return c.Paint("good", console.Green)
	}
	words := map[client.ReconcileProblem]string{
		client.ReconcileUnbalanced: "does not balance", client.ReconcileMissing: "callbacks are missing",
		client.ReconcileNoList: "no list was submitted",
	}
	var texts []string
	for _, wrong := range r.Wrong {
		text, known := words[wrong]
		if !known {
			text = string(wrong)
		}
		texts = append(texts, text)
	}
	return c.Paint(strings.Join(texts, ", "), console.Red)
}

// reconcileReport shows a report.
type reconcileReport struct {
	Date  string `arg:"" placeholder:"DATE" help:"The day, such as 2026-11-21."`
	Kind  string `placeholder:"KIND" help:"Only differences of this kind: missing, unfinished, duplicate or extra."`
	CSV   bool   `xor:"form" help:"Print all differences as CSV for spreadsheets."`
	JSON  bool   `xor:"form" help:"Print the server's response as JSON: one page of up to 500."`
	Limit int    `default:"50" placeholder:"N" help:"Maximum number of differences. Default: 50."`
	cursorFlag
	serverFlags
}

// Help is the text below the summary of reconcile report --help.
func (*reconcileReport) Help() string {
	return "The exit code is 1 if the day does not balance, listed callbacks are missing, or the list itself."
}

// Run prints the report. Its exit code is 1 if something is wrong.
func (cmd *reconcileReport) Run(c *session) error {
	path, q := "/v1/reconcile/reports/"+url.PathEscape(cmd.Date), url.Values{}
	if cmd.Kind != "" {
		q.Set("kind", cmd.Kind)
	}
	if cmd.CSV {
		q.Set("format", "csv")
		if err := c.connect(); err != nil {
			return err
		}
		answer, err := c.client.Answer(c.ctx, http.MethodGet, path+"?"+q.Encode(), nil, nil)
		if err == nil {
			_, err = c.Out.Write(answer.Body)
		}
		return err
	}
	if cmd.Limit < 1 {
		return console.Wrong("--limit must be at least 1")
	}
	q.Set("limit", fmt.Sprint(min(cmd.Limit, remote.MostPerPage)))
	if cmd.Cursor != "" {
		q.Set("cursor", cmd.Cursor)
	}
	var p client.ReconcileReportPage
	answer, err := c.call(get(path+"?"+q.Encode()).onMissing("there is no report of "+cmd.Date), &p)
	if err != nil {
		return err
	}
	if cmd.JSON {
		err = c.PrintJSON(answer)
	} else {
		showReport(c, &p)
	}
	if err == nil && len(p.Wrong) > 0 {
		err = console.ErrPrinted
	}
	return err
}

// showReport prints a report with its differences.
func showReport(c *session, p *client.ReconcileReportPage) {
	list := findingsText(&p.FindingCounts)
	if !p.ListGiven {
		list = "no list was submitted"
	}
	c.Lines(8, "day", p.Date+" "+p.Timezone, "result", verdictText(c, &p.ReconcileReport),
		"accepted", fmt.Sprintf("%d = %d succeeded + %d dead + %d canceled + %d open", p.Accepted,
			p.Succeeded, p.Dead, p.Canceled, p.Open),
		"list", list, "run", console.ClockTime(p.RunAt))
	if len(p.Data) > 0 {
		c.printf("\n")
		showFindings(c.Out, p.Data)
	}
	if p.NextCursor != "" {
		c.printf("\nmore: --cursor %s\n", p.NextCursor)
	}
}

// findingsText counts differences.
func findingsText(n *client.FindingCounts) string {
	return fmt.Sprintf("%d listed, %d of them accepted; %d missing, %d unfinished, %d duplicates, %d extra",
		n.Listed, n.Matched, n.Missing, n.Unfinished, n.Duplicates, n.Extra)
}

// showFindings prints differences, one per line.
func showFindings(out io.Writer, findings []client.Finding) {
	for i := range findings {
		f := &findings[i]
		line := fmt.Sprintf("%s %s", f.Kind, f.Ref)
		if f.Topic != "" {
			line += " " + f.Topic
		}
		if f.State != "" {
			line += " " + string(f.State)
		}
		if f.CallbackID != "" {
			line += " " + f.CallbackID
		}
		if f.Callbacks > 1 {
			line += fmt.Sprintf(" (%d callbacks)", f.Callbacks)
		}
		fmt.Fprintln(out, line)
	}
}

// reconcileRun repeats a reconciliation.
type reconcileRun struct {
	Date string `arg:"" placeholder:"DATE" help:"The day, such as 2026-11-21. At most 10 days ago."`
	changeFlags
}

// Run repeats the reconciliation and prints its result.
func (cmd *reconcileRun) Run(c *session) error {
	r := post("/v1/reconcile/reports/"+url.PathEscape(cmd.Date)+"/run", cmd)
	return printResponse(c, r, func(r *client.ReconcileReport) {
		showReport(c, &client.ReconcileReportPage{ReconcileReport: *r})
	})
}
