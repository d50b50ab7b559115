package faults

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// redisRefusals are a Redis that says no: to scripts that it does not know, to writes, to listeners.
func redisRefusals() []fault {
	return []fault{
		{id: "F29", title: "scripts flushed all the time", on: onlyPostgresRedis, run: scriptsFlushed},
		{id: "F30", title: "redis made a replica of an empty one", on: onlySQLiteRedis, run: redisReadOnly},
		{id: "F30", title: "redis without enough replicas", on: onlyPostgresRedis, run: redisLonely},
		{id: "F30", title: "redis loading its log", on: onlySQLiteRedis, run: redisLoading},
		{id: "F31", title: "subscriptions killed", on: onlyPostgresRedis, run: subscriptionsKilled},
	}
}

// scriptsFlushed has the server forget the scripts five times a second: no call may fail for it.
func scriptsFlushed(tr *trial) {
	tr.Serve()
	c := tr.Backend.RedisClient(tr)
	flushes := 0
	errors := func(p *harness.Process) (n float64) {
		for _, name := range []string{"dispatcher_index_errors_total", "dispatcher_index_failures_total"} {
			if some, err := p.Metric(name); err == nil { // what was never counted is not there
				n += some
			}
		}
		return n
	}
	before := 0.0
	a := tr.suffer(outage{strike: func(p *harness.Process) {
		before = errors(p) // not at the start: an index that is made meets a few calls that find it closed
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for end := tr.Count() + 8*outageRate; tr.Count() < end; <-ticker.C {
			do(tr, c, "script", "flush")
			do(tr, c, "function", "flush")
			flushes++
		}
	}})
	if n := errors(a.p) - before; n != 0 {
		tr.Errorf("%.0f calls to the index failed", n)
	}
	tr.Remark("scripts forgotten %d times, no call failed", flushes)
	tr.Verdict(exact())
}

// redisReadOnly makes the server a replica of an empty one and back again: as long as it is one it refuses
// writes, and it has lost everything afterwards.
func redisReadOnly(tr *trial) {
	tr.Serve()
	master := testserver.StartRedis(tr)
	host, port, _ := strings.Cut(strings.TrimPrefix(master, "redis://"), ":")
	refuses(tr, func(c *redis.Client) {
		do(tr, c, "replicaof", host, port)
	}, func(c *redis.Client) {
		do(tr, c, "replicaof", "no", "one")
	}, "READONLY")
}

// redisLonely wants one replica more than there is.
func redisLonely(tr *trial) {
	tr.Serve()
	refuses(tr, func(c *redis.Client) {
		do(tr, c, "config", "set", "min-replicas-to-write", 1)
	}, func(c *redis.Client) {
		do(tr, c, "config", "set", "min-replicas-to-write", 0)
	}, "NOREPLICAS")
}

// refuses is a time in which writes are answered with an error.
func refuses(tr *trial, begin, end func(*redis.Client), says string) {
	tr.Helper()
	c := tr.Backend.RedisClient(tr)
	before := connections(tr, c)
	a := tr.suffer(outage{strike: func(*harness.Process) {
		begin(c)
		if err := c.Set(tr.Context(), "test", "1", 0).Err(); !redis.HasErrorPrefix(err, says) {
			tr.Fatalf("a write gave %v, want %s", err, says)
		}
		tr.lasting(5 * time.Second)
		end(c)
	}})
	asked := connections(tr, c) - before
	tr.Remark("%s: %d new connections; %s", says, asked, tr.cameBack(&a))
	// After such an answer the client closes the connection: perhaps it leads to a server that is no master
	// any more.
	if most := 50 + 25*int(a.ended.Sub(a.began).Seconds()); asked > most {
		tr.Errorf("Redis was asked for %d connections, more than %d", asked, most)
	}
	tr.Verdict(exact())
}

// redisLoading restarts a server that takes long to read its log: it listens, and answers LOADING.
func redisLoading(tr *trial) {
	settings := append([]string{"--loading-process-events-interval-bytes", "1024"}, appended...)
	tr.restartedWith(settings...)
	tr.Serve()
	const filler, pause = 10_000, 300 // so many keys, so many microseconds each; after each 1024 it answers
	var loading time.Duration
	a := tr.suffer(outage{strike: func(*harness.Process) {
		c := tr.Backend.RedisClient(tr)
		fill := c.Pipeline()
		for i := range filler {
			fill.Set(tr.Context(), fmt.Sprint("filler:", i), "x", 0)
		}
		if _, err := fill.Exec(tr.Context()); err != nil {
			tr.Fatal(err)
		}
		tr.Backend.Server.Kill()
		began := time.Now()
		tr.Backend.Server.Begin(append([]string{"--key-load-delay", fmt.Sprint(pause)}, settings...)...)
		// The client would ask again by itself until the answer is another.
		options := *c.Options()
		options.MaxRetries = -1
		once := redis.NewClient(&options)
		defer once.Close()
		seen := false
		harness.Eventually(tr, time.Minute, "the server has loaded its log", func() error {
			err := once.Ping(tr.Context()).Err()
			seen = seen || redis.HasErrorPrefix(err, "LOADING")
			return err
		})
		if !seen {
			tr.Error("the server never said LOADING")
		}
		loading = time.Since(began)
	}})
	tr.Remark("loading for %s; %s", loading.Round(10*time.Millisecond), tr.cameBack(&a))
	tr.Verdict(exact())
}

// hintless is the latest that an attempt may begin at p99 when every wake-up is lost: the re-poll comes after
// at most a second, and this machine has other things to do.
const hintless = 1500 * time.Millisecond

// acceptAndSendApart starts one dispatcher that accepts and one that sends, so that only Redis can tell the
// one of what the other accepted.
func (tr *trial) acceptAndSendApart() {
	tr.Helper()
	sender := harness.Serve(tr.T, harness.Launch{On: tr.Backend,
		Args: append([]string{"--roles", "worker"}, tr.Args...)})
	tr.Cleanup(func() {
		if n, err := sender.Metric("dispatcher_attempts_total"); err == nil && n == 0 {
			tr.Error("the sender sent nothing")
		}
	})
	tr.Serve("--roles", "api,ui")
}

// unheard is a load that is so slow that each callback has to wake the sender by itself, and its judgement.
func (tr *trial) unheard(strike func()) {
	tr.Helper()
	a := tr.suffer(outage{rate: 7, shape: func(i int) harness.Submission {
		kind := []string{"plain", "retry"}[i%2]
		return tr.Callback(kind, fmt.Sprintf("%s-%d", kind, i))
	}, before: 1, after: 1, strike: func(*harness.Process) { strike() }})
	arrived := tr.firstArrivals(a.began)
	v := tr.Verdict(exact())
	tr.Remark("accept to first arrival p50 %s, p99 %s, most %s; due to send p50 %s, p99 %s, most %s",
		arrived.waits.P50.Round(time.Millisecond), arrived.waits.P99.Round(time.Millisecond),
		arrived.waits.Most.Round(time.Millisecond),
		v.Lateness.P50.Round(time.Millisecond), v.Lateness.P99.Round(time.Millisecond),
		v.Lateness.Most.Round(time.Millisecond))
	if v.Lateness.P99 > hintless || arrived.waits.P99 > hintless {
		tr.Errorf("sends were %s late at p99, first ones came after %s: at most %s is allowed", v.Lateness.P99,
			arrived.waits.P99, hintless)
	}
}

// subscriptionsKilled ends every subscription ten times a second.
func subscriptionsKilled(tr *trial) {
	tr.acceptAndSendApart()
	c := tr.Backend.RedisClient(tr)
	killed := 0
	tr.unheard(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for end := tr.Count() + 120; tr.Count() < end; <-ticker.C {
			n, err := c.ClientKillByFilter(tr.Context(), "type", "pubsub").Result()
			if err != nil {
				tr.Fatal(err)
			}
			killed += int(n)
		}
	})
	if killed == 0 {
		tr.Error("there was no subscription to kill")
	}
	tr.Remark("%d subscriptions killed", killed)
}
