package faults

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// otherServerFaults are the loss of the index on the servers beside redis-server that this system has.
func otherServerFaults() []fault {
	var all []fault
	for _, program := range testserver.OtherServers() {
		name := strings.TrimSuffix(program, "-server")
		all = append(all,
			fault{id: "F19", title: name + " killed and restarted empty", short: []harness.Combination{harness.PostgresRedis}, full: []harness.Combination{harness.SQLiteRedis, harness.PostgresRedis},
				run: func(tr *trial) { otherServerLost(tr, program, (*testserver.Redis).Kill) }},
			fault{id: "F21", title: name + " emptied under load", full: []harness.Combination{harness.SQLiteRedis, harness.PostgresRedis},
				run: func(tr *trial) { otherServerLost(tr, program, nil) }},
		)
	}
	return all
}

// otherServerLost empties the index under load: by FLUSHALL, or by killing its server, which then starts empty.
func otherServerLost(tr *trial, program string, kill func(*testserver.Redis)) {
	server := testserver.NewRedisOf(tr.T, program)
	tr.Backend.Redis = server.URL
	for range tr.dispatchers(2, 2) {
		tr.Serve()
	}
	ld := tr.Load(rolledRate, tr.shared)
	times := long(tr, 3, 1)
	for range times {
		tr.loaded(3 * time.Second)
		tr.MarkFault()
		if kill != nil {
			kill(server)
			server.Start()
		} else if err := tr.Backend.EachRedis(tr.Context(), func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
			tr.Fatal(err)
		}
		tr.MarkFault()
	}
	tr.loaded(3 * time.Second)
	tr.finishUnhindered(ld)
	tr.Settle(2 * time.Minute)
	tr.Verdict(judge.Bounds{Heal: time.Minute})
}
