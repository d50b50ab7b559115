package relay

import (
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// An unfit is a state of a source that the relay must not read in, and the way out of it.
type unfit struct {
	what       string
	hit, cure  []string // statements
	says       string   // the finding, in the source's error
	acceptable int      // rows that may be accepted meanwhile
}

// suffers brings the source into each state, under a relay that runs, and heals it.
func (o *outbox) suffers(states ...unfit) {
	tr := o.tr
	tr.Helper()
	next := 0
	tr.server("")
	var p *harness.Process
	for _, s := range states {
		if p != nil {
			p.Exit(time.Minute)
		}
		for _, statement := range s.hit {
			o.exec(statement)
		}
		before := len(tr.callbacks())
		o.bareIfPossible(next, next+page)
		p = tr.relay("")
		o.errs(resumedBusy, s.says)
		tr.degraded(p, o.name)
		if n := len(tr.callbacks()) - before; n > s.acceptable {
			tr.Errorf("%s: %d rows were accepted, at most %d are allowed", s.what, n, s.acceptable)
		}
		for _, statement := range s.cure {
			o.exec(statement)
		}
		tr.MarkFault()
		o.fill(next+page, next+2*page)
		next += 2 * page
		o.drained(backoffLimit)
		tr.undegraded(p)
	}
	tr.healedIn(backoffLimit)
}

// bareIfPossible commits orders unless the table cannot take them.
func (o *outbox) bareIfPossible(first, end int) {
	var rows []row
	for i := first; i < end; i++ {
		rows = append(rows, o.plain(i))
	}
	if err := o.try(o.tr.Context(), rows...); err != nil {
		o.tr.Logf("the application cannot insert either: %v", err)
	}
}

// unfitTables lack a column, or have an engine without transactions.
func unfitTables(tr *trial) {
	states := []unfit{
		{what: "a column is missing",
			hit:  []string{`ALTER TABLE dispatcher_outbox RENAME COLUMN body TO bodies`},
			cure: []string{`ALTER TABLE dispatcher_outbox RENAME COLUMN bodies TO body`},
			says: "table dispatcher_outbox has no column body"},
		{what: "no refused table",
			hit:  []string{`ALTER TABLE dispatcher_outbox_refused RENAME TO somewhere_else`},
			cure: []string{`ALTER TABLE somewhere_else RENAME TO dispatcher_outbox_refused`},
			says: "table dispatcher_outbox_refused does not exist"},
	}
	if tr.on == mariadb {
		states = append(states, unfit{what: "no transactions",
			hit:  []string{`ALTER TABLE dispatcher_outbox ENGINE = MyISAM`},
			cure: []string{`ALTER TABLE dispatcher_outbox ENGINE = InnoDB`},
			says: "table dispatcher_outbox has the engine MyISAM"})
	}
	tr.src.suffers(states...)
}

// statementLog logs statements. With READ COMMITTED such a server refuses every change.
func statementLog(tr *trial) {
	o := tr.newOutbox("pay", tr.on, tr.on.own(tr, "--log-bin", "--server-id=1", "--binlog-format=ROW"))
	tr.src = o
	o.suffers(unfit{what: "binlog_format STATEMENT", hit: []string{`SET GLOBAL binlog_format = 'STATEMENT'`},
		cure: []string{`SET GLOBAL binlog_format = 'ROW'`}, says: "binlog_format is STATEMENT"})
}

// rowSecurity hides rows from the relay.
func rowSecurity(tr *trial) {
	tr.src.suffers(unfit{what: "row-level security",
		hit:  []string{`ALTER TABLE dispatcher_outbox ENABLE ROW LEVEL SECURITY`},
		cure: []string{`ALTER TABLE dispatcher_outbox DISABLE ROW LEVEL SECURITY`},
		says: "row-level security is active on table dispatcher_outbox"})
}

// rightsMissing takes rights from the relay's user.
func rightsMissing(tr *trial) {
	right := func(right, table string) unfit {
		on := fmt.Sprintf("%s ON %s", right, table)
		user := tr.on.relayName()
		return unfit{what: "no " + on, hit: []string{"REVOKE " + on + " FROM " + user},
			cure: []string{"GRANT " + on + " TO " + user}, acceptable: page,
			says: fmt.Sprintf("the user relay has no right to %s on table %s", right, table)}
	}
	tr.src.suffers(right("SELECT", "dispatcher_outbox"), right("DELETE", "dispatcher_outbox"),
		right("INSERT", "dispatcher_outbox_refused"))
}

// twoOrigins has two databases whose sources have the same name. The second one is never read.
func twoOrigins(tr *trial) {
	s := tr.on.shared(tr)
	first := tr.newOutbox("pay", tr.on, s)
	tr.src = first
	p := tr.relay("")
	first.held(p, resumed)
	first.fill(0, page)
	first.drained(resumedBusy)
	tr.sources = nil
	second := tr.newOutbox("pay", tr.on, s)
	second.bareIfPossible(1000, 1000+page)
	other := tr.relay("")
	tr.degraded(other, "pay")
	// A relay of the first one does not change that.
	p.Exit(time.Minute)
	first.fill(page, 2*page)
	time.Sleep(leaseTime + 2*time.Second) // no relay holds the source now
	if n := second.waiting(); n != page {
		tr.Errorf("%d rows of the second database wait, want %d", n, page)
	}
	if n := len(tr.callbacks()); n != page {
		tr.Errorf("%d callbacks, want the %d of the first database", n, page)
	}
	other.Exit(time.Minute)
	tr.sources = []*outbox{first}
	tr.MarkFault()
	tr.relay("")
	tr.conclude(backoffLimit)
}
