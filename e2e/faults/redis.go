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

// An away is a Redis that cannot be written to for a while.
type away struct {
	prepare func(*trial) // before the dispatcher starts; nil: nothing
	// strike begins the fault, and heal ends it.
	strike, heal func(*trial)
	// says is what a write is answered with meanwhile; empty: it has no answer.
	says string
	// lasts is how long the process must say that it is degraded, from when it first does; zero: the fault
	// ends by itself.
	lasts       time.Duration
	rate        int
	acceptLimit time.Duration
}

// run has the process say that it is degraded for as long as Redis is away. What is in flight when that
// begins is recorded all the same, and Redis is not asked for connections without end.
func (x away) run(tr *trial) {
	if x.prepare != nil {
		x.prepare(tr)
	}
	tr.Serve()
	options := *tr.redis().Options()
	options.MaxRetries = -1 // else it would ask again until the answer is another
	once := redis.NewClient(&options)
	defer once.Close()
	// How many connections the server has ever been asked for.
	connected := func() int { return tr.info("total_connections_received") }
	before := connected()
	var noticed, until time.Time
	var committed time.Duration
	r, _ := tr.suffer(scenario{rate: x.rate, acceptLimit: x.acceptLimit, strike: func(r *struck) {
		x.strike(tr)
		began := time.Now()
		if x.says != "" {
			tr.Eventually(30*time.Second, "Redis refuses a write", func() error {
				if err := once.Set(tr.Context(), "test", "1", 0).Err(); !redis.HasErrorPrefix(err, x.says) {
					return fmt.Errorf("a write gave %v, want %s", err, x.says)
				}
				return nil
			})
		}
		tr.Eventually(20*time.Second, "the process says that it is degraded", func() error {
			_, degraded, err := readiness(r.p)
			if err == nil && !degraded {
				err = errors.New("not yet")
			}
			return err
		})
		noticed = time.Now()
		tr.Eventually(30*time.Second, "all that arrived is committed to SQL meanwhile", tr.allRecorded)
		committed = time.Since(began)
		time.Sleep(time.Until(noticed.Add(x.lasts))) // the fault lasts, by the clock
		until = time.Now()
		x.heal(tr)
	}})
	g := r.w.during(noticed, until)
	if x.lasts > 0 && (g.looks == 0 || g.degraded < g.looks) {
		tr.Errorf("/readyz named Redis in %d of %d looks from %s to %s after the fault began", g.degraded,
			g.looks, noticed.Sub(r.began), until.Sub(r.began))
	}
	tr.Remark("results of what was in flight committed after %s, degraded after %s",
		committed, noticed.Sub(r.began))
	// After a refusal the client closes its connection: perhaps it leads to a server that is no master any
	// more.
	if asked, most := connected()-before, 50+25*int(r.ended.Sub(r.began).Seconds()); asked > most {
		tr.Errorf("Redis was asked for %d connections, more than %d", asked, most)
	}
}

// allRecorded says whether SQL has an attempt for each request that came to the receiver.
func (tr *trial) allRecorded() error {
	arrived := tr.Receiver.Count()
	attempts, busy := tr.sqlCount(`SELECT count(*) FROM attempts`), tr.Receiver.InFlight()
	if attempts < arrived || busy > 0 {
		return fmt.Errorf("%d requests arrived, %d attempts are in SQL, %d are being answered", arrived,
			attempts,
			busy)
	}
	return nil
}

// set is a setting that keeps writes out.
func set(says, name, wrong, right string) away {
	return away{
		strike: func(tr *trial) { tr.do("config", "set", name, wrong) },
		heal:   func(tr *trial) { tr.do("config", "set", name, right) },
		says:   says, lasts: 6 * time.Second,
	}
}

// busy runs a script that does not end. Redis answers BUSY at once to every other command.
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
				tr.Error("the script ended by itself")
			}
		},
		says: "BUSY", lasts: 5 * time.Second,
	}
}

// loading restarts a server that takes long to read its log: it listens, and answers LOADING.
func loading() away {
	// So many keys, so many microseconds each; after each 1024 bytes it answers.
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
		says: "LOADING",
	}
}

// lostTwice has everything in Redis lost, twice, while callbacks are accepted, wait for retries and hold
// locks. Each time the index is rebuilt.
func lostTwice(lose func(*trial)) func(*trial) {
	return func(tr *trial) {
		tr.Serve()
		var took []time.Duration
		tr.suffer(scenario{strike: func(r *struck) {
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

// redisFlushedUnderLocks empties Redis whenever locks are held and others wait for them: each lock must be
// there again before anybody may take it.
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

// redisLostLastSecond is what a machine that loses its power does to a log: what was written since the last
// fsync, a second ago at most, is not on the disk. Kill -9 alone loses nothing of that kind, for the system
// still has it.
func redisLostLastSecond(tr *trial) {
	tr.restartedWith(appended...)
	tr.Serve()
	var cut int64
	r, _ := tr.suffer(scenario{strike: func(*struck) {
		file, kept := tr.appendLog()
		tr.awaitMore(outageRate) // a second's worth
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

// redisEvicts changes the policy of a running server and has it drop keys, again and again: whole parts of
// the index at a time, among them what its generation stands in, or not. Locks are only there, so an eviction
// may forget one that is held.
func redisEvicts(tr *trial) {
	tr.Serve()
	evicted := 0
	r, _ := tr.suffer(scenario{strike: func(*struck) {
		tr.do("config", "set", "maxmemory-policy", "allkeys-random")
		tr.again(250*time.Millisecond, 6*outageRate, func() {
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

// repliesDropped has every seventh reply to each script swallowed, after a few bytes of it, and the
// connection cut: it was executed, and the program cannot know. Timeouts of 20 s make every lease one that is
// extended.
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
	r, _ := tr.suffer(scenario{rate: 40, shape: shape, strike: func(*struck) {
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
			scripts,
			hidden, seen)
	}
	// A batch whose reply was lost is asked for again with the same token. Without that it would wait for its
	// leases to run out, and they would be reaped.
	if reaped, err := r.p.Metric("dispatcher_leases_reaped_total"); err != nil || reaped > 0 {
		tr.Errorf("%.0f leases ran out: %v", reaped, err)
	}
}

// scriptsFlushed has the server forget the scripts five times a second: no call may fail for it.
func scriptsFlushed(tr *trial) {
	p := tr.Serve()
	errors := func() int {
		return p.Count("dispatcher_index_errors_total") + p.Count("dispatcher_index_failures_total")
	}
	before := 0
	tr.suffer(scenario{strike: func(*struck) {
		before = errors() // not at the start: an index that is made meets a few calls that find it closed
		tr.again(200*time.Millisecond, 8*outageRate, func() {
			tr.do("script", "flush")
			tr.do("function", "flush")
		})
	}})
	if n := errors() - before; n != 0 {
		tr.Errorf("%d calls to the index failed", n)
	}
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
	killed := 0
	_, v := tr.suffer(scenario{rate: 7, around: 1, shape: func(i int) harness.Submission {
		return tr.Numbered([]string{"plain", "retry"}[i%2])(i)
	}, strike: func(*struck) {
		tr.again(100*time.Millisecond, 120, func() {
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
