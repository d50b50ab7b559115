package cli

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// ReconcileCommand has the commands that compare the accepted callbacks with the caller's own figures.
type ReconcileCommand struct {
	Show    reconcileShow    `cmd:"" default:"withargs" help:"Count the callbacks that were accepted on a day or in a time range, by their current state."`
	Compare reconcileCompare `cmd:"" help:"Compare your list of references with the accepted callbacks."`
	Expect  reconcileExpect  `cmd:"" help:"Hand in your list for the daily reconciliation."`
	Remove  reconcileRemove  `cmd:"" help:"Remove entries from your list of a day, or the list."`
	Reports reconcileReports `cmd:"" help:"List the reports of the daily reconciliation, newest day first."`
	Report  reconcileReport  `cmd:"" help:"Show the report of a day and its differences."`
	Run     reconcileRun     `cmd:"" help:"Repeat the reconciliation of a day."`
}

// rangeFlags are a time range.
type rangeFlags struct {
	Day      string `xor:"from,to" placeholder:"DATE" help:"This day, such as 2026-11-21. Default: today."`
	From     string `xor:"from" placeholder:"TIME" help:"Only if accepted at or after this date or time."`
	To       string `xor:"to" placeholder:"TIME" help:"Only if accepted before this date or time. Default: now."`
	Timezone string `placeholder:"ZONE" help:"Time zone in which days begin, such as Asia/Shanghai. Default: UTC."`
}

// parseDay returns the start of the day that is so many days after a date.
func parseDay(text string, later int, zone *time.Location) (time.Time, error) {
	day, err := time.Parse(time.DateOnly, text)
	return store.LocalTime(day.Year(), day.Month(), day.Day()+later, 0, 0, zone), err
}

// span returns the range. A zero end is now.
func (f *rangeFlags) span() (from, to time.Time, err error) {
	zone, err := time.LoadLocation(cmp.Or(f.Timezone, "UTC"))
	if err != nil || f.Timezone == "Local" {
		return from, to, console.Wrong("--timezone: there is no time zone %q; write a name such as "+
			"Asia/Shanghai", f.Timezone)
	}
	parse := func(flag, text string) (t time.Time, err error) {
		t, err = parseDay(text, 0, zone)
		if err != nil {
			t, err = time.Parse(time.RFC3339, text)
		}
		if err != nil {
			err = console.Wrong("--%s: %q is not a date such as 2026-11-21 or a time such as "+
				"2026-11-21T08:00:00Z", flag, text)
		}
		return t, err
	}
	switch {
	case f.From == "" && f.To != "":
		return from, to, console.Wrong("--to needs --from")
	case f.From == "":
		day := cmp.Or(f.Day, time.Now().In(zone).Format(time.DateOnly))
		from, err = parseDay(day, 0, zone)
		if err != nil {
			return from, to, console.Wrong("--day: %q is not a date such as 2026-11-21", day)
		}
		to, err = parseDay(day, 1, zone)
		return from, to, err
	}
	from, err = parse("from", f.From)
	if err == nil && f.To != "" {
		to, err = parse("to", f.To)
	}
	return from, to, err
}

// apiTime formats a time for a request.
func apiTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// reconcileShow counts callbacks.
type reconcileShow struct {
	rangeFlags
	GroupBy string `placeholder:"GROUP" help:"One line for each topic, endpoint, lane, day or label:NAME."`
	answerFlags
}

// Help is the text below the summary of reconcile show --help.
func (*reconcileShow) Help() string {
	return "accepted = succeeded + dead + canceled + open must hold in each line; otherwise the exit code " +
		"is 1. Callbacks that retention has removed are not counted. \"reconcile\" alone is " +
		"\"reconcile show\"."
}

// Run prints the counts. Its exit code is 1 if a line does not balance.
func (cmd *reconcileShow) Run(c *session) error {
	from, to, err := cmd.span()
	if err != nil {
		return err
	}
	q := url.Values{"from": {apiTime(from)}}
	if !to.IsZero() {
		q.Set("to", apiTime(to))
	}
	if cmd.Timezone != "" {
		q.Set("timezone", cmd.Timezone)
	}
	if cmd.GroupBy != "" {
		q.Set("group_by", cmd.GroupBy)
	}
	balanced := true
	err = printResponse(c, get("/v1/reconcile?"+q.Encode()), func(r *client.Reconciliation) {
		showReconciliation(c, r)
		balanced = r.Total.Balanced
		for i := range r.Data {
			balanced = balanced && r.Data[i].Balanced
		}
	})
	if err == nil && !balanced {
		err = console.ErrPrinted
	}
	return err
}

// zoneTime formats a time in a zone, with its offset.
func zoneTime(t time.Time, zone string) string {
	if there, err := time.LoadLocation(zone); err == nil {
		t = t.In(there)
	}
	return t.Format("2006-01-02 15:04:05 -07:00")
}

// showReconciliation prints the counts, one line per group, and the total.
func showReconciliation(c *session, r *client.Reconciliation) {
	c.printf("accepted from %s to %s\n\n", zoneTime(r.From, r.Timezone), zoneTime(r.To, r.Timezone))
	t := c.NewTable(cmp.Or(r.GroupBy, ""), "accepted", "succeeded", "dead", "canceled", "open", "")
	row := func(name string, n *client.ReconcileCounts) {
		sum := c.Paint("balanced", console.Green)
		if !n.Balanced {
			sum = c.Paint("does not balance", console.Red)
		}
		t.Row(name, n.Accepted, n.Succeeded, n.Dead, n.Canceled, n.Open, sum)
	}
	for i := range r.Data {
		row(console.Short(cmp.Or(r.Data[i].Group, "(none)"), console.Widest), &r.Data[i].ReconcileCounts)
	}
	row("total", &r.Total)
	t.Render()
}

// reconcileCompare compares a list of references.
type reconcileCompare struct {
	File  string `arg:"" placeholder:"FILE" help:"File with one reference per line; - reads the standard input. At most 500000 lines and 16 MiB."`
	Items bool   `help:"The file has references with topics, as CSV or NDJSON: see \"dispatcher reconcile expect --help\"."`
	rangeFlags
	answerFlags
}

// Help is the text below the summary of reconcile compare --help.
func (*reconcileCompare) Help() string {
	return "The list has the references (ref) that you submitted on that day. Prints \"missing REF\" for " +
		"each reference without a callback, and \"extra REF\" for each callback whose reference is not in " +
		"the list; the summary goes to the error output. The exit code is 1 if anything differs."
}

// Limits of a list of references, below those of the server.
const (
	maxRefs     = 500_000
	maxRefBytes = 15 << 20
)

// Run prints the differences. Its exit code is 1 if there are any.
func (cmd *reconcileCompare) Run(c *session) error {
	from, to, err := cmd.span()
	if err != nil {
		return err
	}
	list := client.ReferenceList{From: from, To: to}
	if cmd.Items {
		list.Items, err = readItems(c, cmd.File)
	} else {
		list.Refs, err = readRefs(c, cmd.File)
	}
	if err != nil {
		return err
	}
	var x client.Comparison
	answer, err := c.call(post("/v1/reconcile/compare", list), &x)
	if err != nil {
		return err
	}
	if c.json {
		err = c.PrintJSON(answer)
	} else {
		err = showComparison(c, &x)
	}
	if err == nil && (len(x.Missing)+len(x.Extra) > 0 || x.Items != nil && len(x.Items.Data) > 0) {
		err = console.ErrPrinted
	}
	return err
}

// showComparison prints the differences, one per line.
func showComparison(c *session, x *client.Comparison) error {
	out := bufio.NewWriter(c.Out)
	if x.Items != nil {
		showFindings(out, x.Items.Data)
		err := out.Flush()
		fmt.Fprintln(c.Err, findingsText(&x.Items.FindingCounts))
		return err
	}
	for _, ref := range x.Missing {
		fmt.Fprintf(out, "missing %s\n", ref)
	}
	for _, ref := range x.Extra {
		fmt.Fprintf(out, "extra %s\n", ref)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the differences: %w", err)
	}
	more := ""
	if x.MoreExtra {
		more = " or more"
	}
	fmt.Fprintf(c.Err, "%d references have a callback, %d are missing, %d%s are extra\n", x.Matched,
		len(x.Missing), len(x.Extra), more)
	return nil
}

// readRefs reads a list of references. Blank lines are left out.
func readRefs(c *session, path string) ([]string, error) {
	var from io.Reader = c.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, console.CannotRead(path, err)
		}
		defer f.Close()
		from = f
	}
	refs := []string{}
	lines := bufio.NewScanner(io.LimitReader(from, maxRefBytes+1))
	size := 0
	for lines.Scan() {
		size += len(lines.Bytes()) + 1
		if ref := strings.TrimSpace(lines.Text()); ref != "" {
			refs = append(refs, ref)
		}
		if len(refs) > maxRefs || size > maxRefBytes {
			return nil, fmt.Errorf("%s has more than %d references or %d MiB; compare shorter time ranges",
				path, maxRefs, maxRefBytes>>20)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: line %d: %w", path, len(refs)+1, err)
	}
	return refs, nil
}
