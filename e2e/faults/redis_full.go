package faults

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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
		{id: "F27", title: "redis out of memory", short: otherRedis, full: withRedis, run: redisOutOfMemory},
		{id: "F27", title: "evicting redis refused", short: otherRedis, full: withRedis, run: evictionRefused},
		{id: "F27", title: "redis evicts keys", short: oneOfRedis, full: withRedis, run: redisEvicts},
		{id: "F28", title: "redis disk full", short: oneOfRedis, full: withRedis, run: redisDiskFull},
	}
}

// redisOutOfMemory lowers the limit of memory under what the index takes: nothing new goes in until it is raised.
func redisOutOfMemory(tr *trial) {
	tr.Serve()
	c := tr.Backend.RedisClient(tr)
	rate := long(tr, 100, 50)
	var noticed, until time.Time
	a := tr.suffer(outage{rate: rate, before: rate * 3, after: rate * 3, strike: func(p *harness.Process) {
		do(tr, c, "config", "set", "maxmemory", "100kb")
		if err := c.Set(tr.Context(), "test", "1", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
			tr.Fatalf("a write gave %v, want OOM", err)
		}
		awaitDegraded(tr, p)
		noticed = time.Now()
		tr.awaitAccepted(tr.Count() + rate*long(tr, 30, 6))
		until = time.Now()
		do(tr, c, "config", "set", "maxmemory", 0)
	}})
	tr.degradedThroughout(&a, noticed, until)
	arrived := tr.firstArrivals(a.ended)
	tr.Remark("degraded after %s; room again to the first send %s, to the end of the backlog of %d %s", noticed.Sub(a.began).Round(time.Millisecond),
		arrived.first.Round(time.Millisecond), arrived.backlog, arrived.drained.Round(time.Millisecond))
	tr.Verdict(exact())
}

// awaitDegraded waits until the process says that Redis is in trouble.
func awaitDegraded(tr *trial, p *harness.Process) {
	tr.Helper()
	harness.Eventually(tr, 20*time.Second, "the process says that it is degraded", func() error {
		if now := look(p); !now.degraded {
			return errNotYet
		}
		return nil
	})
}

// evictionRefused starts on a server that would drop parts of the index: refused with one line that says what to do. A user
// who may read neither INFO nor CONFIG cannot be told; the program says what it could not check, and works.
func evictionRefused(tr *trial) {
	tr.restartedWith("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
	harness.Binary(tr) // building it is not what is timed
	got := harness.Command(tr, time.Minute, harness.Keys, append([]string{"serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, tr.Backend.Args()...)...)
	if got.Code != 1 && got.Code != 2 {
		tr.Errorf("serve on an evicting Redis ended with code %d, want 1 or 2", got.Code)
	}
	const own = "dispatcher: "
	_, said, _ := strings.Cut(strings.TrimSpace(got.Stderr), own) // the log comes before it
	if strings.Contains(said, "\n") || !strings.Contains(said, "allkeys-lru") || !strings.Contains(said, "noeviction") {
		tr.Errorf("serve on an evicting Redis said %q, want one line with the cause and the cure", got.Stderr)
	}
	tr.Remark("refused with code %d: %s", got.Code, strings.ReplaceAll(said, strings.TrimPrefix(tr.Backend.Redis, "redis://"), "ADDRESS"))

	do(tr, tr.Backend.RedisClient(tr), "acl", "setuser", "narrow", "on", ">secret", "~"+tr.Backend.Prefix+":*", "&"+tr.Backend.Prefix+":*", "+@all", "-info", "-config")
	tr.Backend.RedisBehind = tr.Backend.Redis
	tr.Backend.Redis = asUser(tr, tr.Backend.Redis, "narrow", "secret")
	tr.MarkFault()
	p := tr.Serve()
	if text := p.LogTail(20_000); !strings.Contains(text, "noeviction") || !strings.Contains(text, "WARN") {
		tr.Errorf("the log does not say that the eviction policy could not be read:\n%s", text)
	}
	if left := tr.AcceptAll(harness.Numbers(60), tr.Mixed); len(left) > 0 {
		tr.Errorf("%d of 60 callbacks were not accepted", len(left))
	}
	tr.Settle(time.Minute)
	tr.Verdict(exact())
}

// asUser puts a name and a password into a URL.
func asUser(tr *trial, raw, user, password string) string {
	tr.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		tr.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// redisEvicts changes the policy of a running server and has it drop keys, again and again: whole parts of the index at a
// time, among them what its generation stands in, or not. Locks are only there, so an eviction may forget one that is held.
func redisEvicts(tr *trial) {
	tr.Serve()
	c := tr.Backend.RedisClient(tr)
	rate := long(tr, 100, 50)
	evicted := 0
	a := tr.suffer(outage{rate: rate, before: rate * 3, after: rate * 3, strike: func(*harness.Process) {
		do(tr, c, "config", "set", "maxmemory-policy", "allkeys-random")
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for end := tr.Count() + rate*long(tr, 20, 6); tr.Count() < end; <-ticker.C {
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
		if text := a.p.LogTail(100_000); !strings.Contains(text, "evicted keys") || !strings.Contains(text, "noeviction") {
			return errors.New("the log does not")
		}
		return nil
	})
	tr.Remark("%d keys of the index evicted, %d rebuilds with that of the start, swept back %s, audit mended %s", evicted, tr.rebuilds(a.p),
		tally(a.p, "dispatcher_sweep_healed_total"), tally(a.p, "dispatcher_audit_repaired_total"))
	tr.Verdict(judge.Bounds{LockOverlaps: evicted, Heal: 2 * restHealing})
}

// redisDiskFull bounds the size of the files that the server may write: its log cannot grow, and it refuses all writes as
// one with a full disk does, until there is room again.
func redisDiskFull(tr *trial) {
	tr.Backend.Server.Kill()
	tr.Backend.Server.Limited = true
	tr.Backend.Server.Start(appended...)
	tr.Serve()
	c := tr.Backend.RedisClient(tr)
	rate := long(tr, 100, 50)
	var noticed, until time.Time
	a := tr.suffer(outage{rate: rate, before: rate * 3, after: rate * 3, strike: func(p *harness.Process) {
		tr.Backend.Server.LimitFiles(tr.sizeOf(tr.appendLog()))
		harness.Eventually(tr, 30*time.Second, "the server refuses writes", func() error {
			ctx, cancel := context.WithTimeout(tr.Context(), 5*time.Second)
			defer cancel()
			if err := c.Set(ctx, "test", "1", 0).Err(); !redis.HasErrorPrefix(err, "MISCONF") {
				return fmt.Errorf("a write gave %v", err)
			}
			return nil
		})
		awaitDegraded(tr, p)
		noticed = time.Now()
		tr.awaitAccepted(tr.Count() + rate*long(tr, 30, 6))
		until = time.Now()
		tr.Backend.Server.LimitFiles(-1)
	}})
	tr.degradedThroughout(&a, noticed, until)
	arrived := tr.firstArrivals(a.ended)
	tr.Remark("refused writes after %s at the latest; room again to the first send %s, to the end of the backlog of %d %s",
		noticed.Sub(a.began).Round(time.Millisecond), arrived.first.Round(time.Millisecond), arrived.backlog, arrived.drained.Round(time.Millisecond))
	tr.Verdict(exact())
}
