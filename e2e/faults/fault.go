// Package faults tests the built binary under faults and under load: the matrix of faults, races against the
// claim, crowds of endpoints, polls, redrives, receivers that misbehave. It runs in make test-full.
//
// Times are asserted loosely: the figures that it prints are for reading, the limits are for machines that do
// other work besides.
package faults

import (
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A fault is one row of the matrix: what is broken, and how a trial shows that nothing is lost by it.
type fault struct {
	id    string // F1 … as docs/guide/guarantees.md lists them
	title string
	// on are the combinations that it runs on. A run on one more combination must be able to fail where the
	// others do not: a fault of the process runs on both ends, which have each database and each index once;
	// a fault between the commit in SQL and the index, on all four; a fault of Redis or of PostgreSQL, on one
	// that has it, unless what heals it reads the other side.
	on  []harness.Combination
	run func(*trial)
	how
}

// how a fault is run.
type how int

const (
	// quick processes take up the work of dead ones after seconds: see harness.QuickTimes.
	quick how = 1 << iota
	// heavy faults load the machine: nothing runs beside them.
	heavy
	// apart faults break PostgreSQL, or bring their own servers: they get no backend and call UseBackend
	// themselves.
	apart
)

func (h how) is(what how) bool { return h&what != 0 }

// matrix is every fault. Each file of faults lists its own.
func matrix() []fault {
	return slices.Concat(killFaults(), leaseFaults(), retentionFaults(), redisFaults(), replicaFaults(),
		sqlFaults(), localFaults(), upgradeFaults(), scaleFaults(), restoreFaults())
}

// Combinations that many faults run on.
var (
	onlySQLite        = []harness.Combination{harness.SQLiteEmbedded}
	onlyPostgres      = []harness.Combination{harness.PostgresOnly}
	onlyPostgresRedis = []harness.Combination{harness.PostgresRedis}
	onlySQLiteRedis   = []harness.Combination{harness.SQLiteRedis}
	// bothWithRedis are for what rebuilds the index: that reads SQL.
	bothWithRedis = []harness.Combination{harness.SQLiteRedis, harness.PostgresRedis}
)
