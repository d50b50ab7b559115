package faults

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// redisLimits are a Redis that has no room: in memory, or on its disk.
func redisLimits() []fault {
	return []fault{
		{id: "F27", title: "redis out of memory", on: onlySQLiteRedis, run: redisOutOfMemory},
		{id: "F27", title: "redis evicts keys", on: onlyPostgresRedis, run: redisEvicts},
		{id: "F28", title: "redis disk full", on: onlyPostgresRedis, run: redisDiskFull},
	}
}

// redisOutOfMemory lowers the limit of memory under what the index takes: nothing new goes in until it is
// raised.
func redisOutOfMemory(tr *trial) {
	tr.Serve()
	c := tr.Backend.RedisClient(tr)
	var noticed, until time.Time
	a := tr.suffer(outage{strike: func(p *harness.Process) {
		do(tr, c, "config", "set", "maxmemory", "100kb")
		if err := c.Set(tr.Context(), "test", "1", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
			tr.Fatalf("a write gave %v, want OOM", err)
		}
		noticed = tr.awaitDegraded(p)
		tr.lasting(6 * time.Second)
		until = time.Now()
		do(tr, c, "config", "set", "maxmemory", 0)
	}})
	tr.degradedThroughout(&a, noticed, until)
	tr.Remark("degraded after %s; room again, %s", noticed.Sub(a.began).Round(time.Millisecond), tr.cameBack(&a))
	tr.Verdict(exact())
}

// redisEvicts changes the policy of a running server and has it drop keys, again and again: whole parts of
// the index at a time, among them what its generation stands in, or not. Locks are only there, so an eviction
// may forget one that is held.
func redisEvicts(tr *trial) {
	tr.Serve()
	c := tr.Backend.RedisClient(tr)
	evicted := 0
	a := tr.suffer(outage{strike: func(*harness.Process) {
		do(tr, c, "config", "set", "maxmemory-policy", "allkeys-random")
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for end := tr.Count() + 6*outageRate; tr.Count() < end; <-ticker.C {
			used, err := strconv.Atoi(info(tr, c, "memory", "used_memory"))
			if err != nil {
				tr.Fatal(err)
			}
			do(tr, c, "config", "set", "maxmemory", used-2048)
		}
		do(tr, c, "config", "set", "maxmemory", 0)
		do(tr, c, "config", "set", "maxmemory-policy", "noeviction")
		var err error
		if evicted, err = strconv.Atoi(info(tr, c, "stats", "evicted_keys")); err != nil {
			tr.Fatal(err)
		}
	}})
	if evicted < 3 {
		tr.Errorf("only %d keys were evicted", evicted)
	}
	harness.Eventually(tr, 40*time.Second, "the log and a metric say that keys were evicted", func() error {
		n, err := a.p.Metric("dispatcher_index_evicted_keys_total")
		if err != nil || n == 0 {
			return fmt.Errorf("the metric is %.0f: %w", n, err)
		}
		if text := a.p.LogTail(100_000); !strings.Contains(text, "evicted keys") ||
			!strings.Contains(text, "noeviction") {
			return errors.New("the log does not")
		}
		return nil
	})
	tr.Remark("%d keys of the index evicted, %d rebuilds with that of the start, swept back %s, audit mended %s",
		evicted, tr.rebuilds(a.p),
		tally(a.p, "dispatcher_sweep_healed_total"), tally(a.p, "dispatcher_audit_repaired_total"))
	tr.Verdict(judge.Bounds{LockOverlaps: evicted, Heal: 2 * restHealing})
}

// redisDiskFull bounds the size of the files that the server may write: its log cannot grow, and it refuses
// all writes as one with a full disk does, until there is room again.
func redisDiskFull(tr *trial) {
	tr.Backend.Server.Kill()
	tr.Backend.Server.Limited = true
	tr.Backend.Server.Start(appended...)
	tr.Serve()
	c := tr.Backend.RedisClient(tr)
	var noticed, until time.Time
	a := tr.suffer(outage{strike: func(p *harness.Process) {
		tr.Backend.Server.LimitFiles(tr.sizeOf(tr.appendLog()))
		harness.Eventually(tr, 30*time.Second, "the server refuses writes", func() error {
			ctx, cancel := context.WithTimeout(tr.Context(), 5*time.Second)
			defer cancel()
			if err := c.Set(ctx, "test", "1", 0).Err(); !redis.HasErrorPrefix(err, "MISCONF") {
				return fmt.Errorf("a write gave %v", err)
			}
			return nil
		})
		noticed = tr.awaitDegraded(p)
		tr.lasting(6 * time.Second)
		until = time.Now()
		tr.Backend.Server.LimitFiles(-1)
	}})
	tr.degradedThroughout(&a, noticed, until)
	noticedAfter := noticed.Sub(a.began).Round(time.Millisecond)
	tr.Remark("refused writes after %s at the latest; room again, %s", noticedAfter, tr.cameBack(&a))
	tr.Verdict(exact())
}
