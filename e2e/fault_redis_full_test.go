package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
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
func redisOutOfMemory(l *lab) {
	l.serve()
	c := l.on.redisClient(l)
	rate := long(l, 100, 50)
	var noticed, until time.Time
	a := l.suffer(outage{rate: rate, before: rate * 3, after: rate * 3, strike: func(p *process) {
		do(l, c, "config", "set", "maxmemory", "100kb")
		if err := c.Set(l.Context(), "test", "1", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
			l.Fatalf("a write gave %v, want OOM", err)
		}
		awaitDegraded(l, p)
		noticed = time.Now()
		l.awaitAccepted(l.count() + rate*long(l, 30, 6))
		until = time.Now()
		do(l, c, "config", "set", "maxmemory", 0)
	}})
	l.degradedThroughout(&a, noticed, until)
	arrived := l.firstArrivals(a.ended)
	l.remark("degraded after %s; room again to the first send %s, to the end of the backlog of %d %s", noticed.Sub(a.began).Round(time.Millisecond),
		arrived.first.Round(time.Millisecond), arrived.backlog, arrived.drained.Round(time.Millisecond))
	l.verdict(exact())
}

// awaitDegraded waits until the process says that Redis is in trouble.
func awaitDegraded(l *lab, p *process) {
	l.Helper()
	eventually(l, 20*time.Second, "the process says that it is degraded", func() error {
		if now := look(p); !now.degraded {
			return errNotYet
		}
		return nil
	})
}

// evictionRefused starts on a server that would drop parts of the index: refused with one line that says what to do. A user
// who may read neither INFO nor CONFIG cannot be told; the program says what it could not check, and works.
func evictionRefused(l *lab) {
	l.restartedWith("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
	binary(l) // building it is not what is timed
	got := command(l, time.Minute, keys, append([]string{"serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, l.on.args()...)...)
	if got.code != 1 && got.code != 2 {
		l.Errorf("serve on an evicting Redis ended with code %d, want 1 or 2", got.code)
	}
	const own = "dispatcher: "
	_, said, _ := strings.Cut(strings.TrimSpace(got.stderr), own) // the log comes before it
	if strings.Contains(said, "\n") || !strings.Contains(said, "allkeys-lru") || !strings.Contains(said, "noeviction") {
		l.Errorf("serve on an evicting Redis said %q, want one line with the cause and the cure", got.stderr)
	}
	l.remark("refused with code %d: %s", got.code, strings.ReplaceAll(said, strings.TrimPrefix(l.on.redis, "redis://"), "ADDRESS"))

	do(l, l.on.redisClient(l), "acl", "setuser", "narrow", "on", ">secret", "~"+l.on.prefix+":*", "&"+l.on.prefix+":*", "+@all", "-info", "-config")
	l.on.redisBehind = l.on.redis
	l.on.redis = asUser(l, l.on.redis, "narrow", "secret")
	l.struck()
	p := l.serve()
	if text := p.logTail(20_000); !strings.Contains(text, "noeviction") || !strings.Contains(text, "WARN") {
		l.Errorf("the log does not say that the eviction policy could not be read:\n%s", text)
	}
	if left := l.acceptAll(numbers(60), l.mixed); len(left) > 0 {
		l.Errorf("%d of 60 callbacks were not accepted", len(left))
	}
	l.settle(time.Minute)
	l.verdict(exact())
}

// asUser puts a name and a password into a URL.
func asUser(l *lab, raw, user, password string) string {
	l.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		l.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// redisEvicts changes the policy of a running server and has it drop keys, again and again: whole parts of the index at a
// time, among them what its generation stands in, or not. Locks are only there, so an eviction may forget one that is held.
func redisEvicts(l *lab) {
	l.serve()
	c := l.on.redisClient(l)
	rate := long(l, 100, 50)
	evicted := 0
	a := l.suffer(outage{rate: rate, before: rate * 3, after: rate * 3, strike: func(*process) {
		do(l, c, "config", "set", "maxmemory-policy", "allkeys-random")
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for end := l.count() + rate*long(l, 20, 6); l.count() < end; <-ticker.C {
			used, err := strconv.Atoi(info(l, c, "memory", "used_memory"))
			if err != nil {
				l.Fatal(err)
			}
			do(l, c, "config", "set", "maxmemory", used-2048)
		}
		do(l, c, "config", "set", "maxmemory", 0)
		do(l, c, "config", "set", "maxmemory-policy", "noeviction")
		var err error
		if evicted, err = strconv.Atoi(info(l, c, "stats", "evicted_keys")); err != nil {
			l.Fatal(err)
		}
	}})
	if evicted < 3 {
		l.Errorf("only %d keys were evicted", evicted)
	}
	eventually(l, 40*time.Second, "the log and a metric say that keys were evicted", func() error {
		n, err := a.p.metric("dispatcher_index_evicted_keys_total")
		if err != nil || n == 0 {
			return fmt.Errorf("the metric is %.0f: %w", n, err)
		}
		if text := a.p.logTail(100_000); !strings.Contains(text, "evicted keys") || !strings.Contains(text, "noeviction") {
			return errors.New("the log does not")
		}
		return nil
	})
	l.remark("%d keys of the index evicted, %d rebuilds with that of the start, swept back %s, audit mended %s", evicted, l.rebuilds(a.p),
		tally(a.p, "dispatcher_sweep_healed_total"), tally(a.p, "dispatcher_audit_repaired_total"))
	l.verdict(judge.Bounds{LockOverlaps: evicted, Heal: 2 * restHealing})
}

// redisDiskFull bounds the size of the files that the server may write: its log cannot grow, and it refuses all writes as
// one with a full disk does, until there is room again.
func redisDiskFull(l *lab) {
	l.on.server.Kill()
	l.on.server.Limited = true
	l.on.server.Start(appended...)
	l.serve()
	c := l.on.redisClient(l)
	rate := long(l, 100, 50)
	var noticed, until time.Time
	a := l.suffer(outage{rate: rate, before: rate * 3, after: rate * 3, strike: func(p *process) {
		l.on.server.LimitFiles(l.sizeOf(l.appendLog()))
		eventually(l, 30*time.Second, "the server refuses writes", func() error {
			ctx, cancel := context.WithTimeout(l.Context(), 5*time.Second)
			defer cancel()
			if err := c.Set(ctx, "test", "1", 0).Err(); !redis.HasErrorPrefix(err, "MISCONF") {
				return fmt.Errorf("a write gave %v", err)
			}
			return nil
		})
		awaitDegraded(l, p)
		noticed = time.Now()
		l.awaitAccepted(l.count() + rate*long(l, 30, 6))
		until = time.Now()
		l.on.server.LimitFiles(-1)
	}})
	l.degradedThroughout(&a, noticed, until)
	arrived := l.firstArrivals(a.ended)
	l.remark("refused writes after %s at the latest; room again to the first send %s, to the end of the backlog of %d %s",
		noticed.Sub(a.began).Round(time.Millisecond), arrived.first.Round(time.Millisecond), arrived.backlog, arrived.drained.Round(time.Millisecond))
	l.verdict(exact())
}
