package faults

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// redisFaults are what can happen to Redis and to the way to it. While any of them lasts, accepting goes on,
// the program says ready and degraded, and is not restarted.
func redisFaults() []fault {
	gone := func(id, title string, on []harness.Combination, x away) fault {
		return fault{id: id, title: title, on: on, run: x.run}
	}
	long := gone("F24", "redis down for long under load", onlyPostgresRedis, downForLong())
	long.heavy = true
	return []fault{
		{id: "F19", title: "redis restarted empty", on: bothWithRedis, run: func(tr *trial) {
			lostTwice(tr, func(*trial) {
				tr.Backend.Server.Kill()
				tr.awaitMore(outageRate) // while it is away
				tr.Backend.Server.Start()
			})
		}},
		{id: "F20", title: "redis lost the last second of its log", quick: true, on: onlySQLiteRedis,
			run: redisLostLastSecond},
		{id: "F21", title: "flushall under load", on: bothWithRedis, run: func(tr *trial) {
			lostTwice(tr, (*trial).flush)
		}},
		{id: "F21", title: "flushall while locks are held", on: bothWithRedis, run: redisFlushedUnderLocks},
		gone("F24", "partition from redis, hanging", onlyPostgresRedis, partition()),
		long,
		{id: "F25", title: "replies of redis dropped", on: bothWithRedis, run: repliesDropped},
		gone("F26", "redis busy with a script", onlySQLiteRedis, busy()),
		gone("F26", "redis stopped", onlyPostgresRedis, away{
			strike: func(tr *trial, _ *redis.Client) { tr.Backend.Server.Pause() },
			heal:   func(tr *trial, _ *redis.Client) { tr.Backend.Server.Continue() },
			lasts:  5 * time.Second,
		}),
		// Under what the index takes: nothing new goes in until it is raised.
		gone("F27", "redis out of memory", onlySQLiteRedis, set("OOM", "maxmemory", "100kb", "0")),
		{id: "F27", title: "redis evicts keys", on: onlyPostgresRedis, run: redisEvicts},
		gone("F28", "redis disk full", onlyPostgresRedis, diskFull()),
		{id: "F29", title: "scripts flushed all the time", on: onlyPostgresRedis, run: scriptsFlushed},
		gone("F30", "redis made a replica of an empty one", onlySQLiteRedis, readOnlyReplica()),
		gone("F30", "redis without enough replicas", onlyPostgresRedis,
			set("NOREPLICAS", "min-replicas-to-write", "1", "0")),
		gone("F30", "redis loading its log", onlySQLiteRedis, loading()),
		{id: "F31", title: "subscriptions killed", on: onlyPostgresRedis, run: subscriptionsKilled},
	}
}

// set is a setting that keeps writes out.
func set(says, name, wrong, right string) away {
	return away{
		strike: func(tr *trial, c *redis.Client) { do(tr, c, "config", "set", name, wrong) },
		heal:   func(tr *trial, c *redis.Client) { do(tr, c, "config", "set", name, right) },
		says:   says, lasts: 6 * time.Second,
	}
}

// partition forwards nothing, with attempts in flight.
func partition() away {
	var way *harness.Proxy
	return away{
		prepare: func(tr *trial) { way = tr.behindProxy() },
		strike:  func(*trial, *redis.Client) { way.Hang() },
		heal:    func(*trial, *redis.Client) { way.Pass() },
		lasts:   3 * time.Second,
	}
}

// downForLong is a port that is closed for longer than any call waits, and a greater load.
func downForLong() away {
	return away{
		strike: func(tr *trial, _ *redis.Client) { tr.Backend.Server.Kill() },
		heal:   func(tr *trial, _ *redis.Client) { tr.Backend.Server.Start() },
		lasts:  sized(10*time.Second, 20*time.Second, time.Minute), rate: 200, acceptLimit: time.Second,
	}
}

// busy runs a script that does not end. Redis answers BUSY at once to every other command.
func busy() away {
	ended := make(chan error, 1)
	return away{
		strike: func(tr *trial, c *redis.Client) {
			do(tr, c, "config", "set", "busy-reply-threshold", 100)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				ended <- c.WithTimeout(time.Minute).Eval(ctx, "while true do end", nil).Err()
			}()
		},
		heal: func(tr *trial, c *redis.Client) {
			do(tr, c, "script", "kill")
			if err := <-ended; err == nil {
				tr.Error("the script ended by itself")
			}
		},
		says: "BUSY", lasts: 5 * time.Second,
	}
}

// diskFull bounds the size of the files that the server may write: its log cannot grow, and it refuses all
// writes as one with a full disk does, until there is room again.
func diskFull() away {
	return away{
		prepare: func(tr *trial) {
			tr.Backend.Server.Limited = true
			tr.restartedWith(appended...)
		},
		strike: func(tr *trial, _ *redis.Client) {
			_, size := tr.appendLog()
			tr.Backend.Server.LimitFiles(size)
		},
		heal: func(tr *trial, _ *redis.Client) { tr.Backend.Server.LimitFiles(-1) },
		says: "MISCONF", lasts: 6 * time.Second,
	}
}

// readOnlyReplica makes the server a replica of an empty one and back again: as long as it is one it refuses
// writes, and it has lost everything afterwards.
func readOnlyReplica() away {
	return away{
		strike: func(tr *trial, c *redis.Client) {
			host, port, _ := strings.Cut(strings.TrimPrefix(testserver.StartRedis(tr), "redis://"), ":")
			do(tr, c, "replicaof", host, port)
		},
		heal: func(tr *trial, c *redis.Client) { do(tr, c, "replicaof", "no", "one") },
		says: "READONLY", lasts: 5 * time.Second,
	}
}

// loading restarts a server that takes long to read its log: it listens, and answers LOADING.
func loading() away {
	// So many keys, so many microseconds each; after each 1024 bytes it answers.
	const filler, pause = 10_000, 300
	settings := append([]string{"--loading-process-events-interval-bytes", "1024"}, appended...)
	return away{
		prepare: func(tr *trial) { tr.restartedWith(settings...) },
		strike: func(tr *trial, c *redis.Client) {
			fill := c.Pipeline()
			for i := range filler {
				fill.Set(tr.Context(), fmt.Sprint("filler:", i), "x", 0)
			}
			if _, err := fill.Exec(tr.Context()); err != nil {
				tr.Fatal(err)
			}
			tr.Backend.Server.Kill()
			tr.Backend.Server.Begin(append([]string{"--key-load-delay", fmt.Sprint(pause)}, settings...)...)
		},
		heal: func(tr *trial, c *redis.Client) {
			harness.Eventually(tr, time.Minute, "the server has loaded its log",
				func() error { return c.Ping(tr.Context()).Err() })
		},
		says: "LOADING",
	}
}

// lostTwice has everything in Redis lost, twice, while callbacks are accepted, wait for retries and hold
// locks. Each time the index is rebuilt.
func lostTwice(tr *trial, lose func(*trial)) {
	p := tr.Serve()
	var took []time.Duration
	tr.suffer(outage{strike: func(*harness.Process) {
		for range 2 {
			before := tr.rebuilds(p)
			lose(tr)
			lost := time.Now()
			harness.Eventually(tr, time.Minute, "the index is rebuilt", func() error {
				if tr.rebuilds(p) == before {
					return errNotYet
				}
				return nil
			})
			took = append(took, time.Since(lost).Round(10*time.Millisecond))
			tr.lasting(time.Second)
		}
	}})
	tr.Remark("rebuilt after %v", took)
	tr.Verdict(exact())
}

// redisFlushedUnderLocks empties Redis whenever locks are held and others wait for them: each lock must be
// there again before anybody may take it.
func redisFlushedUnderLocks(tr *trial) {
	const keys, each, times = 3, 8, 4
	tr.Recorder.SetScript(func(*harness.Request) harness.Reply {
		return harness.Reply{Status: 200, After: time.Second}
	})
	p := tr.Serve()
	if left := tr.AcceptAll(harness.Numbers(keys*each), func(i int) harness.Submission {
		s := tr.Callback("plain", fmt.Sprint("plain-", i))
		s["lock_key"] = fmt.Sprint("order-", i%keys)
		s["policy"] = harness.Submission{"tiers": []string{"500ms", "1s"}, "timeout": "10s"}
		return s
	}); len(left) > 0 {
		tr.Fatalf("%d callbacks were not accepted", len(left))
	}
	for range times {
		before, arrived := tr.rebuilds(p), tr.Recorder.Count()
		harness.Eventually(tr, time.Minute, "a lock has just been taken, and others wait", func() error {
			if n := tr.Recorder.Count(); n == arrived || n > keys*(each-1) || tr.Recorder.InFlight() == 0 {
				return fmt.Errorf("%d of %d have arrived", n, keys*each)
			}
			return nil
		})
		tr.flush()
		tr.MarkFault()
		harness.Eventually(tr, time.Minute, "the index is rebuilt", func() error {
			if tr.rebuilds(p) == before {
				return errNotYet
			}
			return nil
		})
	}
	tr.Settle(2 * time.Minute)
	tr.Verdict(exact())
}

// redisLostLastSecond is what a machine that loses its power does to a log: what was written since the last
// fsync, a second ago at most, is not on the disk. Kill -9 alone loses nothing of that kind, for the system
// still has it.
func redisLostLastSecond(tr *trial) {
	tr.restartedWith(appended...)
	tr.Serve()
	var cut int64
	a := tr.suffer(outage{strike: func(*harness.Process) {
		file, kept := tr.appendLog()
		tr.awaitMore(outageRate) // a second's worth
		tr.Backend.Server.Kill()
		_, size := tr.appendLog()
		cut = size - kept
		if err := os.Truncate(file, kept); err != nil {
			tr.Fatal(err)
		}
		tr.Backend.Server.Start(appended...)
	}})
	if cut <= 0 {
		tr.Errorf("the log grew by %d bytes in a second of load: nothing was lost", cut)
	}
	tr.Remark("%d bytes of the log were lost; %d rebuilds with that of the start", cut, tr.rebuilds(a.p))
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
		tr.again(250*time.Millisecond, 6*outageRate, func() {
			do(tr, c, "config", "set", "maxmemory", info(tr, c, "memory", "used_memory")-2048)
		})
		do(tr, c, "config", "set", "maxmemory", 0)
		do(tr, c, "config", "set", "maxmemory-policy", "noeviction")
		evicted = info(tr, c, "stats", "evicted_keys")
	}})
	if evicted < 3 {
		tr.Errorf("only %d keys were evicted", evicted)
	}
	harness.Eventually(tr, 40*time.Second, "the log and a metric say that keys were evicted", func() error {
		n, err := a.p.Metric("dispatcher_index_evicted_keys_total")
		if text := a.p.LogTail(100_000); err != nil || n == 0 || !strings.Contains(text, "evicted keys") ||
			!strings.Contains(text, "noeviction") {
			return fmt.Errorf("the metric is %.0f, or the log is silent: %w", n, err)
		}
		return nil
	})
	tr.Remark("%d keys of the index evicted, %d rebuilds with that of the start", evicted, tr.rebuilds(a.p))
	tr.Verdict(judge.Bounds{LockOverlaps: evicted, Heal: 2 * restHealing})
}

// again does something in each period until the load has handed over n callbacks more.
func (tr *trial) again(period time.Duration, n int, do func()) {
	tr.Helper()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for end := tr.Count() + n; tr.Count() < end; <-ticker.C {
		do()
	}
}

// repliesDropped has every seventh reply to each script swallowed, after a few bytes of it, and the
// connection cut: it was executed, and the program cannot know. Timeouts of 20 s make every lease one that is
// extended.
func repliesDropped(tr *trial) {
	way := tr.behindProxy()
	tr.Serve()
	const every, pass = 7, 5
	// Scripts of the load: claim, settle, ensure, acquire, release, extend.
	const scripts = 6
	seen, hidden := map[string]int{}, map[string]int{} // by hash
	shape := func(i int) harness.Submission {
		s := tr.Mixed(i)
		s["policy"].(harness.Submission)["timeout"] = "20s"
		if i%3 == 0 {
			s["lock_key"] = fmt.Sprint("lock-", i%50)
		}
		return s
	}
	a := tr.suffer(outage{rate: 40, shape: shape, strike: func(*harness.Process) {
		way.Swallow(func(request []byte) bool {
			words := strings.SplitN(string(request), "\r\n", 6) // *N, $7, evalsha, $40, the hash
			if len(words) < 6 || words[2] != "evalsha" {
				return false
			}
			seen[words[4]]++
			if seen[words[4]]%every != 0 {
				return false
			}
			hidden[words[4]]++
			return true
		}, pass)
		tr.awaitMore(500)
		way.Swallow(nil, 0)
	}})
	often := 0
	for _, n := range hidden {
		if n >= 3 {
			often++
		}
	}
	if often < scripts {
		tr.Errorf("replies to %d scripts were dropped three times and more, want %d: %v of %v", often, scripts,
			hidden, seen)
	}
	// A batch whose reply was lost is asked for again with the same token. Without that it would wait for its
	// leases to run out, and they would be reaped.
	reaped, err := a.p.Metric("dispatcher_leases_reaped_total")
	if err != nil || reaped > 0 {
		tr.Errorf("%.0f leases ran out: %v", reaped, err)
	}
	tr.Verdict(exact())
}

// scriptsFlushed has the server forget the scripts five times a second: no call may fail for it.
func scriptsFlushed(tr *trial) {
	p := tr.Serve()
	c := tr.Backend.RedisClient(tr)
	errors := func() (n float64) {
		for _, name := range []string{"dispatcher_index_errors_total", "dispatcher_index_failures_total"} {
			if some, err := p.Metric(name); err == nil { // what was never counted is not there
				n += some
			}
		}
		return n
	}
	before := 0.0
	tr.suffer(outage{strike: func(*harness.Process) {
		before = errors() // not at the start: an index that is made meets a few calls that find it closed
		tr.again(200*time.Millisecond, 8*outageRate, func() {
			do(tr, c, "script", "flush")
			do(tr, c, "function", "flush")
		})
	}})
	if n := errors() - before; n != 0 {
		tr.Errorf("%.0f calls to the index failed", n)
	}
	tr.Verdict(exact())
}

// hintless is the latest that an attempt may begin at p99 when every wake-up is lost: the re-poll comes after
// at most a second, and this machine has other things to do.
const hintless = 1500 * time.Millisecond

// subscriptionsKilled ends every subscription ten times a second. One dispatcher accepts and one sends, so
// that only Redis can tell the one of what the other accepted, and the load is so slow that each callback has
// to wake the sender by itself.
func subscriptionsKilled(tr *trial) {
	sender := harness.Serve(tr.T, harness.Launch{On: tr.Backend,
		Args: append([]string{"--roles", "worker"}, tr.Args...)})
	tr.Serve("--roles", "api,ui")
	c := tr.Backend.RedisClient(tr)
	killed := 0
	tr.suffer(outage{rate: 7, around: 1, shape: func(i int) harness.Submission {
		kind := []string{"plain", "retry"}[i%2]
		return tr.Callback(kind, fmt.Sprintf("%s-%d", kind, i))
	}, strike: func(*harness.Process) {
		tr.again(100*time.Millisecond, 120, func() {
			n, err := c.ClientKillByFilter(tr.Context(), "type", "pubsub").Result()
			if err != nil {
				tr.Fatal(err)
			}
			killed += int(n)
		})
	}})
	v := tr.Verdict(exact())
	if v.Lateness.P99 > hintless {
		tr.Errorf("sends were %s late at p99, at most %s is allowed", v.Lateness.P99, hintless)
	}
	if err := atLeast(sender, "dispatcher_attempts_total", 1); err != nil || killed == 0 {
		tr.Errorf("%d subscriptions were killed, and the sender says: %v", killed, err)
	}
	tr.Remark("%d subscriptions killed; sends late by p50 %s, p99 %s, most %s", killed, v.Lateness.P50,
		v.Lateness.P99, v.Lateness.Most)
}
