package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

// redisRestarts are a Redis that ends and comes back with nothing, with its log, or with an old copy of it.
func redisRestarts() []fault {
	return []fault{
		{id: "F19", title: "redis restarted empty", short: oneOfRedis, full: withRedis, run: redisRestartedEmpty},
		{id: "F20", title: "redis restarted from its log", short: oneOfRedis, full: withRedis, run: redisRestartedFromLog},
		{id: "F20", title: "redis lost the last second of its log", short: otherRedis, full: withRedis, run: redisLostLastSecond},
		{id: "F20", title: "redis restarted from an old copy", short: oneOfRedis, full: withRedis, run: func(l *lab) { redisFromOldCopy(l, false) }},
		{id: "F20", title: "redis restarted from an old snapshot", full: withRedis, run: func(l *lab) { redisFromOldCopy(l, true) }},
	}
}

// redisRestartedEmpty kills a server that keeps nothing, with retries waiting and locks held, and starts it again.
func redisRestartedEmpty(l *lab) {
	p := l.serve()
	kills := long(l, 3, 1)
	var took []time.Duration
	l.suffer(outage{rate: long(l, 100, 50), before: long(l, 600, 250), after: long(l, 600, 250), strike: func(*process) {
		for range kills {
			before := l.rebuilds(p)
			l.on.server.Kill()
			seen := l.count()
			l.awaitAccepted(seen + 50) // while it is away
			l.on.server.Start()
			back := time.Now()
			eventually(l, time.Minute, "the emptied index is rebuilt", func() error {
				if n := l.rebuilds(p); n == before {
					return errNotYet
				}
				return nil
			})
			took = append(took, time.Since(back).Round(10*time.Millisecond))
		}
	}})
	l.remark("%d kills; from the start of an empty server to the end of the rebuild: %v", kills, took)
	l.verdict(exact())
}

// appended are the settings of a Redis that people keep an index in.
var appended = []string{"--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"}

// redisRestartedFromLog kills a server that keeps a log.
func redisRestartedFromLog(l *lab) {
	l.restartedWith(appended...)
	l.serve()
	a := l.suffer(outage{rate: long(l, 100, 50), before: long(l, 1500, 250), after: long(l, 600, 250), strike: func(*process) {
		l.on.server.Kill()
		l.awaitAccepted(l.count() + 50)
		l.on.server.Start(appended...)
	}})
	l.remark("%d rebuilds with that of the start, swept back %s", l.rebuilds(a.p), tally(a.p, "dispatcher_sweep_healed_total"))
	l.verdict(exact())
}

// redisLostLastSecond is what a machine that loses its power does to such a log: what was written since the last fsync, a
// second ago at most, is not on the disk. Kill -9 alone loses nothing of that kind, for the system still has it.
func redisLostLastSecond(l *lab) {
	l.restartedWith(appended...)
	l.serve()
	var cut int64
	a := l.suffer(outage{rate: long(l, 100, 50), before: long(l, 1500, 250), after: long(l, 600, 250), strike: func(*process) {
		file := l.appendLog()
		kept := l.sizeOf(file)
		seen := l.count()
		l.awaitAccepted(seen + long(l, 100, 50)) // a second's worth
		l.on.server.Kill()
		cut = l.sizeOf(file) - kept
		if err := os.Truncate(file, kept); err != nil {
			l.Fatal(err)
		}
		l.on.server.Start(appended...)
	}})
	if cut <= 0 {
		l.Errorf("the log grew by %d bytes in a second of load: nothing was lost", cut)
	}
	l.remark("%d bytes of the log were lost; %d rebuilds with that of the start, swept back %s", cut, l.rebuilds(a.p), tally(a.p, "dispatcher_sweep_healed_total"))
	l.verdict(exact())
}

// appendLog is the file that the server appends to.
func (l *lab) appendLog() string {
	l.Helper()
	files, err := filepath.Glob(filepath.Join(l.on.server.Dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		l.Fatalf("no append-only file in %s: %v", l.on.server.Dir, err)
	}
	return slices.Max(files)
}

func (l *lab) sizeOf(file string) int64 {
	l.Helper()
	info, err := os.Stat(file)
	if err != nil {
		l.Fatal(err)
	}
	return info.Size()
}

// redisFromOldCopy puts back files of some time ago: the generation is the right one, and what the index holds is not. Ended
// callbacks are in it again, waiting ones at a tier that is over, running ones under a claim that is over; what was accepted
// since is missing.
func redisFromOldCopy(l *lab, snapshot bool) {
	settings := appended
	if snapshot {
		settings = nil
	}
	l.restartedWith(settings...)
	l.serve()
	since := long(l, 2500, 300)
	a := l.suffer(outage{rate: long(l, 100, 50), before: long(l, 600, 250), after: long(l, 600, 250), strike: func(p *process) {
		if snapshot {
			do(l, l.on.redisClient(l), "save")
		}
		copied := l.on.server.CopyFiles()
		l.awaitAccepted(l.count() + since)
		l.on.server.Kill()
		l.on.server.PutFiles(copied)
		l.on.server.Start(settings...)
	}})
	l.remark("%d callbacks were accepted since the copy; %d rebuilds with that of the start, swept back %s, stamps refused %s", since, l.rebuilds(a.p),
		tally(a.p, "dispatcher_sweep_healed_total"), tally(a.p, "dispatcher_stamps_refused_total"))
	l.verdict(exact())
}
