package faults

import (
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
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
	// unlimited processes have as many connections to SQL as usual: heavy ones are alone on their server.
	unlimited
)

func (h how) is(what how) bool { return h&what != 0 }

// Combinations that many faults run on.
var (
	onlySQLite        = []harness.Combination{harness.SQLiteEmbedded}
	onlyPostgres      = []harness.Combination{harness.PostgresOnly}
	onlyPostgresRedis = []harness.Combination{harness.PostgresRedis}
	onlySQLiteRedis   = []harness.Combination{harness.SQLiteRedis}
	// bothWithRedis are for what rebuilds the index: that reads SQL.
	bothWithRedis = []harness.Combination{harness.SQLiteRedis, harness.PostgresRedis}
)

// matrix is every fault.
func matrix() []fault {
	both := harness.BothEnds
	at := func(id, title, failpoint string, on []harness.Combination) fault {
		return fault{id, title, on, killed(slowly20, death{failpoint: failpoint}), quick}
	}
	return []fault{
		// Kill -9 between any two steps of the life of a callback: at the named failpoint of a test build, at
		// the pass that lets some work come to its end first, so that the crash finds callbacks in every
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
		// By the eighth sweep, after 16 s, the claims of the first one have run out.
		{"F9", "killed in the sweep", both, killed(harness.Usual, death{failpoint: "after_stamp:3"},
			death{failpoint: "during_sweep:8"}), quick},
		{"F9", "killed in a rebuild", both, killed(harness.Usual, death{delay: "4s"},
			death{failpoint: "during_rebuild:1", empties: true}), quick},
		{"F10", "killed while it accepts batches", both, killedInBatches, quick},
		{"F11", "random kills and an emptied index", onlyPostgresRedis, randomKills, quick | heavy},
		{"F14", "killed before its drain has ended", both, killedInDrain, quick},
		{"F16", "attempt that kills its process", both, poisoned, quick},

		// A process is stopped for longer than its leases, the holder of a lock key is taken away, and
		// attempts are longer than a lease. The first one has the usual times, and shows them.
		{"F12", "stopped in a transaction for longer than its lease", onlyPostgresRedis, stoppedPastLease, 0},
		{"F32", "holder of a lock killed", both, lockHolderKilled, quick},
		{"F33", "attempts longer than a lease", both, longerThanALease, quick},

		// Retention, as short as it can be set, runs beside the load, each five seconds.
		{"F50", "payloads and callbacks purged under load", both, purged, 0},

		// What can happen to Redis and to the way to it. While any of them lasts, accepting goes on, the
		// program says ready and degraded, and is not restarted.
		{"F19", "redis restarted empty", bothWithRedis, lostTwice(func(tr *trial) {
			tr.Backend.Server.Kill()
			tr.awaitMore(outageRate) // while it is away
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
		// A port that is closed for longer than any call waits, and a greater load.
		{"F24", "redis down for long under load", onlyPostgresRedis, away{
			strike: func(tr *trial) { tr.Backend.Server.Kill() },
			heal:   func(tr *trial) { tr.Backend.Server.Start() },
			lasts:  sized(10*time.Second, 20*time.Second, time.Minute), rate: 200, acceptLimit: time.Second,
		}.run, heavy},
		{"F25", "replies of redis dropped", bothWithRedis, repliesDropped, 0},
		{"F26", "redis busy with a script", onlySQLiteRedis, busy().run, 0},
		{"F26", "redis stopped", onlyPostgresRedis, away{
			strike: func(tr *trial) { tr.Backend.Server.Pause() },
			heal:   func(tr *trial) { tr.Backend.Server.Continue() },
			lasts:  5 * time.Second,
		}.run, 0},
		// Under what the index takes: nothing new goes in until it is raised.
		{"F27", "redis out of memory", onlySQLiteRedis, set("OOM", "maxmemory", "100kb", "0").run, 0},
		{"F27", "redis evicts keys", onlyPostgresRedis, redisEvicts, 0},
		// The size of the files that the server may write is bounded: its log cannot grow, and it refuses all
		// writes as one with a full disk does, until there is room again.
		{"F28", "redis disk full", onlyPostgresRedis, away{
			prepare: func(tr *trial) {
				tr.Backend.Server.Limited = true
				tr.restartedWith(appended...)
			},
			strike: func(tr *trial) {
				_, size := tr.appendLog()
				tr.Backend.Server.LimitFiles(size)
			},
			heal: func(tr *trial) { tr.Backend.Server.LimitFiles(-1) },
			says: "MISCONF", lasts: 6 * time.Second,
		}.run, 0},
		{"F29", "scripts flushed all the time", onlyPostgresRedis, scriptsFlushed, 0},
		// As long as it is a replica it refuses writes, and it has lost everything afterwards.
		{"F30", "redis made a replica of an empty one", onlySQLiteRedis, away{
			strike: func(tr *trial) {
				host, port, _ := strings.Cut(strings.TrimPrefix(testserver.StartRedis(tr), "redis://"), ":")
				tr.do("replicaof", host, port)
			},
			heal: func(tr *trial) { tr.do("replicaof", "no", "one") },
			says: "READONLY", lasts: 5 * time.Second,
		}.run, 0},
		{"F30", "redis without enough replicas", onlyPostgresRedis,
			set("NOREPLICAS", "min-replicas-to-write", "1", "0").run, 0},
		{"F30", "redis loading its log", onlySQLiteRedis, loading().run, 0},
		{"F31", "subscriptions killed", onlyPostgresRedis, subscriptionsKilled, 0},

		// What happens to a Cluster of three masters with a replica each while it carries the index. Slots
		// without an owner do not stop the others where a master is away for long.
		{"F23", "cluster master killed", onlyPostgresRedis, onCluster(15*time.Second, masterKilled, partly),
			0},
		{"F23", "cluster master restarted empty", onlyPostgresRedis, onCluster(0, masterEmptied, ""), 0},
		{"F23", "cluster failover by hand", onlyPostgresRedis, onCluster(0, failedOver, ""), 0},
		{"F23", "cluster slots moved", onlyPostgresRedis, onCluster(5*time.Second, slotsMoved, ""), 0},
		// The index goes back in time: a replica that lacks the last seconds becomes the master, or a server
		// comes back with an older copy of its data. The generation is the right one then, so nothing is
		// rebuilt.
		{"F22", "sentinel failover that loses writes", onlyPostgresRedis, sentinelFailover, quick},
		{"F22", "index rolled back to an older copy", bothWithRedis, rolledBack, quick},

		// A database ends, hangs, is locked, cannot write, or has no room. While it cannot commit nothing is
		// accepted and nothing is sent; what was in flight is recorded once it can; and no one has to help.
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

		// Troubles of the dispatcher's own machine, which no receiver is to blame for: no tier is charged for
		// them. And receivers that try to take its memory.
		{"F17", "answers without an end", onlySQLite, flooded, 0},
		{"F18", "no file descriptors left", onlySQLite, noDescriptors, 0},
		{"F45", "no name server answers", onlySQLite, noNames, 0},

		// Two binaries run side by side: the one of this checkout, and one that has a migration more, which
		// exists in the tests alone and is overlaid on the build.
		{"F46", "rolling upgrade and back", bothWithRedis, rollingUpgrade, 0},
		{"F47", "migration that fails half-way", both, brokenMigration, 0},
		{"F47", "killed in a migration", onlyPostgresRedis, killedInMigration, 0},

		// The index of many open callbacks is lost, whole or while it is being filled, and destinations break
		// by the thousand. The open callbacks are seeded in SQL: see harness.Seeding.
		{"F49", "started cold with many open", both, startedCold, heavy},
		{"F49", "emptied while it is filled", onlySQLiteRedis, emptiedWhileFilled, heavy},
		{"F49", "leader of the rebuild killed", onlyPostgresRedis, leaderKilled, heavy | quick},
		{"F44", "a black hole with a long backlog", both, blackHole, heavy},
		{"F44", "a black hole with many due", onlyPostgresRedis, blackHoleWithManyDue, heavy},
		{"F43", "a crowd of endpoints down and up again", both, crowdFails, heavy},

		// A database is put back to an older backup, while Redis remembers what came after it. The procedure
		// is that of docs/guide/operations.md.
		{"F40", "SQL restored from an older backup", onlyPostgresRedis,
			func(tr *trial) { restoredFromBackup(tr, false) }, apart | quick},
		{"F40", "SQL restored from before a rebuild", onlyPostgresRedis,
			func(tr *trial) { restoredFromBackup(tr, true) }, apart | quick},
	}
}
