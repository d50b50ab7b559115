package e2e

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisHangs are a Redis that is there and does not answer.
func redisHangs() []fault {
	return []fault{
		{id: "F26", title: "redis clients paused", short: oneOfRedis, full: withRedis, run: func(l *lab) { redisSlow(l, paused) }},
		{id: "F26", title: "redis asleep", full: withRedis, run: func(l *lab) { redisSlow(l, asleep) }},
		{id: "F26", title: "redis busy with a script", short: otherRedis, full: withRedis, run: func(l *lab) { redisSlow(l, busy) }},
		{id: "F26", title: "redis stopped", short: oneOfRedis, full: withRedis, run: func(l *lab) { redisSlow(l, stopped) }},
		{id: "F26", title: "every reply of redis late", full: withRedis, run: redisFar},
	}
}

// redisSlow has Redis not answer for a while, and counts the connections that it is asked for meanwhile: as few as a pool
// has, each anew when a call on it has timed out.
func redisSlow(l *lab, slow func(*lab, *redis.Client)) {
	// Debug sleep must be allowed at the start.
	l.restartedWith("--enable-debug-command", "yes")
	l.serve()
	rate := long(l, 100, 50)
	admin := l.on.redisClient(l)
	var before, after int
	a := l.suffer(outage{rate: rate, before: rate * 3, after: rate * 3, strike: func(*process) {
		before = connections(l, admin)
		slow(l, admin)
		after = connections(l, admin)
	}})
	lasted := a.ended.Sub(a.began)
	// The client's pool has ten for each core. A read times out after 3 s, a call after 5 s; each costs one connection.
	pool := 10 * runtime.GOMAXPROCS(0)
	if most := pool * (2 + int(lasted/(3*time.Second))); after-before > most {
		l.Errorf("Redis was asked for %d connections in %s, at most %d are to be expected of a pool of %d", after-before, lasted, most, pool)
	}
	arrived := l.firstArrivals(a.ended)
	l.remark("%d new connections; back to the first send %s, to the end of the backlog of %d %s", after-before,
		arrived.first.Round(time.Millisecond), arrived.backlog, arrived.drained.Round(time.Millisecond))
	l.verdict(exact())
}

// connections is how many the server has ever been asked for.
func connections(l *lab, c *redis.Client) int {
	l.Helper()
	n, err := strconv.Atoi(info(l, c, "stats", "total_connections_received"))
	if err != nil {
		l.Fatal(err)
	}
	return n
}

// paused has the server take commands and answer none.
func paused(l *lab, c *redis.Client) {
	do(l, c, "client", "pause", 5000, "all")
	do(l, c, "ping") // answered when it is over
}

// asleep has the server do nothing at all, and know it afterwards.
func asleep(l *lab, c *redis.Client) {
	ctx, cancel := context.WithTimeout(l.Context(), 30*time.Second)
	defer cancel()
	if err := c.WithTimeout(30*time.Second).Do(ctx, "debug", "sleep", 5).Err(); err != nil {
		l.Fatal(err)
	}
}

// busy has a script run for ever: everybody else is told BUSY, at once.
func busy(l *lab, c *redis.Client) {
	do(l, c, "config", "set", "busy-reply-threshold", 100)
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ended <- c.WithTimeout(time.Minute).Eval(ctx, "while true do end", nil).Err()
	}()
	eventually(l, 10*time.Second, "the script keeps everybody out", func() error {
		if err := c.Ping(l.Context()).Err(); !redis.HasErrorPrefix(err, "BUSY") {
			return fmt.Errorf("ping gave %v", err)
		}
		return nil
	})
	<-time.After(long(l, 10*time.Second, 5*time.Second))
	do(l, c, "script", "kill")
	if err := <-ended; err == nil {
		l.Error("the script ended by itself")
	}
}

// stopped stops the process: its connections stand, and the system takes what is sent to it.
func stopped(l *lab, _ *redis.Client) {
	l.on.server.Pause()
	defer l.on.server.Continue()
	<-time.After(long(l, 20*time.Second, 10*time.Second))
}

// redisFar puts 50 ms before each piece of data, either way, and bounds the bandwidth: a Redis that is far away.
func redisFar(l *lab) {
	way := l.behindProxy()
	l.serve()
	l.suffer(outage{rate: 50, before: 100, after: 200, strike: func(*process) {
		way.slow(50*time.Millisecond, 1<<20)
		l.awaitAccepted(l.count() + 1000)
		way.slow(0, 0)
	}})
	l.verdict(exact())
}

// info reads one value of INFO.
func info(l *lab, c *redis.Client, section, name string) string {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	values, err := c.InfoMap(ctx, section).Result()
	if err != nil {
		l.Fatalf("INFO %s: %v", section, err)
	}
	for _, found := range values {
		if value, ok := found[name]; ok {
			return value
		}
	}
	l.Fatalf("INFO %s has no %s: %v", section, name, values)
	return ""
}
