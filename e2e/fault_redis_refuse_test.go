package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// redisRefusals are a Redis that says no: to scripts that it does not know, to writes, to listeners.
func redisRefusals() []fault {
	return []fault{
		{id: "F29", title: "scripts flushed all the time", short: oneOfRedis, full: withRedis, run: scriptsFlushed},
		{id: "F30", title: "redis made a replica", short: otherRedis, full: withRedis, run: func(l *lab) { redisReadOnly(l, nowhere(l)) }},
		{id: "F30", title: "redis made a replica of an empty one", full: withRedis, run: func(l *lab) { redisReadOnly(l, testserver.StartRedis(l)) }},
		{id: "F30", title: "redis without enough replicas", short: oneOfRedis, full: withRedis, run: redisLonely},
		{id: "F30", title: "redis loading its log", short: otherRedis, full: withRedis, run: redisLoading},
		{id: "F31", title: "subscriptions killed", short: oneOfRedis, full: withRedis, run: subscriptionsKilled},
		{id: "F31", title: "channel forbidden", short: otherRedis, full: withRedis, run: channelForbidden},
	}
}

// scriptsFlushed has the server forget the scripts five times a second: no call may fail for it.
func scriptsFlushed(l *lab) {
	l.serve()
	c := l.on.redisClient(l)
	flushes := 0
	errors := func(p *process) (n float64) {
		for _, name := range []string{"dispatcher_index_errors_total", "dispatcher_index_failures_total"} {
			if some, err := p.metric(name); err == nil { // what was never counted is not there
				n += some
			}
		}
		return n
	}
	before := 0.0
	a := l.suffer(outage{rate: long(l, 100, 50), before: 100, after: 100, strike: func(p *process) {
		before = errors(p) // not at the start: an index that is made meets a few calls that find it closed
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for end := l.count() + long(l, 1500, 400); l.count() < end; <-ticker.C {
			do(l, c, "script", "flush")
			do(l, c, "function", "flush")
			flushes++
		}
	}})
	if n := errors(a.p) - before; n != 0 {
		l.Errorf("%.0f calls to the index failed", n)
	}
	l.remark("scripts forgotten %d times, no call failed", flushes)
	l.verdict(exact())
}

// nowhere is the address of a server that does not exist.
func nowhere(l *lab) string {
	return "redis://127.0.0.1:" + freePorts(l, 1)[0]
}

// redisReadOnly makes the server a replica of another and back again: as long as it is one it refuses writes, and if the
// other exists it has lost everything afterwards.
func redisReadOnly(l *lab, master string) {
	l.serve()
	host, port, _ := strings.Cut(strings.TrimPrefix(master, "redis://"), ":")
	refuses(l, func(c *redis.Client) {
		do(l, c, "replicaof", host, port)
	}, func(c *redis.Client) {
		do(l, c, "replicaof", "no", "one")
	}, "READONLY")
}

// redisLonely wants one replica more than there is.
func redisLonely(l *lab) {
	l.serve()
	refuses(l, func(c *redis.Client) {
		do(l, c, "config", "set", "min-replicas-to-write", 1)
	}, func(c *redis.Client) {
		do(l, c, "config", "set", "min-replicas-to-write", 0)
	}, "NOREPLICAS")
}

// refuses is a time in which writes are answered with an error.
func refuses(l *lab, begin, end func(*redis.Client), says string) {
	l.Helper()
	c := l.on.redisClient(l)
	rate := long(l, 100, 50)
	before := connections(l, c)
	a := l.suffer(outage{rate: rate, before: rate * 3, after: rate * 3, strike: func(*process) {
		begin(c)
		if err := c.Set(l.Context(), "test", "1", 0).Err(); !redis.HasErrorPrefix(err, says) {
			l.Fatalf("a write gave %v, want %s", err, says)
		}
		l.awaitAccepted(l.count() + rate*long(l, 20, 5))
		end(c)
	}})
	arrived := l.firstArrivals(a.ended)
	asked := connections(l, c) - before
	l.remark("%s: %d new connections; back to the first send %s, to the end of the backlog of %d %s", says, asked,
		arrived.first.Round(time.Millisecond), arrived.backlog, arrived.drained.Round(time.Millisecond))
	// After such an answer the client closes the connection: perhaps it leads to a server that is no master any more.
	if most := 50 + 25*int(a.ended.Sub(a.began).Seconds()); asked > most {
		l.Errorf("Redis was asked for %d connections, more than %d", asked, most)
	}
	l.verdict(exact())
}

// redisLoading restarts a server that takes long to read its log: it listens, and answers LOADING.
func redisLoading(l *lab) {
	settings := append([]string{"--loading-process-events-interval-bytes", "1024"}, appended...)
	l.restartedWith(settings...)
	l.serve()
	const filler, pause = 10_000, 300 // so many keys, so many microseconds each; after each 1024 it answers
	var loading time.Duration
	rate := long(l, 100, 50)
	a := l.suffer(outage{rate: rate, before: rate * 3, after: rate * 3, strike: func(*process) {
		c := l.on.redisClient(l)
		fill := c.Pipeline()
		for i := range filler {
			fill.Set(l.Context(), fmt.Sprint("filler:", i), "x", 0)
		}
		if _, err := fill.Exec(l.Context()); err != nil {
			l.Fatal(err)
		}
		l.on.server.Kill()
		began := time.Now()
		l.on.server.Begin(append([]string{"--key-load-delay", fmt.Sprint(pause)}, settings...)...)
		// The client would ask again by itself until the answer is another.
		options := *c.Options()
		options.MaxRetries = -1
		once := redis.NewClient(&options)
		defer once.Close()
		seen := false
		eventually(l, time.Minute, "the server has loaded its log", func() error {
			err := once.Ping(l.Context()).Err()
			seen = seen || redis.HasErrorPrefix(err, "LOADING")
			return err
		})
		if !seen {
			l.Error("the server never said LOADING")
		}
		loading = time.Since(began)
	}})
	arrived := l.firstArrivals(a.ended)
	l.remark("loading for %s; back to the first send %s, to the end of the backlog of %d %s", loading.Round(10*time.Millisecond),
		arrived.first.Round(time.Millisecond), arrived.backlog, arrived.drained.Round(time.Millisecond))
	l.verdict(exact())
}

// hintless is the latest that an attempt may begin at p99 when every wake-up is lost: the re-poll comes after at most a
// second, and this machine has other things to do.
const hintless = 1500 * time.Millisecond

// acceptAndSendApart starts one dispatcher that accepts and one that sends, so that only Redis can tell the one of what the
// other accepted.
func (l *lab) acceptAndSendApart() {
	l.Helper()
	sender := serve(l.T, launch{on: l.on, args: append([]string{"--roles", "worker"}, l.args...)})
	l.Cleanup(func() {
		if n, err := sender.metric("dispatcher_attempts_total"); err == nil && n == 0 {
			l.Error("the sender sent nothing")
		}
	})
	l.serve("--roles", "api,ui")
}

// unheard is a load that is so slow that each callback has to wake the sender by itself, and its judgement.
func (l *lab) unheard(strike func()) {
	l.Helper()
	a := l.suffer(outage{rate: 7, shape: func(i int) submission {
		kind := []string{"plain", "retry"}[i%2]
		return l.callback(kind, fmt.Sprintf("%s-%d", kind, i))
	}, before: 1, after: 1, strike: func(*process) { strike() }})
	arrived := l.firstArrivals(a.began)
	v := l.verdict(exact())
	l.remark("accept to first arrival p50 %s, p99 %s, most %s; due to send p50 %s, p99 %s, most %s",
		arrived.waits.P50.Round(time.Millisecond), arrived.waits.P99.Round(time.Millisecond), arrived.waits.Most.Round(time.Millisecond),
		v.Lateness.P50.Round(time.Millisecond), v.Lateness.P99.Round(time.Millisecond), v.Lateness.Most.Round(time.Millisecond))
	if v.Lateness.P99 > hintless || arrived.waits.P99 > hintless {
		l.Errorf("sends were %s late at p99, first ones came after %s: at most %s is allowed", v.Lateness.P99, arrived.waits.P99, hintless)
	}
}

// subscriptionsKilled ends every subscription ten times a second.
func subscriptionsKilled(l *lab) {
	l.acceptAndSendApart()
	c := l.on.redisClient(l)
	killed := 0
	l.unheard(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for end := l.count() + long(l, 400, 120); l.count() < end; <-ticker.C {
			n, err := c.ClientKillByFilter(l.Context(), "type", "pubsub").Result()
			if err != nil {
				l.Fatal(err)
			}
			killed += int(n)
		}
	})
	if killed == 0 {
		l.Error("there was no subscription to kill")
	}
	l.remark("%d subscriptions killed", killed)
}

// channelForbidden gives the program a user that may use every key and no channel, as Redis 7 makes users by default.
func channelForbidden(l *lab) {
	do(l, l.on.redisClient(l), "acl", "setuser", "deaf", "on", ">secret", "~*", "+@all", "resetchannels")
	l.on.redisBehind = l.on.redis
	l.on.redis = strings.Replace(l.on.redis, "redis://", "redis://deaf:secret@", 1)
	c := redisClientOf(l, l.on.redis)
	if err := c.Publish(l.Context(), l.on.prefix+":hints", "0").Err(); !redis.HasErrorPrefix(err, "NOPERM") {
		l.Fatalf("a message on the channel gave %v, want NOPERM", err)
	}
	l.acceptAndSendApart()
	l.unheard(func() { l.awaitAccepted(l.count() + long(l, 400, 120)) })
}
