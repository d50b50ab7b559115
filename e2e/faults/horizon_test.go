package faults

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// With a horizon, Redis has the callbacks that are due within it, and only SQL has the rest.

const (
	// least is the shortest horizon that a process accepts.
	least = 2 * time.Minute
	// loadedMetric counts the callbacks that were loaded from beyond the horizon.
	loadedMetric = "dispatcher_horizon_loaded_total"
)

// members counts the members of all keys of the index in Redis. The server's memory is no measure: it also
// has the buffers of connections, the scripts, and free memory of the allocator.
func (tr *trial) members() (sum int64) {
	tr.Helper()
	tr.Check(tr.Backend.EachKey(tr.Context(), func(c *redis.Client, key, _ string) error {
		kind, err := c.Type(tr.Context(), key).Result()
		members := int64(1)
		switch {
		case err != nil:
		case kind == "zset":
			members, err = c.ZCard(tr.Context(), key).Result()
		case kind == "hash":
			members, err = c.HLen(tr.Context(), key).Result()
		}
		sum += members
		return err
	}))
	return sum
}

// agree waits until SQL and the index agree, with `beyond` callbacks beyond the horizon; below zero: any
// number.
func (tr *trial) agree(p *harness.Process, beyond int) {
	tr.Helper()
	tr.Eventually(time.Minute, "SQL and the index agree", func() error {
		got, err := p.VerifyIndex(tr.Context(), client.VerifyRequest{})
		if err == nil && (!got.Clean || beyond >= 0 && got.BeyondHorizon != beyond) {
			err = fmt.Errorf("verify: %+v, want %d beyond the horizon", got, beyond)
		}
		return err
	})
}

// A large backlog beyond the horizon costs no memory of Redis. Callbacks that come within the horizon are
// sent as punctually as those that were within it from the start. A change of the setting, up to the whole
// backlog, takes effect at the next start.
func TestHorizonBoundsWhatRedisHolds(t *testing.T) {
	runOn(t, "horizon: a great backlog", 0, onlyPostgresRedis, greatBacklog)
}

func greatBacklog(tr *trial) {
	many := testserver.Sized(20_000, 100_000, 200_000)
	p := tr.Serve("--horizon", "10m")
	tr.AcceptMany(1000, tr.Numbered("first"))
	tr.Settle(time.Minute)
	before := tr.members()
	tr.AcceptMany(many, func(i int) harness.Submission {
		return tr.due("backlog", i, 10*time.Hour)
	})
	tr.Eventually(time.Minute, "all are enqueued", func() error {
		waiting, err := p.Metric("dispatcher_enqueues_waiting")
		return errors.Join(err, wantZero(int(waiting)))
	})
	// Counters, lanes and watermarks may change, but no callback has a member.
	if after := tr.members(); after > before+16 {
		tr.Errorf("%d callbacks beyond the horizon grew the index from %d members to %d", many, before,
			after)
	}
	if filled, err := tr.filled(); err != nil || filled != 0 {
		tr.Errorf("the index has %d, %v", filled, err)
	}
	tr.agree(p, many)

	p.Exit(time.Minute)
	p = tr.Serve("--horizon", least.String())
	tr.awaitHorizon(least)
	tr.punctual()
	tr.agree(p, many)

	p.Exit(time.Minute)
	p = tr.Serve()
	began := time.Now()
	tr.awaitFilled(many, 3*time.Minute)
	tr.Remark("the whole backlog was in the index %s after the start without a horizon",
		time.Since(began))
	tr.agree(p, 0)
	tr.Verdict(judge.Bounds{MayBeOpen: true})
}

// awaitHorizon waits until the watermark, up to which the index is loaded, is at the horizon.
func (tr *trial) awaitHorizon(horizon time.Duration) {
	tr.Eventually(time.Minute, "the watermark is at the horizon", func() error {
		return tr.Backend.EachRedis(tr.Context(), func(ctx context.Context, c *redis.Client) error {
			at, err := c.HGet(ctx, tr.Backend.Prefix+":{"+tr.Backend.Prefix+":0}:meta", "watermark").Int64()
			if ahead := time.Until(time.UnixMilli(at)); err == nil && (ahead > horizon || ahead < horizon/2) {
				err = fmt.Errorf("it is %s ahead", ahead)
			}
			return err
		})
	})
}

// punctual submits callbacks on both sides of the horizon, and compares their lateness.
func (tr *trial) punctual() {
	const each = 200
	tr.AcceptMany(2*each, func(i int) harness.Submission {
		if i < each {
			return tr.due("near", i, 20*time.Second+time.Duration(i)*150*time.Millisecond)
		}
		return tr.due("far", i, least+15*time.Second+time.Duration(i-each)*150*time.Millisecond)
	})
	tr.Eventually(time.Minute, "the near ones are in the index, the far ones are not", func() error {
		filled, err := tr.filled()
		if err == nil && filled < each || filled > each+60 {
			err = fmt.Errorf("it has %d", filled)
		}
		return err
	})
	tr.awaitEnds(2*least, "near-%")
	tr.awaitEnds(2*least, "far-%")
	near, far := judge.QuantilesOf(tr.lateness("near-%")), judge.QuantilesOf(tr.lateness("far-%"))
	tr.Remark("late by %s within the horizon, and by %s from beyond it", near, far)
	if far.P50 > near.P50+100*time.Millisecond || far.P99 > near.P99+time.Second {
		tr.Errorf("lateness from beyond the horizon is %s, within it %s", far, near)
	}
}

// The loader is killed after it has moved the watermark and before it has read SQL. Redis is emptied twice.
// All callbacks are still sent, whether due within or beyond the horizon or moved beyond it by a long wait.
// None is early, and only those in flight at the kill may be sent twice.
func TestHorizonThroughFaults(t *testing.T) {
	runOn(t, "horizon: the loader is killed and Redis emptied", 0, onlySQLiteRedis, loaderKilled)
}

func loaderKilled(tr *trial) {
	const many = 600
	horizon := []string{"--horizon", least.String()}
	// The failpoint is in the second load: by then this process has the lease, and the other one does not.
	first := tr.ServeUntil("after_watermark:2", horizon...)
	shape := func(i int) harness.Submission {
		if i%4 > 0 {
			return tr.due("plain", i, time.Duration(i)*200*time.Second/many)
		}
		s := tr.due("retry", i, time.Duration(i)*40*time.Second/many)
		s["policy"] = harness.Tiers("2s", "130s", "1s", "1s")
		return s
	}
	tr.AcceptMany(many, shape)
	first.AwaitMetric(2*time.Minute, loadedMetric, 1)
	second := tr.Serve(horizon...)
	died := tr.AwaitDeath(first, time.Minute, 5*time.Second)
	second.AwaitMetric(time.Minute, loadedMetric, 1)
	took := time.Since(died)
	for range 2 {
		before := second.Count(rebuildsMetric)
		tr.Flush()
		tr.MarkFault()
		tr.awaitRebuild(second, before)
		tr.Eventually(time.Minute, "the index is as SQL says", tr.whole)
		filled, err := tr.filled()
		tr.Check(err)
		within := tr.sqlCount(`SELECT count(*) FROM callbacks WHERE state = 'scheduled' AND due_at <= $1`,
			time.Now().Add(least+30*time.Second).UnixMilli())
		if filled > within {
			tr.Errorf("a rebuilt index has %d, and %d are due within the horizon", filled, within)
		}
		tr.agree(second, -1)
	}
	v := tr.Conclude(6*time.Minute, 0)
	tr.Remark("%d callbacks; the next loader had loaded %s after the first one's death; late by %s",
		v.Accepted, took, v.Lateness)
}

// On a Cluster each shard has its own watermark. A master is killed, and its replica takes over without the
// last writes. The loader goes on from the replica's watermarks, and the other shards are loaded meanwhile.
func TestHorizonOnACluster(t *testing.T) {
	runOn(t, "horizon: a master of a Cluster is killed", 0, onlySQLiteRedis, horizonOnACluster)
}

func horizonOnACluster(tr *trial) {
	const many = 1500
	x := newCluster(tr, partly)
	p := tr.Serve("--horizon", least.String())
	tr.AcceptMany(many, func(i int) harness.Submission {
		s := tr.due("plain", i, time.Duration(i)*200*time.Second/many)
		s["lane"] = laneName(i)
		return s
	})
	for _, shard := range []int{0, 7} {
		p.AwaitMetric(time.Minute, loadedMetric, float64(p.Count(loadedMetric)+1))
		victim := x.master(shard)
		victim.Kill()
		x.cluster.AwaitOwner(x.slot(shard), victim)
		tr.MarkFault()
		victim.Start()
		tr.agree(p, -1)
	}
	v := tr.End(6*time.Minute, judge.Bounds{})
	tr.Remark("%d callbacks in %d shards, two masters killed: late by %s", v.Accepted, clusterShards,
		v.Lateness)
}
