package alerts

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// processGone kills the only process.
func processGone(l *lab) {
	l.UseBackend(harness.NewBackend(l, harness.SQLiteEmbedded))
	p := l.serve("a")
	l.settled(1)
	began := time.Now()
	p.Kill()
	l.fires("the only process is killed", began, "NoData")
	healed := time.Now()
	l.serve("a")
	l.clears(healed, "NoData")
}

// sqlDown stops PostgreSQL under load.
func sqlDown(l *lab) {
	pg := testserver.NewPostgres(l)
	b := harness.NewBackend(l, harness.SQLiteRedis)
	b.Name, b.Postgres = harness.PostgresRedis.String(), pg.Database(l)
	l.UseBackend(b)
	l.serve("a")
	l.settled(1)
	l.Load(5, l.Mixed)
	began := time.Now()
	l.Check(pg.Stop())
	l.fires("PostgreSQL is stopped", began, "SQLDown")
	healed := time.Now()
	pg.Start(l)
	l.clears(healed, "SQLDown")
}

// redisDown ends Redis under load, and starts it empty.
func redisDown(l *lab) {
	l.UseBackend(harness.NewBackend(l, harness.PostgresRedis))
	l.serve("a")
	l.settled(1)
	l.Load(5, l.Mixed)
	began := time.Now()
	l.Backend.Server.Kill()
	l.fires("Redis is killed", began, "IndexDown")
	healed := time.Now()
	l.Backend.Server.Start()
	l.clears(healed, "IndexDown")
}

// redisEvicts allows Redis to evict keys, and forbids it again. Then the records of the index disappear, as
// an eviction would remove them.
func redisEvicts(l *lab) {
	l.UseBackend(harness.NewBackend(l, harness.SQLiteRedis))
	l.serve("a")
	l.settled(1)
	l.AcceptEach(10, func(i int) harness.Submission {
		s := l.Numbered("plain")(i)
		s["delay"] = "1h"
		return s
	})
	c := l.Backend.RedisClient(l)
	config := func(name, value string) { l.Check(c.ConfigSet(l.Context(), name, value).Err()) }
	began := time.Now()
	config("maxmemory", "1gb")
	config("maxmemory-policy", "allkeys-random")
	l.fires("maxmemory-policy is changed to allkeys-random", began, "RedisUnsafe")
	healed := time.Now()
	config("maxmemory-policy", "noeviction")
	l.clears(healed, "RedisUnsafe")
	began = time.Now()
	deleted := int64(0)
	l.Check(l.Backend.EachKey(l.Context(), func(c *redis.Client, key, name string) (err error) {
		if name == "records" {
			deleted, err = c.Del(l.Context(), key).Result()
		}
		return err
	}))
	if deleted != 1 {
		l.Fatalf("%d keys with records were deleted", deleted)
	}
	l.fires("a key of the index is deleted", began, "IndexPartsGone")
}

// redisLoses empties Redis four times, and then sets it back to an older state.
func redisLoses(l *lab) {
	l.UseBackend(harness.NewBackend(l, harness.SQLiteRedis))
	p := l.serve("a")
	l.settled(1)
	l.Load(5, l.Mixed)
	var began time.Time
	for range 4 {
		before := p.Count("dispatcher_rebuilds_total")
		began = time.Now()
		l.Flush()
		l.AtLeast(fireTime, "rebuilds", before+1, func() int { return p.Count("dispatcher_rebuilds_total") })
	}
	l.fires("FLUSHALL, for the fourth time", began, "RebuildLoop")
	l.Check(l.Backend.RedisClient(l).Save(l.Context()).Err())
	arrived := l.Receiver.Count()
	l.AtLeast(fireTime, "arrivals after the copy", arrived+20, l.Receiver.Count)
	began = time.Now()
	l.Backend.Server.Kill()
	l.Backend.Server.Start()
	l.fires("Redis restarts with an older copy", began, "IndexRolledBack")
}

// clockJumps sets the clock of Redis ahead.
func clockJumps(l *lab) {
	dir := l.TempDir()
	clock, ahead := filepath.Join(dir, "clock.so"), filepath.Join(dir, "ahead")
	program := filepath.Join(dir, "redis")
	build := exec.CommandContext(l.Context(), "gcc", "-shared", "-fPIC", "-o", clock, "testdata/clock.c")
	if out, err := build.CombinedOutput(); err != nil {
		l.Fatalf("gcc: %s: %s", err, out)
	}
	l.Check(os.WriteFile(program, fmt.Appendf(nil,
		"#!/bin/sh\nCLOCK_AHEAD=%s LD_PRELOAD=%s exec redis-server \"$@\"\n", ahead, clock), 0o755))
	b := harness.NewBackend(l, harness.SQLiteEmbedded)
	b.Server = testserver.NewRedisOf(l, program)
	b.Name, b.Redis = harness.SQLiteRedis.String(), b.Server.URL
	l.UseBackend(b)
	l.serve("a")
	l.settled(1)
	began := time.Now()
	l.Check(os.WriteFile(ahead, make([]byte, 10), 0o644))
	l.fires("the clock of Redis jumps 10 s ahead", began, "ClockJump")
}

// crashes attempts a callback that kills its process, which a supervisor restarts each time. The lease of the
// dead process delays the next attempt, so Prometheus sees each start.
func crashes(l *lab) {
	l.UseBackend(harness.NewBackend(l, harness.SQLiteRedis))
	l.Times = harness.QuickTimes
	const failpoint = "before_send@/poison/"
	p := l.scraped("a", l.ServeUntil(failpoint))
	l.settled(1)
	s := l.Numbered("poison")(0)
	id := l.SubmitAndNote(s)
	var third time.Time
	restarts := 0
	l.Eventually(4*time.Minute, "the callback is dead", func() error {
		if p.Ended() {
			p = l.scraped("a", l.ServeUntil(failpoint))
			restarts++
			if restarts == 3 {
				third = time.Now()
			}
		}
		got, err := p.Callback(l.Context(), id)
		if err == nil && got.State != client.Dead {
			err = fmt.Errorf("it is %s after %d restarts", got.State, restarts)
		}
		return err
	})
	dead := time.Now()
	l.fires("the process is restarted for the third time", third, "CrashLoop")
	// Until now each process counted a crashed attempt and died before it was scraped.
	l.fires("a callback has killed five processes", dead, "Poison", "AttemptsCrash")
}

// events lets callbacks die, a poll end without an answer, a schedule fail, and a row be damaged.
func events(l *lab) {
	l.UseBackend(harness.NewBackend(l, harness.SQLiteEmbedded))
	p := l.serve("a")
	l.settled(1)

	l.Receiver.AnswerKind("refused", harness.Reply{Status: 500})
	began := time.Now()
	l.AcceptMany(30, func(i int) harness.Submission {
		s := l.Numbered("refused")(i)
		s["policy"] = harness.Tiers("2s")
		return s
	})
	l.fires("30 callbacks are answered 500 until they are dead", began, "DeadSpike")

	began = time.Now()
	l.SubmitAndNote(harness.Submission{
		"ref": "poll", "request": harness.Submission{"url": l.Receiver.URL + "/plain/poll", "method": "GET"},
		"policy": harness.Submission{"tiers": []string{"1s"}, "deadline": "3s"}, "until": harness.Finals(),
	})
	l.fires("a poll gets no final answer by its deadline", began, "Unresolved")

	endpoint := p.Create("/v1/endpoints", harness.Submission{"url": l.Receiver.URL + "/plain/schedule"})
	p.Create("/v1/schedules", harness.Submission{"name": "every-two-seconds", "cron": "@every 2s",
		"callback": harness.Submission{"endpoint": endpoint, "payload": harness.Payload("schedule")}})
	_, err := p.Call(l.Context(), http.MethodDelete, "/v1/endpoints/"+endpoint, nil, nil)
	l.Check(err)
	l.fires("the endpoint of a schedule is deleted", time.Now(), "ScheduleFailed")

	const delay = 5 * time.Second
	s := l.Numbered("plain")(0)
	s["delay"], s["policy"] = delay.String(), harness.Tiers("2s")
	due := time.Now().Add(delay)
	id := strings.TrimPrefix(l.SubmitAndNote(s), "cb_")
	// The process reads a row that has changed since its accept.
	l.Execute(`UPDATE callbacks SET updated_at = updated_at + 1 WHERE id = '` + id + `'`)
	l.Execute(`UPDATE requests SET policy = '{"tiers": [1' WHERE id = '` + id + `'`)
	l.fires("a callback is due whose row is damaged", due, "RowCorrupt")
}

// keyMissing adds a master key to one of two processes, which then encrypts with it.
func keyMissing(l *lab) {
	const added = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU="
	l.UseBackend(harness.NewBackend(l, harness.PostgresRedis))
	old := l.serve("old")
	both := l.serve("new", "--master-key", added+","+harness.MasterKey)
	l.settled(2)
	began := time.Now()
	both.Create("/v1/endpoints", harness.Submission{"url": l.Receiver.URL + "/plain/endpoint"})
	l.fires("SQL names a master key that a process lacks", began, "KeyRing")
	healed := time.Now()
	old.Exit(time.Minute)
	l.serve("old", "--master-key", added+","+harness.MasterKey)
	l.clears(healed, "KeyRing")
}

// healthyTime is longer than two minutes, the "for" of most critical alerts.
const healthyTime = 3 * time.Minute

// healthy runs two processes under load, one of which reads an outbox table. No alert fires.
func healthy(l *lab) {
	l.UseBackend(harness.NewBackend(l, harness.PostgresRedis))
	relay := `[{"name": "pay", "dsn": "` + l.outbox() + `"}]`
	l.serve("a", "--horizon", "1h", "--relay", relay)
	l.serve("b", "--horizon", "1h", "--relay", relay)
	l.settled(2)
	began := time.Now()
	load := l.Load(50, l.Mixed)
	l.Eventually(healthyTime+10*time.Second, "the load has lasted", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.fired) > 0 {
			l.Fatalf("an alert fires on a healthy installation: %v", l.summary)
		}
		if left := time.Until(began.Add(healthyTime)); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
	load.Finish()
	l.Remark("no alert fired in %s under load", time.Since(began))
	l.metricsExist()
}

// outbox creates an outbox table and returns the URL of its database.
func (l *lab) outbox() string {
	l.Helper()
	address := testserver.SharedPostgres(l).Database(l)
	ddl := harness.Command(l, time.Minute, nil, "relay", "ddl", "--dialect", "postgres")
	if ddl.Code != 0 {
		l.Fatalf("relay ddl ended with %d: %s", ddl.Code, ddl.Stderr)
	}
	_, err := testserver.DB(l, address).ExecContext(l.Context(), ddl.Stdout)
	l.Check(err)
	return address
}

// selected matches a metric in an expression, with its matchers.
var selected = regexp.MustCompile(`\b((dispatcher|go|process)_\w+|up\b)(\{[^}]*\})?`)

// metricsExist checks that each selector of each alert finds a series of some lab: an alert about a series
// that does not exist never fires.
func (l *lab) metricsExist() {
	l.Helper()
	checked := 0
	for name, expr := range l.prometheus.exprs {
		for _, selector := range selected.FindAllString(expr, -1) {
			if strings.HasPrefix(selector, "dispatcher_backup_") {
				continue // the backup command writes it
			}
			found, err := l.prometheus.series("count(last_over_time(" + selector + "[10m]))")
			l.Check(err)
			if len(found) == 0 {
				l.Errorf("%s: no series matches %s", name, selector)
			}
			checked++
		}
	}
	if checked < 30 {
		l.Errorf("found %d selectors", checked)
	}
}
