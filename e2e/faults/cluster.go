package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// clusterFaults are what happens to a Cluster of three masters with a replica each while it carries the
// index.
func clusterFaults() []fault {
	return []fault{
		{id: "F23", title: "cluster master killed", on: onlyPostgresRedis, run: clusterMasterKilled},
		{id: "F23", title: "cluster master restarted empty", on: onlyPostgresRedis, run: clusterMasterEmptied},
		{id: "F23", title: "cluster failover by hand", on: onlyPostgresRedis, run: clusterFailover},
		{id: "F23", title: "cluster slots moved", on: onlyPostgresRedis, run: clusterSlotsMoved},
	}
}

// clustersAtOnce bounds the Clusters that run at the same time: nodes that get no processor take each other
// for dead.
var clustersAtOnce = make(chan struct{}, 2)

// newCluster starts a Cluster with replicas when there is a place for it.
func newCluster(tr *trial, args ...string) *testserver.Cluster {
	tr.Helper()
	clustersAtOnce <- struct{}{}
	tr.Cleanup(func() { <-clustersAtOnce }) // runs when the servers have ended, because they are started later
	return testserver.NewCluster(tr.T, testserver.ClusterOptions{Replicas: true, Args: args})
}

const (
	// clusterShards is the number of shards of an index on a Cluster unless told otherwise.
	clusterShards = 16
	// clusterLanes is how many lanes the load of these trials has: enough that every shard has some.
	clusterLanes = 64
)

// A clusterTrial is a trial on a Cluster of its own.
type clusterTrial struct {
	*trial
	cluster *testserver.Cluster
	// shardOf is the shard of each lane of the load.
	shardOf [clusterLanes]int
	load    *harness.Load
	began   time.Time // when the first fault struck
	// victims are the shards that a fault has hit.
	victims map[int]bool
}

// onCluster starts a Cluster, dispatchers on it, and the load.
func onCluster(tr *trial, rate int, args ...string) *clusterTrial {
	tr.Helper()
	x := &clusterTrial{trial: tr, victims: map[int]bool{}}
	x.cluster = newCluster(tr, args...)
	tr.Backend.Redis = x.cluster.URL()
	for range tr.dispatchers() {
		tr.Serve()
	}
	x.learnShards()
	x.load = tr.Load(rate, tr.shared)
	x.awaitMore(rate)
	return x
}

// dispatchers is how many processes share the trial's index: on SQLite it is one.
func (tr *trial) dispatchers() int {
	if tr.Backend.Postgres == "" {
		return 1
	}
	return 2
}

// learnShards hands over one callback for each lane, due in a while, and looks where the index keeps it.
func (x *clusterTrial) learnShards() {
	x.Helper()
	x.AcceptMany(clusterLanes, func(i int) harness.Submission {
		s := x.Callback("plain", fmt.Sprint("first-", i))
		s["lane"], s["delay"] = laneName(i), "15s"
		s["policy"].(harness.Submission)["timeout"] = "10s"
		return s
	})
	lanes := map[string]int{}
	for i, a := range x.Accepted {
		lanes[strings.TrimPrefix(a.ID, "cb_")] = i
	}
	harness.Eventually(x, 14*time.Second, "the index holds a callback of each lane", func() error {
		found := 0
		err := x.Backend.EachRedis(x.Context(), func(ctx context.Context, c *redis.Client) error {
			for shard := range clusterShards {
				ids, err := c.HKeys(ctx, fmt.Sprintf("%s:{%s:%d}:records", x.Backend.Prefix, x.Backend.Prefix,
					shard)).Result()
				if redis.HasErrorPrefix(err, "MOVED") {
					continue // another master's
				}
				if err != nil {
					return err
				}
				for _, id := range ids {
					if i, ours := lanes[id]; ours {
						x.shardOf[i] = shard
						found++
					}
				}
			}
			return nil
		})
		if err == nil && found < clusterLanes {
			err = fmt.Errorf("%d of %d", found, clusterLanes)
		}
		return err
	})
}

// slot is where the Cluster keeps the shard.
func (x *clusterTrial) slot(shard int) int {
	return x.cluster.Slot(fmt.Sprintf("{%s:%d}", x.Backend.Prefix, shard))
}

// master is the one that has the shard.
func (x *clusterTrial) master(shard int) *testserver.Redis {
	x.Helper()
	return x.cluster.AwaitOwner(x.slot(shard), nil)
}

// hits notes that the fault is about to hit this master, or this shard.
func (x *clusterTrial) hits(master *testserver.Redis) {
	x.Helper()
	for shard := range clusterShards {
		if x.master(shard) == master {
			x.victims[shard] = true
		}
	}
	x.strikes()
}

func (x *clusterTrial) strikes() {
	if x.began.IsZero() {
		x.began = time.Now()
	}
	x.MarkFault()
}

// ends finishes the load and comes to the verdict: nothing is lost, and nothing is sent twice, because SQL's
// fence decides whatever the index says. Shards that no fault has hit were late by at most unhurt.
func (x *clusterTrial) ends(unhurt time.Duration) {
	x.Helper()
	x.MarkFault()
	over := time.Now()
	x.awaitMore(2 * clusterLanes)
	x.finishUnhindered(x.load)
	x.Settle(2 * time.Minute)
	x.Verdict(judge.Bounds{Heal: 90 * time.Second}) // a lost lock's lease, and its waiter's own timer
	e, err := x.Evidence()
	if err != nil {
		x.Fatal(err)
	}
	hurt, others := x.lateness(&e, over)
	x.Remark("lateness of the shards that were hit p50 %s p99 %s most %s, of the others p50 %s p99 %s most %s",
		hurt.P50, hurt.P99, hurt.Most, others.P50, others.P99, others.Most)
	if unhurt > 0 && others.Most > unhurt {
		x.Errorf("shards that no fault has hit were late by %s, at most %s are allowed", others.Most, unhurt)
	}
}

// lateness is that of the attempts that were due between the first fault and the end of the last one, apart
// for the shards that were hit. What needs a lock is left out: its lock may live in another shard than
// itself.
func (x *clusterTrial) lateness(e *judge.Evidence, over time.Time) (hurt, others judge.Quantiles) {
	lanes := map[string]int{}
	for i := range e.Rows {
		_, number, _ := strings.Cut(e.Rows[i].Ref, "-")
		n, err := strconv.Atoi(number)
		if err == nil && e.Rows[i].LockKey == "" {
			lanes[e.Rows[i].ID] = n % clusterLanes
		}
	}
	var of [2][]time.Duration
	for i := range e.Attempts {
		a := &e.Attempts[i]
		lane, known := lanes[a.ID]
		if !known || a.Started.IsZero() || a.Due.Before(x.began) || a.Due.After(over) {
			continue
		}
		which := 1
		if x.victims[x.shardOf[lane]] {
			which = 0
		}
		of[which] = append(of[which], max(0, a.Started.Sub(a.Due)))
	}
	return judge.QuantilesOf(of[0]), judge.QuantilesOf(of[1])
}

// clusterMasterKilled kills the master of some shards with -9, and then the one that took over from it, and
// so on. Each time the replica takes over without the last writes, and the dead one comes back as its
// replica. Slots without an owner do not stop the others here.
func clusterMasterKilled(tr *trial) {
	x := onCluster(tr, 60, "--cluster-require-full-coverage", "no")
	const shard = 0
	for range 2 {
		victim := x.master(shard)
		x.hits(victim)
		victim.Kill()
		killed := time.Now()
		x.cluster.AwaitOwner(x.slot(shard), victim)
		x.MarkFault()
		tr.Logf("a replica took over after %s", time.Since(killed).Round(time.Millisecond))
		x.awaitMore(2 * clusterLanes)
		victim.Start()
		x.cluster.AwaitReplica(victim)
		x.MarkFault()
	}
	x.ends(15 * time.Second)
}

// clusterMasterEmptied kills a master and starts it again, without its data, before anybody has missed it:
// its replica empties itself too. Some shards have no generation then, and the index is rebuilt.
func clusterMasterEmptied(tr *trial) {
	x := onCluster(tr, 60)
	victim := x.master(0)
	x.hits(victim)
	victim.Kill()
	victim.Start()
	x.cluster.AwaitOK(x.cluster.Nodes...)
	x.ends(0)
}

// clusterFailover has each replica take over from its master by hand, as before an upgrade, and back.
func clusterFailover(tr *trial) {
	x := onCluster(tr, 60)
	for round := range 2 {
		for i, first := range x.cluster.Nodes[:3] {
			master, replica := first, x.cluster.Nodes[3+i]
			if round == 1 {
				master, replica = replica, master
			}
			x.hits(master)
			x.cluster.TakeOver(replica)
			x.cluster.AwaitReplica(master)
			x.MarkFault()
			x.awaitMore(clusterLanes)
		}
	}
	x.ends(0)
}

// clusterSlotsMoved moves the slots of half of the shards to another master, one after another, while the
// load runs.
func clusterSlotsMoved(tr *trial) {
	x := onCluster(tr, 60)
	for shard := 0; shard < clusterShards; shard += 2 {
		from := x.master(shard)
		to := x.cluster.Nodes[0]
		if from == to {
			to = x.cluster.Nodes[1]
		}
		x.victims[shard] = true
		x.strikes()
		x.cluster.MoveSlot(x.slot(shard), to, 300*time.Millisecond)
		x.MarkFault()
		x.awaitMore(clusterLanes)
	}
	x.ends(5 * time.Second)
}
