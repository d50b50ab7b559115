package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/text"
)

// verifyCommand compares SQL with the index through the running server, which alone sees both at once.
type verifyCommand struct {
	clientFlags
	JSON bool `name:"json" help:"Print the server's answer for machines."`
}

// A driftReport is the server's answer to a comparison.
type driftReport struct {
	Clean      bool     `json:"clean"`
	Rows       int      `json:"rows"`
	Items      int      `json:"items"`
	Missing    int      `json:"missing"`
	Late       int      `json:"late"`
	Extra      int      `json:"extra"`
	MissingIDs []string `json:"missing_ids"`
	LateIDs    []string `json:"late_ids"`
	ExtraIDs   []string `json:"extra_ids"`
}

// Run prints what differs, and ends with 1 if anything does.
func (cmd *verifyCommand) Run(ctx context.Context, c *console) error {
	cl, err := newClient(c, cmd.clientFlags)
	if err != nil {
		return err
	}
	var d driftReport
	answer, err := cl.call(ctx, http.MethodPost, "/v1/index/verify", nil, &d)
	if err != nil {
		return err
	}
	if cmd.JSON {
		if err := printJSON(c, answer); err != nil {
			return err
		}
	} else {
		showDrift(c, &d)
	}
	if !d.Clean {
		return exitStatus(exitFailed)
	}
	return nil
}

func showDrift(c *console, d *driftReport) {
	fmt.Fprintf(c.out, "compared %d open callbacks in SQL with %d items of the index\n", d.Rows, d.Items)
	if d.Clean {
		fmt.Fprintln(c.out, c.paint("they agree", text.FgGreen))
		return
	}
	fmt.Fprintln(c.out, c.paint("they differ", text.FgRed)+" (seen twice, two seconds apart; \"dispatcher rebuild\" mends it, and so does the sweep)")
	t := c.newTable("what", "count", "for example")
	for _, row := range []struct {
		what  string
		count int
		ids   []string
	}{
		{"missing: open in SQL, not in the index", d.Missing, d.MissingIDs},
		{"late: in the index for a later time", d.Late, d.LateIDs},
		{"extra: in the index, terminal or unknown in SQL", d.Extra, d.ExtraIDs},
	} {
		if row.count == 0 {
			continue
		}
		example := ""
		if len(row.ids) > 0 {
			example = printable(row.ids[0])
		}
		t.AppendRow([]any{row.what, strconv.Itoa(row.count), example})
	}
	t.Render()
}
