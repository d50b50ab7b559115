package e2e

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// otherServerFaults are the loss of the index on the servers beside redis-server that this system has.
func otherServerFaults() []fault {
	var all []fault
	for _, program := range testserver.OtherServers() {
		name := strings.TrimSuffix(program, "-server")
		all = append(all,
			fault{id: "F19", title: name + " killed and restarted empty", short: []combination{full}, full: []combination{sqliteRedis, full},
				run: func(l *lab) { otherServerLost(l, program, (*testserver.Redis).Kill) }},
			fault{id: "F21", title: name + " emptied under load", full: []combination{sqliteRedis, full},
				run: func(l *lab) { otherServerLost(l, program, nil) }},
		)
	}
	return all
}

// otherServerLost empties the index under load: by FLUSHALL, or by killing its server, which then starts empty.
func otherServerLost(l *lab, program string, kill func(*testserver.Redis)) {
	server := testserver.NewRedisOf(l.T, program)
	l.on.redis = server.URL
	for range l.dispatchers(2, 2) {
		l.serve()
	}
	ld := l.load(rolledRate, l.shared)
	times := long(l, 3, 1)
	for range times {
		l.loaded(3 * time.Second)
		l.struck()
		if kill != nil {
			kill(server)
			server.Start()
		} else if err := l.on.eachRedis(l.Context(), func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
			l.Fatal(err)
		}
		l.struck()
	}
	l.loaded(3 * time.Second)
	l.finishUnhindered(ld)
	l.settle(2 * time.Minute)
	l.verdict(judge.Bounds{Heal: time.Minute})
}
