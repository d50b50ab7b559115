package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// AuditCommand is the API for the audit from the shell.
type AuditCommand struct {
	List   auditList   `cmd:"" help:"List who has changed what in the project, newest first."`
	Verify auditVerify `cmd:"" help:"Check the chain over the audit of all projects; exit with 1 if it is broken."`
}

// auditList lists entries.
type auditList struct{ listFlags }

// Help is what audit list --help says below the flags' summary.
func (*auditList) Help() string {
	return "It needs a key of scope admin. --json has each entry whole, with its hash."
}

// Run prints the entries.
func (cmd *auditList) Run(ctx context.Context, c *console.Console) error {
	number := func(e *client.AuditEntry) any {
		if e.Sequence == 0 {
			return "–"
		}
		return fmt.Sprint(e.Sequence)
	}
	none := "nothing was changed in the project"
	return list(ctx, c, cmd.listFlags, "/v1/audit", url.Values{}, none, []console.Column[client.AuditEntry]{
		{Name: "at", Of: func(e *client.AuditEntry) any { return console.ClockTime(e.At) }},
		{Name: "who", Of: func(e *client.AuditEntry) any { return console.Short(e.Actor, 40) }},
		{Name: "from", Of: func(e *client.AuditEntry) any { return console.Printable(e.Address) }},
		{Name: "action", Of: func(e *client.AuditEntry) any { return console.Printable(e.Action) }},
		{Name: "object", Of: func(e *client.AuditEntry) any { return console.Short(e.Object, 40) }},
		{Name: "before", Of: func(e *client.AuditEntry) any { return side(e.Before) }},
		{Name: "after", Of: func(e *client.AuditEntry) any { return side(e.After) }},
		{Name: "reason", Of: func(e *client.AuditEntry) any { return console.Short(e.Reason, 40) }},
		{Name: "no.", Of: number},
	})
}

// side is one side of a change in few words.
func side(text json.RawMessage) string {
	if len(text) == 0 || string(text) == "null" {
		return "–"
	}
	return console.Short(string(text), console.Widest)
}

// auditVerify checks the chain through the running server, which has the key that it is made with.
type auditVerify struct {
	remote.Flags
	Expect string `placeholder:"SEQ:HASH" help:"A head that an earlier run has printed, or that stands in a log: the chain must have it."`
	JSON   bool   `name:"json" help:"Print what was found for machines."`
}

// Help is what audit verify --help says below the flags' summary.
func (*auditVerify) Help() string {
	return "It needs the admin key of the settings. It finds entries that were changed, removed, moved or " +
		"inserted. Entries that were removed from the end, together with the head that SQL has, are found " +
		"only with --expect: keep the head that this prints in another place than the database. " +
		"The exit code is 1 if the chain is broken."
}

// An auditReport is what was found so far; the server answers with one for each step.
type auditReport struct {
	Sound   bool `json:"sound"`
	Checked int  `json:"checked"`
	Broken  *struct {
		Fault    string `json:"fault"`
		Sequence int64  `json:"sequence"`
		ID       string `json:"id"`
	} `json:"broken"`
	Next      string `json:"next,omitempty"`
	Head      string `json:"head"`
	Unchained int    `json:"unchained"`
}

// Run asks for one step after the other, and ends with 1 if the chain is broken.
func (cmd *auditVerify) Run(ctx context.Context, c *console.Console) error {
	if _, err := store.ParseAuditLink(cmd.Expect); cmd.Expect != "" && err != nil {
		return console.Wrong("--expect %s", err)
	}
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	q := url.Values{}
	if cmd.Expect != "" {
		q.Set("expect", cmd.Expect)
	}
	var report auditReport
	for more := true; more; more = report.Next != "" {
		var step auditReport
		if _, err := cl.Call(ctx, http.MethodGet, "/v1/audit/verify?"+q.Encode(), nil, &step); err != nil {
			return err
		}
		step.Checked += report.Checked
		report = step
		q.Set("from", report.Next)
	}
	if cmd.JSON {
		if err := console.PrintValue(c, report); err != nil {
			return err
		}
	} else {
		report.show(c)
	}
	if !report.Sound {
		return console.ExitStatus(console.ExitFailed)
	}
	return nil
}

// show prints what was found, for people.
func (r *auditReport) show(c *console.Console) {
	fmt.Fprintf(c.Out, "checked %d entries\n", r.Checked)
	if r.Unchained > 0 {
		fmt.Fprintf(c.Out, "%d entries of the last seconds are not chained yet\n", r.Unchained)
	}
	if b := r.Broken; b != nil {
		fmt.Fprintf(c.Out, "%s at entry %d: %s\n", c.Paint("the chain is broken", console.Red), b.Sequence,
			faultWords(store.AuditFault(b.Fault)))
		if b.ID != "" {
			fmt.Fprintf(c.Out, "id: %s\n", console.Printable(b.ID))
		}
		return
	}
	fmt.Fprintf(c.Out, "%s\nhead: %s\n", c.Paint("the chain is sound", console.Green), console.Printable(r.Head))
}

// faultWords says what a fault means.
func faultWords(f store.AuditFault) string {
	switch f {
	case store.AuditChanged:
		return "the entry, or its place, is not the one that was chained"
	case store.AuditMissing:
		return "one or more entries were removed before the entry that comes next"
	case store.AuditCut:
		return "the chain ends here: entries after it were removed, or its head was changed"
	case store.AuditBeyond:
		return "there are entries behind the head of the chain: another program wrote them, " +
			"or it was set back"
	case store.AuditUnexpected:
		return "the chain has another hash here than was expected: entries were removed or replaced"
	}
	return console.Printable(string(f))
}
