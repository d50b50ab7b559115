package e2e

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// sentinelFaults are an index that goes back in time: a replica that lacks the last seconds becomes the master, or a server
// comes back with an older copy of its data. The generation is the right one then, so nothing is rebuilt.
func sentinelFaults() []fault {
	withRedis := []combination{sqliteRedis, full}
	return []fault{
		{id: "F22", title: "sentinel failover that loses writes", short: []combination{full}, full: withRedis, run: sentinelFailover},
		{id: "F22", title: "sentinel master killed", full: []combination{full}, run: sentinelMasterKilled},
		{id: "F22", title: "index rolled back to an older copy", short: []combination{sqliteRedis}, full: withRedis, run: rolledBack},
	}
}

const (
	// rolledRate is the load of these labs.
	rolledRate = 40
	// rolledHeal bounds the healing after an index went back in time: a lease, a sweep and its slack.
	rolledHeal = time.Minute
)

// watched puts the lab on a master that Sentinels watch, and starts dispatchers on it and the load.
func (l *lab) watched(replicas int) (*testserver.Sentinel, *load) {
	l.Helper()
	w := testserver.NewSentinel(l.T, testserver.SentinelOptions{Replicas: replicas})
	l.on.redis = w.URL(0)
	for range l.dispatchers(3, 2) {
		l.serve()
	}
	return w, l.loadUnlocked()
}

// loadUnlocked is the usual load; in the short form without locks: one whose release is lost is waited for half a minute.
func (l *lab) loadUnlocked() *load {
	ld := l.load(rolledRate, l.shared)
	l.loaded(3 * time.Second)
	return ld
}

// loaded waits until the load has handed over what it does in that time.
func (l *lab) loaded(d time.Duration) {
	l.Helper()
	want := l.count() + int(d.Seconds()*rolledRate)
	eventually(l, time.Minute, "the load goes on", func() error {
		if got := l.count(); got < want {
			return context.DeadlineExceeded
		}
		return nil
	})
}

// sentinelFailover lets the master acknowledge writes that no replica gets, and stops it. The Sentinels make a replica the
// master: what was accepted or settled meanwhile is unknown to it, and what had ended is there again. Later the old master
// comes back as a replica.
func sentinelFailover(l *lab) {
	w, ld := l.watched(long(l, 2, 1))
	times := long(l, 2, 1)
	for range times {
		old := w.Master()
		w.Cut(old)
		lost := time.Now()
		l.loaded(long(l, 6*time.Second, 4*time.Second))
		l.struck()
		old.Pause()
		hung := time.Now()
		promoted := w.AwaitMaster(old)
		l.struck()
		l.remark("%s of acknowledged writes were lost; another master after %s", hung.Sub(lost).Round(time.Millisecond), time.Since(hung).Round(time.Millisecond))
		l.loaded(3 * time.Second)
		old.Continue()
		w.Rejoin(old)
		w.AwaitReplica(old)
		if got := w.Master(); got != promoted {
			l.Errorf("the master changed again by itself")
		}
		l.struck()
	}
	l.rolled(ld, times)
}

// sentinelMasterKilled kills the master with -9 and starts it again, empty, as a replica.
func sentinelMasterKilled(l *lab) {
	w, ld := l.watched(2)
	old := w.Master()
	l.struck()
	old.Kill()
	w.AwaitMaster(old)
	l.struck()
	l.loaded(3 * time.Second)
	old.Start()
	w.AwaitReplica(old)
	l.struck()
	l.rolled(ld, 0)
}

// rolledBack brings the index back as it was some seconds ago: the server is killed, and started with a copy that it wrote
// before. The generation is right and the sequence is lower.
func rolledBack(l *lab) {
	server := testserver.NewRedis(l.T)
	l.on.redis = server.URL
	for range l.dispatchers(3, 2) {
		l.serve()
	}
	ld := l.loadUnlocked()
	times := long(l, 3, 1)
	for range times {
		if err := l.on.eachRedis(l.Context(), func(ctx context.Context, c *redis.Client) error { return c.Save(ctx).Err() }); err != nil {
			l.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(server.Dir, "dump.rdb")); err != nil {
			l.Fatal(err)
		}
		l.loaded(long(l, 10*time.Second, 5*time.Second))
		l.struck()
		server.Kill()
		server.Start()
		l.struck()
		l.loaded(3 * time.Second)
	}
	l.rolled(ld, times)
}

// rolled finishes the load and comes to the verdict: nothing is lost; what was resurrected is refused by the stamp, so that
// nothing is sent twice or after its end; all is healed within a minute; and at least so many steps back were noticed, not
// only swept up later.
func (l *lab) rolled(ld *load, steps int) {
	l.Helper()
	l.finishUnhindered(ld)
	l.settle(2 * time.Minute)
	l.verdict(judge.Bounds{Heal: rolledHeal})
	var refused, healed, rebuilds, noticed float64
	for _, p := range l.alive() {
		for name, sum := range map[string]*float64{
			"dispatcher_stamps_refused_total": &refused, "dispatcher_sweep_healed_total": &healed, "dispatcher_rebuilds_total": &rebuilds,
			"dispatcher_index_rollbacks_total": &noticed,
		} {
			// A counter with labels that nothing has raised is not there yet.
			if n, err := p.metric(name); err == nil {
				*sum += n
			}
		}
	}
	l.remark("%.0f stamps were refused, the sweep healed %.0f, rebuilds %.0f, rollbacks noticed %.0f", refused, healed, rebuilds, noticed)
	if int(noticed) < steps {
		l.Errorf("%.0f of %d steps back of the index were noticed", noticed, steps)
	}
}
