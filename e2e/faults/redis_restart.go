package faults

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// redisRestarts are a Redis that ends and comes back with nothing, with its log, or with an old copy of it.
func redisRestarts() []fault {
	return []fault{
		{id: "F19", title: "redis restarted empty", on: bothWithRedis, run: redisRestartedEmpty},
		{id: "F20", title: "redis restarted from its log", on: onlyPostgresRedis, run: redisRestartedFromLog},
		{id: "F20", title: "redis lost the last second of its log", quick: true, on: onlySQLiteRedis,
			run: redisLostLastSecond},
		{id: "F20", title: "redis restarted from an old copy", quick: true, on: onlyPostgresRedis,
			run: redisFromOldCopy},
	}
}

// redisRestartedEmpty kills a server that keeps nothing, with retries waiting and locks held, and starts it
// again.
func redisRestartedEmpty(tr *trial) {
	p := tr.Serve()
	const kills = 2
	var took []time.Duration
	tr.suffer(outage{strike: func(*harness.Process) {
		for range kills {
			before := tr.rebuilds(p)
			tr.Backend.Server.Kill()
			tr.awaitMore(50) // while it is away
			tr.Backend.Server.Start()
			back := time.Now()
			harness.Eventually(tr, time.Minute, "the emptied index is rebuilt", func() error {
				if n := tr.rebuilds(p); n == before {
					return errNotYet
				}
				return nil
			})
			took = append(took, time.Since(back).Round(10*time.Millisecond))
		}
	}})
	tr.Remark("%d kills; from the start of an empty server to the end of the rebuild: %v", kills, took)
	tr.Verdict(exact())
}

// appended are the settings of a Redis that people keep an index in.
var appended = []string{"--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage",
	"0"}

// redisRestartedFromLog kills a server that keeps a log.
func redisRestartedFromLog(tr *trial) {
	tr.restartedWith(appended...)
	tr.Serve()
	a := tr.suffer(outage{strike: func(*harness.Process) {
		tr.Backend.Server.Kill()
		tr.awaitMore(50)
		tr.Backend.Server.Start(appended...)
	}})
	tr.Remark("%d rebuilds with that of the start, swept back %s", tr.rebuilds(a.p),
		tally(a.p, "dispatcher_sweep_healed_total"))
	tr.Verdict(exact())
}

// redisLostLastSecond is what a machine that loses its power does to such a log: what was written since the
// last fsync, a second ago at most, is not on the disk. Kill -9 alone loses nothing of that kind, for the
// system still has it.
func redisLostLastSecond(tr *trial) {
	tr.restartedWith(appended...)
	tr.Serve()
	var cut int64
	a := tr.suffer(outage{strike: func(*harness.Process) {
		file := tr.appendLog()
		kept := tr.sizeOf(file)
		tr.awaitMore(50) // a second's worth
		tr.Backend.Server.Kill()
		cut = tr.sizeOf(file) - kept
		if err := os.Truncate(file, kept); err != nil {
			tr.Fatal(err)
		}
		tr.Backend.Server.Start(appended...)
	}})
	if cut <= 0 {
		tr.Errorf("the log grew by %d bytes in a second of load: nothing was lost", cut)
	}
	tr.Remark("%d bytes of the log were lost; %d rebuilds with that of the start, swept back %s", cut,
		tr.rebuilds(a.p), tally(a.p, "dispatcher_sweep_healed_total"))
	tr.Verdict(exact())
}

// appendLog is the file that the server appends to.
func (tr *trial) appendLog() string {
	tr.Helper()
	files, err := filepath.Glob(filepath.Join(tr.Backend.Server.Dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		tr.Fatalf("no append-only file in %s: %v", tr.Backend.Server.Dir, err)
	}
	return slices.Max(files)
}

func (tr *trial) sizeOf(file string) int64 {
	tr.Helper()
	info, err := os.Stat(file)
	if err != nil {
		tr.Fatal(err)
	}
	return info.Size()
}

// redisFromOldCopy puts back files of some time ago: the generation is the right one, and what the index
// holds is not. Ended callbacks are in it again, waiting ones at a tier that is over, running ones under a
// claim that is over; what was accepted since is missing.
func redisFromOldCopy(tr *trial) {
	const since = 300
	tr.restartedWith(appended...)
	tr.Serve()
	a := tr.suffer(outage{strike: func(*harness.Process) {
		copied := tr.Backend.Server.CopyFiles()
		tr.awaitMore(since)
		tr.Backend.Server.Kill()
		tr.Backend.Server.PutFiles(copied)
		tr.Backend.Server.Start(appended...)
	}})
	tr.Remark("%d callbacks were accepted since the copy; %d rebuilds with that of the start, swept back %s, "+
		"stamps refused %s", since, tr.rebuilds(a.p),
		tally(a.p, "dispatcher_sweep_healed_total"), tally(a.p, "dispatcher_stamps_refused_total"))
	tr.Verdict(exact())
}
