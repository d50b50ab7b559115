package faults

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// sentinelFaults are an index that goes back in time: a replica that lacks the last seconds becomes the
// master, or a server comes back with an older copy of its data. The generation is the right one then, so
// nothing is rebuilt.
func sentinelFaults() []fault {
	return []fault{
		{id: "F22", title: "sentinel failover that loses writes", quick: true, on: onlyPostgresRedis,
			run: sentinelFailover},
		{id: "F22", title: "index rolled back to an older copy", quick: true, on: bothWithRedis, run: rolledBack},
	}
}

// rolledHeal bounds the healing after an index went back in time: a lease, a sweep and its slack.
const rolledHeal = time.Minute

// sharedLoad starts dispatchers and the load of these trials, and returns once it is under way.
func (tr *trial) sharedLoad() *harness.Load {
	tr.Helper()
	for range tr.dispatchers() {
		tr.Serve()
	}
	ld := tr.Load(outageRate, tr.shared)
	tr.lasting(3 * time.Second)
	return ld
}

// sentinelFailover lets the master acknowledge writes that no replica gets, and stops it. The Sentinels make
// a replica the master: what was accepted or settled meanwhile is unknown to it, and what had ended is there
// again. Later the old master comes back as a replica.
func sentinelFailover(tr *trial) {
	w := testserver.NewSentinel(tr.T, testserver.SentinelOptions{Replicas: 1})
	tr.Backend.Redis = w.URL(0)
	ld := tr.sharedLoad()
	old := w.Master()
	w.Cut(old)
	lost := time.Now()
	tr.lasting(4 * time.Second)
	tr.MarkFault()
	old.Pause()
	hung := time.Now()
	promoted := w.AwaitMaster(old)
	tr.MarkFault()
	tr.Remark("%s of acknowledged writes were lost; another master after %s",
		hung.Sub(lost).Round(time.Millisecond), time.Since(hung).Round(time.Millisecond))
	tr.lasting(3 * time.Second)
	old.Continue()
	w.Rejoin(old)
	w.AwaitReplica(old)
	if got := w.Master(); got != promoted {
		tr.Errorf("the master changed again by itself")
	}
	tr.MarkFault()
	tr.rolled(ld, 1)
}

// rolledBack brings the index back as it was some seconds ago: the server is killed, and started with a copy
// that it wrote before. The generation is right and the sequence is lower.
func rolledBack(tr *trial) {
	server := testserver.NewRedis(tr.T)
	tr.Backend.Redis = server.URL
	ld := tr.sharedLoad()
	const times = 2
	for range times {
		if err := tr.Backend.EachRedis(tr.Context(),
			func(ctx context.Context, c *redis.Client) error { return c.Save(ctx).Err() }); err != nil {
			tr.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(server.Dir, "dump.rdb")); err != nil {
			tr.Fatal(err)
		}
		tr.lasting(5 * time.Second)
		tr.MarkFault()
		server.Kill()
		server.Start()
		tr.MarkFault()
		tr.lasting(3 * time.Second)
	}
	tr.rolled(ld, times)
}

// rolled finishes the load and comes to the verdict: nothing is lost; what was resurrected is refused by the
// stamp, so that nothing is sent twice or after its end; all is healed within a minute; and at least so many
// steps back were noticed, not only swept up later.
func (tr *trial) rolled(ld *harness.Load, steps int) {
	tr.Helper()
	tr.finishUnhindered(ld)
	tr.Settle(2 * time.Minute)
	tr.Verdict(judge.Bounds{Heal: rolledHeal})
	var refused, healed, rebuilds, noticed float64
	for _, p := range tr.Alive() {
		for name, sum := range map[string]*float64{
			"dispatcher_stamps_refused_total": &refused, "dispatcher_sweep_healed_total": &healed,
			"dispatcher_rebuilds_total":        &rebuilds,
			"dispatcher_index_rollbacks_total": &noticed,
		} {
			// A counter with labels that nothing has raised is not there yet.
			if n, err := p.Metric(name); err == nil {
				*sum += n
			}
		}
	}
	tr.Remark("%.0f stamps were refused, the sweep healed %.0f, rebuilds %.0f, rollbacks noticed %.0f", refused,
		healed, rebuilds, noticed)
	if int(noticed) < steps {
		tr.Errorf("%.0f of %d steps back of the index were noticed", noticed, steps)
	}
}
