package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// An away is a fault during which Redis accepts no writes.
type away struct {
	prepare func(*trial) // before the dispatcher starts; nil: nothing
	// strike begins the fault, and heal ends it.
	strike, heal func(*trial)
	// writeError is the error of a write meanwhile; empty: a write gets no response.
	writeError string
	// lasts is how long the process must report degraded, from its first report on; zero: the fault ends
	// without heal.
	lasts       time.Duration
	rate        int
	acceptLimit time.Duration
}

// run checks that the process reports degraded while Redis is away. Attempts in flight are still recorded,
// and the process does not open connections without end.
func (x away) run(tr *trial) {
	if x.prepare != nil {
		x.prepare(tr)
	}
	tr.Serve()
	options := *tr.redis().Options()
	options.MaxRetries = -1 // otherwise the client retries until it gets another response
	once := redis.NewClient(&options)
	defer once.Close()
	// connected returns the number of connections that the server has ever accepted.
	connected := func() int { return tr.info("total_connections_received") }
	before := connected()
	var noticed, until time.Time
	var committed time.Duration
	r, _ := tr.suffer(scenario{rate: x.rate, acceptLimit: x.acceptLimit, strike: func(r *faultTrial) {
		x.strike(tr)
		began := time.Now()
		if x.writeError != "" {
			tr.Eventually(30*time.Second, "Redis refuses a write", func() error {
				err := once.Set(tr.Context(), "test", "1", 0).Err()
				if !redis.HasErrorPrefix(err, x.writeError) {
					return fmt.Errorf("a write gave %v, want %s", err, x.writeError)
				}
				return nil
			})
		}
		tr.Eventually(20*time.Second, "the process reports degraded", func() error {
			_, degraded, err := readiness(r.p)
			if err == nil && !degraded {
				err = errors.New("not yet")
			}
			return err
		})
		noticed = time.Now()
		tr.Eventually(30*time.Second, "SQL has an attempt for each arrival", tr.allRecorded)
		committed = time.Since(began)
		time.Sleep(time.Until(noticed.Add(x.lasts))) // the fault lasts for a fixed time
		until = time.Now()
		x.heal(tr)
	}})
	g := r.w.during(noticed, until)
	if x.lasts > 0 && (g.reads == 0 || g.degraded < g.reads) {
		tr.Errorf("/readyz named Redis in %d of %d reads from %s to %s after the fault began", g.degraded,
			g.reads, noticed.Sub(r.began), until.Sub(r.began))
	}
	tr.Remark("results of what was in flight committed after %s, degraded after %s",
		committed, noticed.Sub(r.began))
	// After an error the client closes its connection, because the server may not be the master any more.
	if asked, most := connected()-before, 50+25*int(r.ended.Sub(r.began).Seconds()); asked > most {
		tr.Errorf("the process opened %d connections to Redis, more than %d", asked, most)
	}
}

// allRecorded returns an error unless SQL has an attempt for each request at the receiver.
func (tr *trial) allRecorded() error {
	arrived := tr.Receiver.Count()
	attempts, busy := tr.sqlCount(`SELECT count(*) FROM attempts`), tr.Receiver.InFlight()
	if attempts < arrived || busy > 0 {
		return fmt.Errorf("%d requests arrived, %d attempts are in SQL, %d are being answered", arrived,
			attempts, busy)
	}
	return nil
}

// set is a fault by a setting of Redis that refuses writes.
func set(writeError, name, wrong, right string) away {
	return away{
		strike:     func(tr *trial) { tr.do("config", "set", name, wrong) },
		heal:       func(tr *trial) { tr.do("config", "set", name, right) },
		writeError: writeError, lasts: 6 * time.Second,
	}
}

// busy runs an endless script. Redis returns BUSY to every other command.
func busy() away {
	ended := make(chan error, 1)
	return away{
		strike: func(tr *trial) {
			tr.do("config", "set", "busy-reply-threshold", 100)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				ended <- tr.redis().WithTimeout(time.Minute).Eval(ctx, "while true do end", nil).Err()
			}()
		},
		heal: func(tr *trial) {
			tr.do("script", "kill")
			if err := <-ended; err == nil {
				tr.Error("the script ended without a kill")
			}
		},
		writeError: "BUSY", lasts: 5 * time.Second,
	}
}

// loading restarts a server that reads its log slowly: it listens, and returns LOADING.
func loading() away {
	// The number of keys, and the microseconds for each. The server responds after each 1024 bytes.
	const filler, pause = 10_000, 300
	settings := append([]string{"--loading-process-events-interval-bytes", "1024"}, appended...)
	return away{
		prepare: func(tr *trial) { tr.restartedWith(settings...) },
		strike: func(tr *trial) {
			fill := tr.redis().Pipeline()
			for i := range filler {
				fill.Set(tr.Context(), fmt.Sprint("filler:", i), "x", 0)
			}
			_, err := fill.Exec(tr.Context())
			tr.Check(err)
			tr.Backend.Server.Kill()
			tr.Backend.Server.Begin(append([]string{"--key-load-delay", fmt.Sprint(pause)}, settings...)...)
		},
		heal: func(tr *trial) {
			tr.Eventually(time.Minute, "the server has loaded its log",
				func() error { return tr.redis().Ping(tr.Context()).Err() })
		},
		writeError: "LOADING",
	}
}

// lostTwice loses everything in Redis, twice, while callbacks are accepted, wait for retries and have locks.
// Each time the index is rebuilt.
func lostTwice(lose func(*trial)) func(*trial) {
	return func(tr *trial) {
		tr.Serve()
		var took []time.Duration
		tr.suffer(scenario{strike: func(r *faultTrial) {
			for range 2 {
				before := r.p.Count(rebuildsMetric)
				lose(tr)
				lost := time.Now()
				tr.awaitRebuild(r.p, before)
				took = append(took, time.Since(lost).Round(10*time.Millisecond))
				tr.lasting(time.Second)
			}
		}})
		tr.Remark("rebuilt after %v", took)
	}
}

// redisFlushedUnderLocks empties Redis while some callbacks have locks and others wait for them. Each lock
// must be restored before another callback may take it.
func redisFlushedUnderLocks(tr *trial) {
	const keys, each, times = 3, 8, 4
	tr.Receiver.Answer(harness.Always(harness.Reply{After: time.Second}))
	p := tr.Serve()
	tr.AcceptEach(keys*each, func(i int) harness.Submission {
		s := tr.Numbered("plain")(i)
		s["lock_key"] = fmt.Sprint("order-", i%keys)
		s["policy"] = harness.Tiers("10s", "500ms", "1s")
		return s
	})
	for range times {
		before, arrived := p.Count(rebuildsMetric), tr.Receiver.Count()
		tr.Eventually(time.Minute, "a lock has just been taken, and others wait", func() error {
			if n := tr.Receiver.Count(); n == arrived || n > keys*(each-1) || tr.Receiver.InFlight() == 0 {
				return fmt.Errorf("%d of %d have arrived", n, keys*each)
			}
			return nil
		})
		tr.Flush()
		tr.MarkFault()
		tr.awaitRebuild(p, before)
	}
	tr.End(2*time.Minute, exact())
}

// redisLostLastSecond simulates a power failure: the log loses the writes since the last fsync, up to a
// second. After SIGKILL alone the operating system would still have them.
func redisLostLastSecond(tr *trial) {
	tr.restartedWith(appended...)
	tr.Serve()
	var cut int64
	r, _ := tr.suffer(scenario{strike: func(*faultTrial) {
		file, kept := tr.appendLog()
		tr.awaitMore(outageRate) // one second of load
		tr.Backend.Server.Kill()
		_, size := tr.appendLog()
		cut = size - kept
		tr.Check(os.Truncate(file, kept))
		tr.Backend.Server.Start(appended...)
	}})
	if cut <= 0 {
		tr.Errorf("the log grew by %d bytes in a second of load: nothing was lost", cut)
	}
	tr.Remark("%d bytes of the log were lost; %d rebuilds, including the one at the start", cut,
		r.p.Count(rebuildsMetric))
}

// redisEvicts changes the policy of a running server and makes it evict keys, again and again. It loses whole
// parts of the index, sometimes with the key of the generation. Locks are only in Redis, so an eviction may
// lose one that is taken.
func redisEvicts(tr *trial) {
	tr.Serve()
	evicted := 0
	r, _ := tr.suffer(scenario{strike: func(*faultTrial) {
		tr.do("config", "set", "maxmemory-policy", "allkeys-random")
		tr.repeatDuring(250*time.Millisecond, 6*outageRate, func() {
			tr.do("config", "set", "maxmemory", tr.info("used_memory")-2048)
		})
		tr.do("config", "set", "maxmemory", 0)
		tr.do("config", "set", "maxmemory-policy", "noeviction")
		evicted = tr.info("evicted_keys")
	}, bounds: func() judge.Bounds { return judge.Bounds{LockOverlaps: evicted, Heal: 2 * restHealing} }})
	if evicted < 3 {
		tr.Errorf("only %d keys were evicted", evicted)
	}
	tr.Eventually(40*time.Second, "the log and a metric say that keys were evicted", func() error {
		n, err := r.p.Metric("dispatcher_index_evicted_keys_total")
		if text := r.p.LogTail(100_000); err != nil || n == 0 || !strings.Contains(text, "evicted keys") ||
			!strings.Contains(text, "noeviction") {
			return fmt.Errorf("the metric is %.0f, or the log is silent: %w", n, err)
		}
		return nil
	})
	tr.Remark("%d keys of the index evicted, %d rebuilds, including the one at the start", evicted,
		r.p.Count(rebuildsMetric))
}

// repliesDropped swallows every seventh reply to each script after a few bytes, and cuts the connection. The
// script was executed, and the program cannot know that. A timeout of 20 s forces an extension of every
// lease.
func repliesDropped(tr *trial) {
	tr.behindProxy()
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
	r, _ := tr.suffer(scenario{rate: 40, shape: shape, strike: func(*faultTrial) {
		tr.way.Swallow(func(request []byte) bool {
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
		tr.way.Swallow(nil, 0)
	}})
	often := 0
	for _, n := range hidden {
		if n >= 3 {
			often++
		}
	}
	if often < scripts {
		tr.Errorf("replies to %d scripts were dropped three times and more, want %d: %v of %v", often,
			scripts, hidden, seen)
	}
	// The program repeats a claim whose reply was lost with the same token, and gets the same batch.
	// Otherwise the batch would wait until its leases expire and are reaped.
	if reaped, err := r.p.Metric("dispatcher_leases_reaped_total"); err != nil || reaped > 0 {
		tr.Errorf("%.0f leases expired: %v", reaped, err)
	}
}

// scriptsFlushed flushes the scripts of the server five times a second. No call may fail because of it.
func scriptsFlushed(tr *trial) {
	p := tr.Serve()
	errors := func() int {
		return p.Count("dispatcher_index_call_errors_total") +
			p.Count("dispatcher_index_operation_failures_total")
	}
	before := 0
	tr.suffer(scenario{strike: func(*faultTrial) {
		before = errors() // not at the start: calls to an index that is being built may fail
		tr.repeatDuring(200*time.Millisecond, 8*outageRate, func() {
			tr.do("script", "flush")
			tr.do("function", "flush")
		})
	}})
	if n := errors() - before; n != 0 {
		tr.Errorf("%d calls to the index failed", n)
	}
}

// hintless is the allowed lateness of an attempt at p99 when every wake-up is lost. The next poll comes
// within a second, and the machine has other work.
const hintless = 1500 * time.Millisecond

// subscriptionsKilled kills every subscription ten times a second. One dispatcher accepts and another sends,
// so the sender learns of new callbacks only through Redis. The load is so slow that each callback must wake
// the sender.
func subscriptionsKilled(tr *trial) {
	sender := harness.Serve(tr.T, harness.Launch{On: tr.Backend,
		Args: append([]string{"--roles", "worker"}, tr.Args...)})
	tr.Serve("--roles", "api,ui")
	killed := 0
	_, v := tr.suffer(scenario{rate: 7, around: 1, shape: func(i int) harness.Submission {
		return tr.Numbered([]string{"plain", "retry"}[i%2])(i)
	}, strike: func(*faultTrial) {
		tr.repeatDuring(100*time.Millisecond, 120, func() {
			n, err := tr.redis().ClientKillByFilter(tr.Context(), "type", "pubsub").Result()
			tr.Check(err)
			killed += int(n)
		})
	}})
	if v.Lateness.P99 > hintless {
		tr.Errorf("sends were %s late at p99, at most %s is allowed", v.Lateness.P99, hintless)
	}
	if n := sender.Count("dispatcher_attempts_total"); n == 0 || killed == 0 {
		tr.Errorf("%d subscriptions were killed, and the sender made %d attempts", killed, n)
	}
	tr.Remark("%d subscriptions killed; sends late by %s", killed, v.Lateness)
}
