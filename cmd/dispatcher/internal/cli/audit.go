package cli

import (
	"encoding/json"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
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
func (cmd *auditList) Run(c *session) error {
	none, header := "nothing was changed in the project", "at, who, from, action, object, before, after, reason, no."
	return list(c, cmd.listFlags, "/v1/audit", cmd, none, header, func(e *client.AuditEntry) []any {
		number := "–"
		if e.Sequence != 0 {
			number = strconv.FormatInt(e.Sequence, 10)
		}
		return []any{
			console.ClockTime(e.At), console.Short(e.Actor, 40), e.Address, e.Action, console.Short(e.Object, 40),
			side(e.Before), side(e.After), console.Short(e.Reason, 40), number,
		}
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
	serverFlags
	Expect string `in:"expect" placeholder:"SEQ:HASH" help:"A head that an earlier run has printed, or that stands in a log: the chain must have it."`
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
func (cmd *auditVerify) Run(c *session) error {
	if _, err := store.ParseAuditLink(cmd.Expect); cmd.Expect != "" && err != nil {
		return console.Wrong("--expect %s", err)
	}
	q := queryOf(cmd)
	var report auditReport
	for more := true; more; more = report.Next != "" {
		var step auditReport
		if _, err := c.call(get("/v1/audit/verify?"+q.Encode()), &step); err != nil {
			return err
		}
		step.Checked += report.Checked
		report = step
		q.Set("from", report.Next)
	}
	if cmd.JSON {
		if err := console.PrintValue(c.Console, report); err != nil {
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
func (r *auditReport) show(c *session) {
	c.printf("checked %d entries\n", r.Checked)
	if r.Unchained > 0 {
		c.printf("%d entries of the last seconds are not chained yet\n", r.Unchained)
	}
	if b := r.Broken; b != nil {
		c.printf("%s at entry %d: %s\n", c.Paint("the chain is broken", console.Red), b.Sequence, meaning(b.Fault))
		if b.ID != "" {
			c.printf("id: %s\n", b.ID)
		}
		return
	}
	c.printf("%s\nhead: %s\n", c.Paint("the chain is sound", console.Green), r.Head)
}
