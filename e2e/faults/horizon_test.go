package faults

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// With a horizon Redis holds what is due within it, and SQL the rest.

// least is the nearest horizon that a process takes.
const least = 2 * time.Minute

// horizonTrial is a trial of its own, beside the matrix.
func horizonTrial(t *testing.T, title string, c harness.Combination) *trial {
	t.Helper()
	mostlyWaits(t)
	tr := newTrial(t, "horizon: "+title)
	tr.UseBackend(harness.NewBackend(t, c))
	return tr
}

// members counts what the index keeps in Redis, in all of its keys. The server's own memory also has the
// buffers of connections, the scripts and what the allocator keeps.
func (tr *trial) members() (sum int64) {
	tr.Helper()
	err := tr.Backend.EachRedis(tr.Context(), func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, tr.Backend.Prefix+":{*").Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			kind, err := c.Type(ctx, key).Result()
			members := int64(1)
			switch {
			case err != nil:
			case kind == "zset":
				members, err = c.ZCard(ctx, key).Result()
			case kind == "hash":
				members, err = c.HLen(ctx, key).Result()
			}
			if err != nil {
				return fmt.Errorf("members of %s: %w", key, err)
			}
			sum += members
		}
		return nil
	})
	if err != nil {
		tr.Fatal(err)
	}
	return sum
}

// A compared is what a comparison of SQL with the index found.
type compared struct {
	Clean   bool `json:"clean"`
	Rows    int  `json:"rows"`
	Items   int  `json:"items"`
	Beyond  int  `json:"beyond_horizon"`
	Missing int  `json:"missing"`
}

func (tr *trial) compare(p *harness.Process) (got compared, err error) {
	ctx, cancel := context.WithTimeout(tr.Context(), 2*time.Minute)
	defer cancel()
	err = p.Call(ctx, http.MethodPost, "/v1/index/verify", nil, http.StatusOK, &got)
	return got, err
}

// agree waits until SQL and the index agree, so many callbacks beyond the horizon apart; less than zero: any
// number.
func (tr *trial) agree(p *harness.Process, beyond int) {
	tr.Helper()
	harness.Eventually(tr, time.Minute, "SQL and the index agree", func() error {
		got, err := tr.compare(p)
		if err == nil && (!got.Clean || beyond >= 0 && got.Beyond != beyond) {
			err = fmt.Errorf("verify: %+v, want %d beyond the horizon", got, beyond)
		}
		return err
	})
}

// due is a callback that is due after d.
func (tr *trial) due(kind, ref string, d time.Duration) harness.Submission {
	s := tr.Callback(kind, ref)
	s["delay"] = d.String()
	return s
}

// A great backlog beyond the horizon costs Redis nothing. What crosses the horizon is sent as punctually as
// what was within it from the beginning. And each change of the setting, up to the whole backlog, takes
// effect at the next start.
func TestHorizonBoundsWhatRedisHolds(t *testing.T) {
	tr := horizonTrial(t, "a great backlog", harness.PostgresRedis)
	many := sized(20_000, 100_000, 200_000)
	p := tr.Serve("--horizon", "10m")
	tr.AcceptMany(1000, func(i int) harness.Submission { return tr.Callback("plain", fmt.Sprint("first-", i)) })
	tr.Settle(time.Minute)
	before := tr.members()
	tr.AcceptMany(many, func(i int) harness.Submission {
		return tr.due("plain", fmt.Sprint("backlog-", i),
			10*time.Hour)
	})
	harness.Eventually(tr, time.Minute, "the index has been told of all", func() error {
		waiting, err := p.Metric("dispatcher_enqueues_waiting")
		if err == nil && waiting > 0 {
			err = fmt.Errorf("%g are waiting", waiting)
		}
		return err
	})
	// Counters, lanes and watermarks may change; nothing is there for a callback.
	if after := tr.members(); after > before+16 {
		tr.Errorf("%d callbacks beyond the horizon let the index grow from %d members to %d", many, before, after)
	}
	if held, err := tr.filled(); err != nil || held != 0 {
		tr.Errorf("the index holds %d, %v", held, err)
	}
	tr.agree(p, many)

	tr.terminate(p)
	p = tr.Serve("--horizon", least.String())
	tr.awaitHorizon(least)
	tr.punctual()
	tr.agree(p, many)

	tr.terminate(p)
	p = tr.Serve()
	began := time.Now()
	harness.Eventually(tr, 3*time.Minute, "the whole backlog is in the index", func() error {
		held, err := tr.filled()
		if err == nil && held < int64(many) {
			err = fmt.Errorf("%d are", held)
		}
		return err
	})
	tr.Logf("the whole backlog was in the index %s after the start without a horizon",
		time.Since(began).Round(100*time.Millisecond))
	tr.agree(p, 0)
	tr.Verdict(judge.Bounds{MayBeOpen: true})
}

// awaitHorizon waits until the index takes in nothing that is due later.
func (tr *trial) awaitHorizon(horizon time.Duration) {
	tr.Helper()
	harness.Eventually(tr, time.Minute, "the watermark is at the horizon", func() error {
		return tr.Backend.EachRedis(tr.Context(), func(ctx context.Context, c *redis.Client) error {
			at, err := c.HGet(ctx, tr.Backend.Prefix+":{"+tr.Backend.Prefix+":0}:meta", "watermark").Int64()
			if ahead := time.Until(time.UnixMilli(at)); err == nil && (ahead > horizon || ahead < horizon/2) {
				err = fmt.Errorf("it is %s ahead", ahead)
			}
			return err
		})
	})
}

// terminate ends a process in order.
func (tr *trial) terminate(p *harness.Process) {
	tr.Helper()
	p.Terminate()
	if code := p.ExitCode(time.Minute); code != 0 {
		tr.Fatalf("it ended with code %d", code)
	}
}

// punctual hands over callbacks on both sides of the horizon, and compares how late they are sent.
func (tr *trial) punctual() {
	tr.Helper()
	const each = 200
	tr.AcceptMany(2*each, func(i int) harness.Submission {
		if i < each {
			return tr.due("plain", fmt.Sprint("near-", i), 20*time.Second+time.Duration(i)*150*time.Millisecond)
		}
		return tr.due("plain", fmt.Sprint("far-", i),
			least+15*time.Second+time.Duration(i-each)*150*time.Millisecond)
	})
	harness.Eventually(tr, time.Minute, "the near ones are in the index, the far ones are not", func() error {
		held, err := tr.filled()
		if err == nil && held < each || held > each+60 {
			err = fmt.Errorf("it holds %d", held)
		}
		return err
	})
	tr.awaitEnds(2*least, "near-%")
	tr.awaitEnds(2*least, "far-%")
	near, far := judge.QuantilesOf(tr.lateness("near-%")), judge.QuantilesOf(tr.lateness("far-%"))
	tr.Logf("late by p50 %s, p99 %s, at most %s within the horizon, and p50 %s, p99 %s, at most %s from "+
		"beyond it", near.P50, near.P99, near.Most, far.P50, far.P99, far.Most)
	if far.P50 > near.P50+100*time.Millisecond || far.P99 > near.P99+time.Second {
		tr.Errorf("what comes from beyond the horizon is late: %+v, what was within it %+v", far, near)
	}
}

// The loader is killed after it has moved the watermark and before it has read SQL; Redis is emptied, and
// emptied again: what is due on either side of the horizon, and what a long wait takes beyond it, is all
// sent, none of it early, and none twice but for what was in flight at the kill.
func TestHorizonThroughFaults(t *testing.T) {
	const many = 600
	tr := horizonTrial(t, "the loader is killed and Redis emptied", harness.SQLiteRedis)
	horizon := []string{"--horizon", least.String()}
	// Of the second load: then it has the lease, and the other one has not.
	first := tr.ServeUntil("after_watermark:2", horizon...)
	shape := func(i int) harness.Submission {
		if i%4 > 0 {
			return tr.due("plain", fmt.Sprint("plain-", i), time.Duration(i)*200*time.Second/many)
		}
		s := tr.due("retry", fmt.Sprint("retry-", i), time.Duration(i)*40*time.Second/many)
		s["policy"] = harness.Submission{"tiers": []string{"130s", "1s", "1s"}, "timeout": "2s"}
		return s
	}
	tr.AcceptMany(many, shape)
	harness.Eventually(tr, 2*time.Minute, "the first one has loaded",
		func() error { return atLeast(first, "dispatcher_horizon_loaded_total", 1) })
	second := tr.Serve(horizon...)
	awaitDeath(tr.T, first, "after_watermark", time.Minute)
	died := time.Now()
	tr.MarkFault()
	claims := tr.UncommittedClaims()
	claims.Take(died, 5*time.Second)
	harness.Eventually(tr, time.Minute, "the other one loads",
		func() error { return atLeast(second, "dispatcher_horizon_loaded_total", 1) })
	took := time.Since(died)
	for range 2 {
		before := tr.rebuilds(second)
		tr.flush()
		tr.MarkFault()
		harness.Eventually(tr, time.Minute, "the index is rebuilt", func() error {
			if tr.rebuilds(second) == before {
				return errNotYet
			}
			return tr.whole()
		})
		held, err := tr.filled()
		if err != nil {
			tr.Fatal(err)
		}
		var within int64
		err = tr.Database().QueryRowContext(tr.Context(),
			`SELECT count(*) FROM callbacks WHERE state = 'scheduled' AND due_at <= $1`,
			time.Now().Add(least+30*time.Second).UnixMilli()).Scan(&within)
		if err != nil || held > within {
			tr.Errorf("a rebuilt index holds %d, and %d are due within the horizon, %v", held, within, err)
		}
		tr.agree(second, -1)
	}
	tr.Settle(6 * time.Minute)
	claims.Account()
	v := tr.Verdict(claims.Bounds(0))
	tr.Logf("%d callbacks; the next loader had loaded %s after the first one's death; late by p50 %s, p99 "+
		"%s, at most %s", v.Accepted, took.Round(time.Millisecond), v.Lateness.P50, v.Lateness.P99, v.Lateness.Most)
}

// On a Cluster each shard has a watermark of its own. A master is killed and its replica takes over, without
// the last writes: its shards are loaded from where they stand by then, and the others go on meanwhile.
func TestHorizonOnACluster(t *testing.T) {
	const many = 1500
	tr := horizonTrial(t, "a master of a Cluster is killed", harness.SQLiteRedis)
	x := &clusterTrial{trial: tr, victims: map[int]bool{}}
	x.cluster = newCluster(tr, "--cluster-require-full-coverage", "no")
	tr.Backend.Redis = x.cluster.URL()
	p := tr.Serve("--horizon", least.String())
	tr.AcceptMany(many, func(i int) harness.Submission {
		s := tr.due("plain", fmt.Sprint("plain-", i), time.Duration(i)*200*time.Second/many)
		s["lane"] = laneName(i)
		return s
	})
	for _, shard := range []int{0, 7} {
		loaded, err := p.Metric("dispatcher_horizon_loaded_total")
		if err != nil {
			tr.Fatal(err)
		}
		harness.Eventually(tr, time.Minute, "some are loaded",
			func() error { return atLeast(p, "dispatcher_horizon_loaded_total", loaded+1) })
		victim := x.master(shard)
		victim.Kill()
		x.cluster.AwaitOwner(x.slot(shard), victim)
		tr.MarkFault()
		victim.Start()
		tr.agree(p, -1)
	}
	tr.Settle(6 * time.Minute)
	v := tr.Verdict(judge.Bounds{})
	tr.Logf("%d callbacks in %d shards, two masters killed: late by p50 %s, p99 %s, at most %s", v.Accepted,
		clusterShards, v.Lateness.P50, v.Lateness.P99, v.Lateness.Most)
}
