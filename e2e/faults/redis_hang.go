package faults

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// redisHangs are a Redis that is there and does not answer.
func redisHangs() []fault {
	return []fault{
		{id: "F26", title: "redis busy with a script", on: onlySQLiteRedis,
			run: func(tr *trial) { redisSlow(tr, busy) }},
		{id: "F26", title: "redis stopped", on: onlyPostgresRedis, run: func(tr *trial) { redisSlow(tr, stopped) }},
		{id: "F26", title: "every reply of redis late", on: onlyPostgresRedis, run: redisFar},
	}
}

// redisSlow has Redis not answer for a while, and counts the connections that it is asked for meanwhile: as
// few as a pool has, each opened again when a call on it has timed out.
func redisSlow(tr *trial, slow func(*trial, *redis.Client)) {
	tr.Serve()
	admin := tr.Backend.RedisClient(tr)
	var before, after int
	a := tr.suffer(outage{strike: func(*harness.Process) {
		before = connections(tr, admin)
		slow(tr, admin)
		after = connections(tr, admin)
	}})
	lasted := a.ended.Sub(a.began)
	// The client's pool has ten for each core. A read times out after 3 s, a call after 5 s; each costs one
	// connection.
	pool := 10 * runtime.GOMAXPROCS(0)
	if most := pool * (2 + int(lasted/(3*time.Second))); after-before > most {
		tr.Errorf("Redis was asked for %d connections in %s, at most %d are to be expected of a pool of %d",
			after-before, lasted, most, pool)
	}
	tr.Remark("%d new connections; %s", after-before, tr.cameBack(&a))
	tr.Verdict(exact())
}

// connections is how many the server has ever been asked for.
func connections(tr *trial, c *redis.Client) int {
	tr.Helper()
	n, err := strconv.Atoi(info(tr, c, "stats", "total_connections_received"))
	if err != nil {
		tr.Fatal(err)
	}
	return n
}

// busy has a script run for ever: every other command is told BUSY, at once.
func busy(tr *trial, c *redis.Client) {
	do(tr, c, "config", "set", "busy-reply-threshold", 100)
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ended <- c.WithTimeout(time.Minute).Eval(ctx, "while true do end", nil).Err()
	}()
	harness.Eventually(tr, 10*time.Second, "the script keeps others out", func() error {
		if err := c.Ping(tr.Context()).Err(); !redis.HasErrorPrefix(err, "BUSY") {
			return fmt.Errorf("ping gave %v", err)
		}
		return nil
	})
	<-time.After(5 * time.Second)
	do(tr, c, "script", "kill")
	if err := <-ended; err == nil {
		tr.Error("the script ended by itself")
	}
}

// stopped stops the process: its connections stand, and the system takes what is sent to it.
func stopped(tr *trial, _ *redis.Client) {
	tr.Backend.Server.Pause()
	defer tr.Backend.Server.Continue()
	<-time.After(10 * time.Second)
}

// redisFar puts 50 ms before each piece of data, either way, and bounds the bandwidth: a Redis that is far
// away.
func redisFar(tr *trial) {
	way := tr.behindProxy()
	tr.Serve()
	tr.suffer(outage{strike: func(*harness.Process) {
		way.Slow(50*time.Millisecond, 1<<20)
		tr.lasting(8 * time.Second)
		way.Slow(0, 0)
	}})
	tr.Verdict(exact())
}

// info reads one value of INFO.
func info(tr *trial, c *redis.Client, section, name string) string {
	tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	values, err := c.InfoMap(ctx, section).Result()
	if err != nil {
		tr.Fatalf("INFO %s: %v", section, err)
	}
	for _, found := range values {
		if value, ok := found[name]; ok {
			return value
		}
	}
	tr.Fatalf("INFO %s has no %s: %v", section, name, values)
	return ""
}
