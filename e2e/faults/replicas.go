package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// partly makes a Cluster serve the slots that have an owner.
const partly = "--cluster-require-full-coverage no"

// clustersAtOnce bounds the Clusters that run at the same time. Nodes without CPU time would treat each other
// as dead.
var clustersAtOnce = make(chan struct{}, 2)

const (
	// clusterShards is the default number of shards of an index on a Cluster.
	clusterShards = 16
	// clusterLanes is the number of lanes of the load: enough that every shard has some.
	clusterLanes = 64
	// clusterRate is the load, in callbacks a second.
	clusterRate = 60
)

// A clusterTrial is a trial with its own Cluster.
type clusterTrial struct {
	*trial
	cluster *testserver.Cluster
	// shardOf is the shard of each lane of the load, by the lane's number in SQL.
	shardOf map[int]int
	began   time.Time // when the faults began
	// victims are the shards that a fault hit.
	victims map[int]bool
}

// newCluster starts a Cluster with replicas when a place is free, and sets the trial's backend to it. args
// are the arguments of its servers, separated by spaces.
func newCluster(tr *trial, args string) *clusterTrial {
	tr.Helper()
	clustersAtOnce <- struct{}{}
	// Cleanups run in reverse, so the servers have ended by then.
	tr.Cleanup(func() { <-clustersAtOnce })
	x := &clusterTrial{trial: tr, victims: map[int]bool{}, shardOf: map[int]int{}}
	x.cluster = testserver.NewCluster(tr.T, testserver.ClusterOptions{Replicas: true,
		Args: strings.Fields(args)})
	tr.Backend.Redis = x.cluster.URL()
	return x
}

// onCluster runs dispatchers on a Cluster under load, and strikes. Nothing is lost or sent twice, because the
// fence in SQL decides, whatever the index has. Shards without a fault may be late by at most unhurt; zero:
// not judged.
func onCluster(unhurt time.Duration, strike func(*clusterTrial), args string) func(*trial) {
	return func(tr *trial) {
		x := newCluster(tr, args)
		x.ServeAll()
		x.learnShards()
		load := tr.Load(clusterRate, tr.shared)
		x.awaitMore(clusterRate)
		x.began = time.Now()
		strike(x)
		x.MarkFault()
		over := time.Now()
		x.awaitMore(2 * clusterLanes)
		x.finishUnhindered(load)
		// The bound covers the lease of a lost lock, and the timer of a waiter.
		x.End(2*time.Minute, judge.Bounds{Heal: 90 * time.Second})
		hurt, others := x.lateness(over)
		x.Remark("lateness of the shards that were hit %s, of the others %s", hurt, others)
		if unhurt > 0 && others.Most > unhurt {
			x.Errorf("shards that no fault has hit were late by %s, at most %s are allowed", others.Most,
				unhurt)
		}
	}
}

// learnShards accepts one callback for each lane, due in a while, and finds its shard in the index.
func (x *clusterTrial) learnShards() {
	x.AcceptMany(clusterLanes, func(i int) harness.Submission {
		s := x.Numbered("first")(i)
		s["lane"], s["delay"] = laneName(i), "15s"
		s["policy"].(harness.Submission)["timeout"] = "10s"
		return s
	})
	type row struct {
		id   string
		lane int
	}
	lanes := map[string]int{}
	for _, r := range harness.Rows(x.Trial, func(r *row) []any { return []any{&r.id, &r.lane} },
		`SELECT id, lane FROM callbacks`) {
		lanes[r.id] = r.lane
	}
	x.Eventually(14*time.Second, "the index has a callback of each lane", func() error {
		found := 0
		err := x.Backend.EachKey(x.Context(), func(c *redis.Client, key, name string) error {
			var shard int
			if name != "records" {
				return nil
			}
			if _, err := fmt.Sscanf(key, x.Backend.Prefix+":{"+x.Backend.Prefix+":%d}", &shard); err != nil {
				return err
			}
			ids, err := c.HKeys(x.Context(), key).Result()
			for _, id := range ids {
				if lane, ours := lanes[id]; ours {
					x.shardOf[lane] = shard
					found++
				}
			}
			return err
		})
		if err == nil && found < clusterLanes {
			err = fmt.Errorf("%d of %d", found, clusterLanes)
		}
		return err
	})
}

// slot is the Cluster's slot of the shard.
func (x *clusterTrial) slot(shard int) int {
	return x.cluster.Slot(fmt.Sprintf("{%s:%d}", x.Backend.Prefix, shard))
}

// master returns the master of the shard.
func (x *clusterTrial) master(shard int) *testserver.Redis {
	x.Helper()
	return x.cluster.AwaitOwner(x.slot(shard), nil)
}

// hits notes that the next fault hits this master.
func (x *clusterTrial) hits(master *testserver.Redis) {
	x.Helper()
	for shard := range clusterShards {
		if x.master(shard) == master {
			x.victims[shard] = true
		}
	}
}

// lateness returns the lateness of the attempts that were due between the first fault and the end of the last
// one, separately for the shards that were hit. It leaves out callbacks with a lock key, because the lock may
// be in another shard.
func (x *clusterTrial) lateness(over time.Time) (hurt, others judge.Quantiles) {
	type attempt struct{ lane, late int }
	of := map[bool][]time.Duration{} // true: the shard was hit
	for _, a := range harness.Rows(x.Trial, func(a *attempt) []any { return []any{&a.lane, &a.late} },
		`SELECT lane, started_at - attempts.due_at FROM attempts JOIN callbacks ON callbacks.id = callback_id
			WHERE lock_key = '' AND started_at > 0 AND attempts.due_at BETWEEN $1 AND $2`,
		x.began.UnixMilli(), over.UnixMilli()) {
		hit := x.victims[x.shardOf[a.lane]]
		of[hit] = append(of[hit], max(0, time.Duration(a.late)*time.Millisecond))
	}
	return judge.QuantilesOf(of[true]), judge.QuantilesOf(of[false])
}

// masterKilled kills the master of some shards, and then the replica that took over. Each time a replica
// takes over without the last writes, and the dead server returns as its replica.
func masterKilled(x *clusterTrial) {
	const shard = 0
	for range 2 {
		victim := x.master(shard)
		x.hits(victim)
		victim.Kill()
		killed := time.Now()
		x.cluster.AwaitOwner(x.slot(shard), victim)
		x.Logf("a replica took over after %s", time.Since(killed).Round(time.Millisecond))
		x.awaitMore(2 * clusterLanes)
		victim.Start()
		x.cluster.AwaitReplica(victim)
	}
}

// masterEmptied kills a master and restarts it without its data, before its replica takes over. The replica
// copies the empty data. Some shards then have no generation, and the index is rebuilt.
func masterEmptied(x *clusterTrial) {
	victim := x.master(0)
	x.hits(victim)
	victim.Kill()
	victim.Start()
	x.cluster.AwaitOK(x.cluster.Nodes...)
}

// failedOver makes each replica take over from its master, as before an upgrade, and back.
func failedOver(x *clusterTrial) {
	for round := range 2 {
		for i, first := range x.cluster.Nodes[:3] {
			master, replica := first, x.cluster.Nodes[3+i]
			if round == 1 {
				master, replica = replica, master
			}
			x.hits(master)
			x.cluster.TakeOver(replica)
			x.cluster.AwaitReplica(master)
			x.awaitMore(clusterLanes)
		}
	}
}

// slotsMoved moves the slots of half of the shards to another master, one at a time, under load.
func slotsMoved(x *clusterTrial) {
	for shard := 0; shard < clusterShards; shard += 2 {
		from := x.master(shard)
		to := x.cluster.Nodes[0]
		if from == to {
			to = x.cluster.Nodes[1]
		}
		x.victims[shard] = true
		x.cluster.MoveSlot(x.slot(shard), to, 300*time.Millisecond)
		x.awaitMore(clusterLanes)
	}
}

// rolledHeal bounds the healing after a rollback of the index: a lease, a sweep, and its slack.
const rolledHeal = time.Minute

// sharedLoad starts dispatchers and the load of these trials, and returns once the load runs.
func (tr *trial) sharedLoad() *harness.Load {
	tr.Helper()
	tr.ServeAll()
	ld := tr.Load(outageRate, tr.shared)
	tr.lasting(3 * time.Second)
	return ld
}

// sentinelFailover lets the master acknowledge writes that no replica gets, and stops it. The Sentinels
// promote a replica. The new master does not know the callbacks accepted or settled meanwhile, and still has
// those that have ended. Later the old master returns as a replica.
func sentinelFailover(tr *trial) {
	w := testserver.NewSentinel(tr.T, testserver.SentinelOptions{Replicas: 1})
	tr.Backend.Redis = w.URL(0)
	ld := tr.sharedLoad()
	old := w.Master()
	w.Cut(old)
	lost := time.Now()
	tr.lasting(4 * time.Second)
	old.Pause()
	hung := time.Now()
	promoted := w.AwaitMaster(old)
	tr.Remark("%s of acknowledged writes were lost; another master after %s",
		hung.Sub(lost), time.Since(hung))
	tr.lasting(3 * time.Second)
	old.Continue()
	w.Rejoin(old)
	w.AwaitReplica(old)
	if got := w.Master(); got != promoted {
		tr.Errorf("the master changed again without a cause")
	}
	tr.MarkFault()
	tr.rolled(ld, 1)
}

// rolledBack returns the index to its state of some seconds ago: the server is killed and restarted with an
// earlier copy of its data. The generation is unchanged, and the sequence is lower.
func rolledBack(tr *trial) {
	server := testserver.NewRedis(tr.T)
	tr.Backend.Redis = server.URL
	ld := tr.sharedLoad()
	const times = 2
	for range times {
		tr.Check(tr.Backend.EachRedis(tr.Context(),
			func(ctx context.Context, c *redis.Client) error { return c.Save(ctx).Err() }))
		_, err := os.Stat(filepath.Join(server.Dir, "dump.rdb"))
		tr.Check(err)
		tr.lasting(5 * time.Second)
		server.Kill()
		server.Start()
		tr.MarkFault()
		tr.lasting(3 * time.Second)
	}
	tr.rolled(ld, times)
}

// rolled finishes the load and judges it. Nothing is lost. The stamp refuses entries of ended callbacks, so
// nothing is sent twice or after its end. Everything heals within a minute. At least so many rollbacks are
// detected, rather than only repaired by the sweep.
func (tr *trial) rolled(ld *harness.Load, steps int) {
	tr.Helper()
	tr.finishUnhindered(ld)
	tr.End(2*time.Minute, judge.Bounds{Heal: rolledHeal})
	noticed := tr.sum("dispatcher_index_rollbacks_total")
	tr.Remark("%d stamps were refused, the sweep healed %d, rebuilds %d, rollbacks noticed %d",
		tr.sum("dispatcher_stamps_refused_total"), tr.sum("dispatcher_sweep_healed_total"),
		tr.sum("dispatcher_rebuilds_total"), noticed)
	if noticed < steps {
		tr.Errorf("%d of %d steps back of the index were noticed", noticed, steps)
	}
}
