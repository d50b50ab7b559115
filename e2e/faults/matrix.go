package faults

import (
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A fault is one row of the matrix: what breaks, and the trial that shows that nothing is lost.
type fault struct {
	id    string // F1 … as docs/guide/guarantees.md lists them
	title string
	// on are the combinations that it runs on. Another combination is worth a run only if it can fail where
	// the others do not. A fault of the process runs on both ends, which have each database and each index
	// once. A fault between the commit in SQL and the index runs on all four. A fault of Redis or of
	// PostgreSQL runs on one combination that has it, unless the repair also reads the other side.
	on  []harness.Combination
	run func(*trial)
	how
}

// how says how a fault runs.
type how int

const (
	// quick: processes take over the work of dead ones after seconds: see harness.QuickTimes.
	quick how = 1 << iota
	// heavy faults load the machine, so no other test runs at the same time.
	heavy
	// apart faults break PostgreSQL or start their own servers. They get no backend and call UseBackend
	// themselves.
	apart
	// unlimited: processes have the usual number of connections to SQL, because they have the server to
	// themselves.
	unlimited
)

func (h how) is(what how) bool { return h&what != 0 }

// Combinations of many faults.
var (
	onlySQLite        = []harness.Combination{harness.SQLiteEmbedded}
	onlyPostgres      = []harness.Combination{harness.PostgresOnly}
	onlyPostgresRedis = []harness.Combination{harness.PostgresRedis}
	onlySQLiteRedis   = []harness.Combination{harness.SQLiteRedis}
	// bothWithRedis are for faults that cause a rebuild of the index, because that reads SQL.
	bothWithRedis = []harness.Combination{harness.SQLiteRedis, harness.PostgresRedis}
)

// matrix returns all faults.
func matrix() []fault {
	both := harness.BothEnds
	at := func(id, title, failpoint string, on []harness.Combination) fault {
		return fault{id, title, on, killed(slowly20, death{failpoint: failpoint}), quick}
	}
	return []fault{
		// SIGKILL between any two steps in the life of a callback, at the named failpoint of a test build.
		// The number of the pass lets some work finish first, so that the crash finds callbacks in every
		// state.
		at("F1", "killed before an accept commits", "before_accept_commit:4", both),
		at("F2", "killed between commit and index", "after_accept_commit:4", harness.AllFour),
		at("F3", "killed between index and answer", "after_enqueue:4", both),
		at("F4", "killed after a claim", "after_claim:3", both),
		at("F4", "killed after a lock", "after_lock:3", both),
		at("F4", "killed after a stamp", "after_stamp:3", both),
		at("F4", "killed before the send", "before_send:6", both),
		{"F5", "killed while the receiver works", both, killed(longAtFirst, death{waits: busyWithTen}),
			quick},
		at("F6", "killed after the answer", "after_send:6", both),
		at("F6", "killed before a result commits", "before_result_commit:3", both),
		at("F7", "killed between result and index", "after_result_commit:3", harness.AllFour),
		at("F8", "killed after a settlement", "after_settle:3", both),
		// By the eighth sweep, after 16 s, the claims of the first process have expired.
		{"F9", "killed in the sweep", both, killed(harness.Usual, death{failpoint: "after_stamp:3"},
			death{failpoint: "during_sweep:8"}), quick},
		{"F9", "killed in a rebuild", both, killed(harness.Usual, death{delay: "4s"},
			death{failpoint: "during_rebuild:1", empties: true}), quick},
		{"F10", "killed while it accepts batches", both, killedInBatches, quick},
		{"F11", "random kills and an emptied index", onlyPostgresRedis, randomKills, quick | heavy},
		{"F14", "killed before its drain has ended", both, killedInDrain, quick},
		{"F16", "attempt that kills its process", both, poisoned, quick},

		// A process is stopped for longer than its leases, the holder of a lock key is killed, and attempts
		// take longer than a lease. The first one runs with the usual times and so tests them.
		{"F12", "stopped in a transaction for longer than its lease", onlyPostgresRedis, stoppedPastLease, 0},
		{"F32", "holder of a lock killed", both, lockHolderKilled, quick},
		{"F33", "attempts longer than a lease", both, longerThanALease, quick},

		// Retention is as short as possible, and runs every five seconds under load.
		{"F50", "payloads and callbacks purged under load", both, purged, 0},

		// Faults of Redis and of the connection to it. Meanwhile the dispatcher goes on accepting, reports
		// ready and degraded, and is not restarted.
		{"F19", "redis restarted empty", bothWithRedis, lostTwice(func(tr *trial) {
			tr.Backend.Server.Kill()
			tr.awaitMore(outageRate) // while Redis is down
			tr.Backend.Server.Start()
		}), 0},
		{"F20", "redis lost the last second of its log", onlySQLiteRedis, redisLostLastSecond, quick},
		{"F21", "flushall under load", bothWithRedis, lostTwice((*trial).Flush), 0},
		{"F21", "flushall while locks are held", bothWithRedis, redisFlushedUnderLocks, 0},
		// Nothing is forwarded, with attempts in flight.
		{"F24", "partition from redis, hanging", onlyPostgresRedis, away{
			prepare: (*trial).behindProxy,
			strike:  func(tr *trial) { tr.way.Hang() },
			heal:    func(tr *trial) { tr.way.Pass() },
			lasts:   3 * time.Second,
		}.run, 0},
		// The port is closed for longer than the timeout of any call, under a higher load.
		{"F24", "redis down for long under load", onlyPostgresRedis, away{
			strike: func(tr *trial) { tr.Backend.Server.Kill() },
			heal:   func(tr *trial) { tr.Backend.Server.Start() },
			lasts:  testserver.Sized(10*time.Second, 20*time.Second, time.Minute),
			rate:   200, acceptLimit: time.Second,
		}.run, heavy},
		{"F25", "replies of redis dropped", bothWithRedis, repliesDropped, 0},
		{"F26", "redis busy with a script", onlySQLiteRedis, busy().run, 0},
		{"F26", "redis stopped", onlyPostgresRedis, away{
			strike: func(tr *trial) { tr.Backend.Server.Pause() },
			heal:   func(tr *trial) { tr.Backend.Server.Continue() },
			lasts:  5 * time.Second,
		}.run, 0},
		// The limit is below the size of the index, so all writes fail until the limit is removed.
		{"F27", "redis out of memory", onlySQLiteRedis, set("OOM", "maxmemory", "100kb", "0").run, 0},
		{"F27", "redis evicts keys", onlyPostgresRedis, redisEvicts, 0},
		// A limit on file sizes stops the growth of the server's log. As with a full disk, it refuses all
		// writes until there is room again.
		{"F28", "redis disk full", onlyPostgresRedis, away{
			prepare: func(tr *trial) {
				tr.Backend.Server.Limited = true
				tr.restartedWith(appended...)
			},
			strike: func(tr *trial) {
				_, size := tr.appendLog()
				tr.Backend.Server.LimitFiles(size)
			},
			heal:       func(tr *trial) { tr.Backend.Server.LimitFiles(-1) },
			writeError: "MISCONF", lasts: 6 * time.Second,
		}.run, 0},
		{"F29", "scripts flushed all the time", onlyPostgresRedis, scriptsFlushed, 0},
		// A replica refuses writes, and has lost all its own data afterwards.
		{"F30", "redis made a replica of an empty one", onlySQLiteRedis, away{
			strike: func(tr *trial) {
				host, port, _ := strings.Cut(strings.TrimPrefix(testserver.StartRedis(tr), "redis://"), ":")
				tr.do("replicaof", host, port)
			},
			heal:       func(tr *trial) { tr.do("replicaof", "no", "one") },
			writeError: "READONLY", lasts: 5 * time.Second,
		}.run, 0},
		{"F30", "redis without enough replicas", onlyPostgresRedis,
			set("NOREPLICAS", "min-replicas-to-write", "1", "0").run, 0},
		{"F30", "redis loading its log", onlySQLiteRedis, loading().run, 0},
		{"F31", "subscriptions killed", onlyPostgresRedis, subscriptionsKilled, 0},

		// Faults of a Cluster with three masters, each with a replica, that has the index. In the trial whose
		// master is down for long, the Cluster still serves the other slots.
		{"F23", "cluster master killed", onlyPostgresRedis, onCluster(15*time.Second, masterKilled, partly),
			0},
		{"F23", "cluster master restarted empty", onlyPostgresRedis, onCluster(0, masterEmptied, ""), 0},
		{"F23", "cluster failover by hand", onlyPostgresRedis, onCluster(0, failedOver, ""), 0},
		{"F23", "cluster slots moved", onlyPostgresRedis, onCluster(5*time.Second, slotsMoved, ""), 0},
		// The index goes back in time: a replica without the last seconds becomes the master, or a server
		// returns with an older copy of its data. The generation is unchanged, so the index is not rebuilt.
		{"F22", "sentinel failover that loses writes", onlyPostgresRedis, sentinelFailover, quick},
		{"F22", "index rolled back to an older copy", bothWithRedis, rolledBack, quick},

		// A database ends, hangs, is locked, cannot write, or has no room. While it cannot commit, the
		// dispatcher accepts nothing and sends nothing. It records the attempts in flight once it can commit,
		// without an operator.
		{"F34", "PostgreSQL stopped, killed, and a session killed", onlyPostgresRedis, postgresEnds, apart},
		{"F34", "sessions ended every second", onlyPostgres, sessionsEnded, 0},
		{"F35", "PostgreSQL hangs", onlyPostgres, postgresHangs, quick},
		{"F35", "PostgreSQL hangs for two dispatchers", onlyPostgresRedis, postgresHangs, quick},
		{"F36", "table locked by another session", onlyPostgresRedis, lockedOut, 0},
		{"F37", "database read-only", onlyPostgres, readOnly, 0},
		{"F38", "PostgreSQL's disk full", onlyPostgresRedis, postgresDiskFull, apart},
		{"F39", "SQLite locked by another process", onlySQLite, lockedOut, 0},
		{"F39", "SQLite's disk full", onlySQLite, sqliteDiskFull, apart},
		{"F55", "log of SQLite cut off", onlySQLite, logCutOff, 0},

		// Faults of the dispatcher's own machine, for which no receiver is responsible and no tier is
		// charged. The first one is about receivers that try to exhaust its memory.
		{"F17", "answers without an end", onlySQLite, flooded, 0},
		{"F18", "no file descriptors left", onlySQLite, noDescriptors, 0},
		{"F45", "no name server answers", onlySQLite, noNames, 0},

		// Two binaries run at the same time: the one of this checkout, and one with another migration, which
		// the tests add as an overlay to the build. F46 upgrades from the newest release, once there is one.
		{"F46", "rolling upgrade and back", bothWithRedis, rollingUpgrade, 0},
		{"F47", "migration that fails half-way", both, brokenMigration, 0},
		{"F47", "killed in a migration", onlyPostgresRedis, killedInMigration, 0},

		// The index of many open callbacks is lost, complete or during its rebuild, and thousands of
		// destinations fail. The open callbacks are seeded in SQL: see harness.Seeding.
		{"F49", "started cold with many open", both, startedCold, heavy},
		{"F49", "emptied while it is filled", onlySQLiteRedis, emptiedWhileFilled, heavy},
		{"F49", "leader of the rebuild killed", onlyPostgresRedis, leaderKilled, heavy | quick},
		{"F44", "a black hole with a long backlog", both, blackHole, heavy},
		{"F44", "a black hole with many due", onlyPostgresRedis, blackHoleWithManyDue, heavy},
		{"F43", "a crowd of endpoints down and up again", both, crowdFails, heavy},

		// A database is restored from an older backup, while Redis still has later entries. The trial follows
		// the procedure of docs/guide/operations.md.
		{"F40", "SQL restored from an older backup", onlyPostgresRedis,
			func(tr *trial) { restoredFromBackup(tr, false) }, apart | quick},
		{"F40", "SQL restored from before a rebuild", onlyPostgresRedis,
			func(tr *trial) { restoredFromBackup(tr, true) }, apart | quick},
	}
}
