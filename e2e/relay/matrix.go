package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A fault is one row of the matrix: what breaks, and the trial that shows that nothing is lost and nothing is
// accepted twice.
type fault struct {
	id, title string
	on        []*database
	modes     []mode
	run       func(*trial)
	how
}

// how says how a fault runs.
type how int

const (
	// quick faults also run in make test.
	quick how = 1 << iota
	// pair faults have two relays. In process these are two dispatchers.
	pair
	// apart faults break the server of the source, so they start it themselves.
	apart
	// long faults take more than two minutes: only make test-long runs them. It also runs real faults, in
	// their real length.
	long
	real
	// ownSQL faults break the SQL of the dispatcher, so they start it themselves.
	ownSQL
	// noSource faults create their sources themselves.
	noSource
	// repeated faults run three times in make test-full, and twenty times in make test-long.
	repeated
)

func (h how) is(what how) bool { return h&what != 0 }

// runs is how often a fault runs on each database and in each mode.
func (f *fault) runs() int {
	if f.is(repeated) {
		return testserver.Sized(1, 3, 20)
	}
	return 1
}

// Modes of many faults, and databases of some.
var (
	bothModes    = []mode{overHTTP, inProcess}
	httpOnly     = []mode{overHTTP}
	onlyPostgres = []*database{postgres}
	onlyMariaDB  = []*database{mariadb}
)

// matrix returns all faults.
func matrix() []fault {
	at := func(id, title, failpoint string, h how) fault {
		return fault{id, title, both, bothModes, relayKilledAt(failpoint), h | repeated}
	}
	return []fault{
		// SIGKILL between any two steps of the relay, at the named failpoint of a test build. The number of
		// the pass lets a page through first.
		{"R1", "killed before it reads", both, bothModes, killedBeforeRead, repeated},
		at("R2", "killed after it read", "relay_after_read:2", 0),
		{"R3", "dispatcher killed before it commits", both, bothModes,
			dispatcherKilledAt("before_accept_commit:2"), repeated},
		{"R4", "dispatcher killed after it commits", both, bothModes,
			dispatcherKilledAt("after_accept_commit:2"), repeated},
		at("R5", "killed before it removes", "relay_before_remove:2", quick),
		{"R6", "killed inside the removal of refused rows", both, bothModes, killedInRefuse, repeated},
		at("R7", "killed after it removed", "relay_after_remove:2", 0),
		{"R8", "SIGTERM under load", both, bothModes, terminated, pair | repeated},
		{"R9", "stopped between accept and remove", both, bothModes, stoppedBeforeRemove, pair | repeated},
		{"R10", "sequence numbers used again while it is stopped", both, bothModes, numbersUsedAgain,
			pair | repeated},

		// Servers end, hang or refuse.
		{"R11", "source down, and hanging", both, bothModes, sourceAway, real},
		{"R12", "SQL of the dispatcher down", both, bothModes, dispatcherAway, ownSQL},
		// In process no API is between the relay and the dispatcher.
		{"R13", "API refuses", both, httpOnly, apiRefuses, 0},
		{"R25", "connection limit", both, httpOnly, connectionLimit, apart},
		{"R25", "source read-only", both, httpOnly, readOnly, apart},

		// Rows that the dispatcher must refuse, or must keep as they are.
		{"R14", "rows with mistakes", both, bothModes, mistakes, quick},
		{"R14", "a row fails with 500", both, httpOnly, oneRowFails, 0},
		{"R15", "id used again", both, bothModes, sameID, 0},
		{"R24", "encodings", both, httpOnly, encodings, 0},
		{"R26", "too old, and from the future", both, httpOnly, wrongAges, 0},
		{"R20", "delays and time zones", both, httpOnly, delays, 0},
		{"R20", "delays and clocks an hour apart", both, httpOnly, clocksApart, apart},

		// Locks, late commits and rollbacks.
		{"R16", "rows and table locked", both, httpOnly, locked, real},
		{"R17", "transactions commit late", both, httpOnly, lateCommits, 0},
		{"R17", "transaction open for 20 minutes", both, httpOnly, veryLateCommit, long},
		{"R18", "rollbacks", both, httpOnly, rollbacks, 0},
		{"R18", "rollbacks at READ UNCOMMITTED", onlyMariaDB, httpOnly, rollbacks, apart},
		{"R19", "sequence set back", both, httpOnly, sequenceSetBack, 0},

		// Tables, rights and names.
		{"R22", "unfit tables", both, httpOnly, unfitTables, 0},
		{"R22", "binary log with statements", onlyMariaDB, httpOnly, statementLog, apart},
		{"R22", "row-level security", onlyPostgres, httpOnly, rowSecurity, 0},
		{"R23", "rights missing", both, httpOnly, rightsMissing, 0},
		{"R29", "two databases with one name", both, httpOnly, twoOrigins, noSource},

		// Restores, and other ways to the source.
		{"R27", "SQL of the dispatcher restored", both, httpOnly, dispatcherRestored, 0},
		{"R27", "source restored", both, httpOnly, sourceRestored, 0},
		{"R28", "youngest rows left alone", both, httpOnly, minimumAge, 0},
		{"R31", "behind PgBouncer", onlyPostgres, httpOnly, behindPgBouncer, noSource},
		{"R31", "mode changed", both, bothModes, modeChanged, 0},

		// Many rows, and large ones.
		{"R21", "a large backlog", both, httpOnly, largeBacklog, real},
		{"R21", "large rows", both, httpOnly, largeRows, real},
	}
}

// runFault runs a fault. A trial without a verdict counts as failed in the table.
func runFault(t *testing.T, f *fault, on *database, m mode, nth int) {
	name := strings.ReplaceAll(fmt.Sprint(f.id, "/", f.title, "/", on.name, "/", m, "/", nth), " ", "_")
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		harness.Check(t, places.Acquire(t.Context(), 1))
		t.Cleanup(func() { places.Release(1) })
		began := time.Now()
		tr := newTrial(t, f.id+" "+f.title+", "+on.name+", "+string(m), on, m)
		switch {
		case f.is(ownSQL):
		case f.is(pair) && m == inProcess:
			tr.UseBackend(harness.NewBackend(t, harness.PostgresRedis))
		default:
			tr.UseBackend(harness.NewBackend(t, harness.SQLiteEmbedded))
		}
		tr.result = line{id: f.id, title: f.title, on: on.name, mode: m, runs: 1}
		t.Cleanup(func() { tr.enter(began) })
		if !f.is(apart | noSource) {
			tr.src = tr.newOutbox("pay", on, on.shared(t))
		}
		f.run(tr)
	})
}

// enter adds the trial to the table. Its cleanup is registered first and so runs last, because a trial may
// fail after its verdict.
func (tr *trial) enter(began time.Time) {
	outcome, failures, remarks := tr.Result()
	if outcome == nil {
		tr.Errorf("%s ended without a verdict", tr.Title)
		outcome = &harness.TrialResult{}
	}
	l := tr.result
	l.rows, l.lost, l.healed, l.took = outcome.Accepted, outcome.Lost, outcome.Healed, time.Since(began)
	if tr.Failed() {
		l.failed = 1
	}
	results.enter(l, failures, remarks)
}
