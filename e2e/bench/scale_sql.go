package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// bytesPerRow is the disk space of a row with its payload and attempts, rounded up.
const bytesPerRow = 4500

// A scaled has the figures of one database. The name of a phase is the prefix of its figures.
type scaled struct {
	system
	figures
	open     int
	seedTime time.Duration
}

// sql measures the dispatcher with many callbacks in SQL and in the index: its start, the cost of the
// callbacks, and the effect of a large backlog on callbacks that are due.
func (s *scale) sql() error {
	began := loadNow(s.tb)
	var all []*scaled
	for _, database := range s.databases {
		_, err := s.within(s.build, database, func(r *run) { all = append(all, s.measureSQL(r)) })
		if err != nil {
			return err
		}
	}
	var measured numbers
	var texts []string
	for _, x := range all {
		texts = append(texts, fmt.Sprintf("%s in %s", x.seedTime.Round(time.Second), x.name))
		if x.name == "postgres" {
			measured = x.inputs()
		}
	}
	intro := fmt.Sprintf("%d callbacks in %d lanes, accepted and attempted through the API (%s); "+
		"%d stay open.",
		s.rows, seedLanes, strings.Join(texts, ", "), all[0].open)
	return s.publish("scale-sql", intro, began, measured, fmt.Sprintf("%d callbacks", s.rows),
		figuresTable(all))
}

// measureSQL seeds one database and measures it: its size, a cold start, and the phases under load.
func (s *scale) measureSQL(r *run) *scaled {
	p := newPlace(r)
	s.checkDisk(r, p.dir)
	x := &scaled{system: r.system, figures: r.figures}
	began := time.Now()
	x.open = s.seed(r, p.args)
	x.seedTime = time.Since(began)
	logf("%s: %d callbacks seeded in %s", r.system.name, s.rows, x.seedTime.Round(time.Second))
	p.weighSQL(r, s.rows)
	x.underLoad(r, p, x.startCold(r, p))
	return x
}

// checkDisk fails early instead of after hours.
func (s *scale) checkDisk(r *run, dir string) {
	var fs syscall.Statfs_t
	r.check("disk", syscall.Statfs(dir, &fs))
	if free, need := int64(fs.Bavail)*fs.Bsize, int64(s.rows)*bytesPerRow; free < need {
		r.Fatalf("%s has %d GB free and %d rows need about %d: set TMPDIR to another disk",
			dir, free>>30, s.rows, need>>30)
	}
}

// startCold starts a dispatcher that must rebuild its index from SQL, and measures it until the index is
// complete.
func (x *scaled) startCold(r *run, p place) *dispatcher {
	empty := 0.0
	if p.redis != nil {
		client := testserver.Client(p.redis.Address(), "")
		r.check("empty Redis", errors.Join(client.FlushAll(r.Context()).Err(), client.Close()))
		empty = r.redisNumber(p.redis, "memory", "used_memory")
	}
	arriving := r.receiver.expect(overdueRows)
	limit := 3*time.Minute + time.Duration(x.open)*time.Millisecond // a thousand a second
	d := r.launch(p.args)
	r.awaitReady(d, limit)
	first := slices.MinFunc(arriving.await(r, limit), time.Time.Compare)
	x.figures["first send"] = first.Sub(d.started).Seconds()
	x.figures["rebuild"] = float64(x.open) / r.awaitRebuild(d, limit).Seconds()
	r.putMemory()
	x.figures["dispatcher MB"] = r.figures[memory+":"+roleDispatcher] / 1e6
	if p.redis != nil {
		x.figures["redis"] = (r.redisNumber(p.redis, "memory", "used_memory") - empty) / float64(x.open)
	}
	return d
}

// awaitRebuild returns the duration of the index rebuild from the dispatcher's log.
func (r *run) awaitRebuild(d *dispatcher, limit time.Duration) (took time.Duration) {
	r.poll("the index is rebuilt", limit, func() error {
		log, err := os.Open(d.logFile)
		if err != nil {
			return err
		}
		defer log.Close()
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var line struct{ Msg, Took string }
			// The last line may be incomplete.
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "index rebuilt" {
				took, err = time.ParseDuration(line.Took)
				return err
			}
		}
		return errors.New("the log has no line \"index rebuilt\"")
	})
	return took
}

// underLoad measures phases while the seeded callbacks are pending.
func (x *scaled) underLoad(r *run, p place, d *dispatcher) {
	s := &session{run: r, dispatcher: d, url: r.receiver.url}
	r.awaitStats(d, "the overdue callbacks are committed", time.Minute, func(st stats) bool {
		s.succeeded, s.scheduled = st.States.Succeeded, st.States.Scheduled
		return s.scheduled == x.open
	})
	s.warmUp()
	phase := func(name string, measure func(*session)) {
		r.figures = figures{}
		measure(s)
		for figure, v := range r.figures {
			x.figures[name+figure] = v
		}
	}
	phase("lateness ", lateness)
	bytes, syncs := p.logged(r)
	phase("drain ", drain)
	if p.conn != nil {
		bytesAfter, syncsAfter := p.logged(r)
		x.figures["log"] = (bytesAfter - bytes) / float64(r.n)
		x.figures["syncs"] = (syncsAfter - syncs) * 1000 / float64(r.n)
	}
	phase("batch ", acceptInBatches)
	phase("single ", acceptSingly)
}

func figuresTable(all []*scaled) *table {
	t := &table{title: "What they take, and how a dispatcher works meanwhile", texts: 1, header: []string{""}}
	for _, x := range all {
		t.header = append(t.header, x.label)
	}
	for _, line := range []struct{ text, format, figure string }{
		{"callbacks a second that fill an empty index", "%.0f", "rebuild"},
		{"from the start of the process to its first send, s", "%.2f", "first send"},
		{"most memory of the dispatcher, MB", "%.0f", "dispatcher MB"},
		{"Redis, bytes for a pending callback", "%.0f", "redis"},
		{"SQL, bytes for a callback", "%.0f", "sql"},
		{"… its row, with indexes", "%.0f", "callbacks"},
		{"… its payload of 512 bytes", "%.0f", "payloads"},
		{"… each attempt", "%.0f", "attempts"},
		{"… an idempotency key", "%.0f", "idempotency"},
		{"lateness of delayed callbacks: p50 ms", "%.2f", "lateness " + p50},
		{"… p99 ms", "%.2f", "lateness " + p99},
		{"delivered/s meanwhile", "%.0f", "drain " + rate},
		{"… CPU s per 1,000", "%.3f", "drain " + cpuTime},
		{"accepted/s in batches of 100 meanwhile", "%.0f", "batch " + rate},
		{"… CPU s per 1,000", "%.3f", "batch " + cpuTime},
		{"accepted/s one a request meanwhile", "%.0f", "single " + rate},
		{"… CPU s per 1,000", "%.3f", "single " + cpuTime},
		{"WAL, bytes for a callback accepted and delivered", "%.0f", "log"},
		{"… syncs for 1,000", "%.1f", "syncs"},
	} {
		cells := []string{line.text}
		for _, x := range all {
			cell := noValue
			if v, measured := x.figures[line.figure]; measured {
				cell = fmt.Sprintf(line.format, v)
			}
			cells = append(cells, cell)
		}
		t.add(cells...)
	}
	return t
}

// inputs are the inputs of docs/reports/scaling.md that this part measures.
func (x *scaled) inputs() numbers {
	f := x.figures
	return numbers{
		"dispatcher_alone": f["single "+cpuTime+":"+roleDispatcher],
		"sql_alone":        f["single "+cpuTime+":"+rolePostgres],
		"redis_bytes":      f["redis"], "row_bytes": f["callbacks"], "payload_bytes": f["payloads"],
		"attempt_bytes": f["attempts"], "key_bytes": f["idempotency"],
		"wal_bytes": f["log"], "wal_syncs": f["syncs"], "rebuild": f["rebuild"],
	}
}

// A seeding fills the stores through the API with callbacks as in production, not with copies. Some end,
// others stay open.
type seeding struct{ rows, pending int }

const (
	seedLanes = 10_000
	// Pending callbacks fall due from seedDueFrom on, which is after the longest run, spread over
	// seedDueSpan.
	seedDueFrom = 2 * 24 * time.Hour
	seedDueSpan = 30 * 24 * time.Hour
	// One callback in failEvery gets a 503, and one in keyEvery has an idempotency key.
	failEvery = 31
	keyEvery  = 10
	// overdueRows fall due while no dispatcher runs. The first arrival shows how long a start takes.
	overdueRows = 1000
	overdueIn   = 10 * time.Second
)

// open reports whether callback i stays open. The open ones are spread evenly.
func (s seeding) open(i int) bool { return (i+1)*s.pending/s.rows > i*s.pending/s.rows }

// attempts is the number of attempts of callback i at the end. An open one that fails waits for its second
// attempt. A failing one that ends is dead after three.
func (s seeding) attempts(i int) int {
	switch fails := i%failEvery == 0; {
	case s.open(i) && !fails:
		return 0
	case s.open(i) || !fails:
		return 1
	}
	return 3
}

func (s seeding) status(i int) int {
	if i%failEvery == 0 {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

func (s seeding) due(i int) time.Time {
	if s.attempts(i) > 0 {
		return time.Time{}
	}
	return time.Now().Add(seedDueFrom + time.Duration(i*7919%int(seedDueSpan.Seconds()))*time.Second)
}

// members appends the members of callback i other than its URL and body.
func (s seeding) members(b []byte, i int) []byte {
	b = fmt.Appendf(b, `,"lane":%q,"ref":"order-%d","labels":{"channel":"alipay","shop":"%d"}`,
		laneKey(i*104729%seedLanes), i, i%1000)
	b = append(b, `,"topic":"payment.succeeded"`...)
	if i%keyEvery == 0 {
		b = fmt.Appendf(b, `,"idempotency_key":"key-%d"`, i)
	}
	switch {
	case i%failEvery > 0:
		return b
	case s.open(i):
		return append(b, `,"policy":{"tiers":["30d"]}`...)
	}
	return append(b, `,"policy":{"tiers":["0s","0s"]}`...)
}

// laneKey is the lane of a merchant, as callers name it.
func laneKey(i int) string { return fmt.Sprintf("merchant-%06d", i) }

// seed accepts all callbacks on a dispatcher, waits until those that do not stay open have ended, and kills
// the dispatcher. It returns how many stay open.
func (s seeding) seed(r *run, args []string) (open int) {
	attempted := 0
	for i := range s.rows {
		if s.open(i) {
			open++
		}
		if s.attempts(i) > 0 {
			attempted++
		}
	}
	d := r.launch(args)
	defer d.kill()
	r.awaitReady(d, startTime)
	x := &session{run: r, dispatcher: d, url: r.receiver.url, members: s.members}
	arriving := r.receiver.expect(s.rows)
	arriving.status = s.status
	x.acceptBatches(s.rows, s.due)
	limit := 5*time.Minute + time.Duration(s.rows)*time.Millisecond // a thousand a second
	r.awaitStats(d, "the callbacks have ended", limit, func(st stats) bool {
		return st.States.Succeeded+st.States.Dead == s.rows-open && st.States.Scheduled == open &&
			int(arriving.left.Load()) == s.rows-attempted && st.Index != nil && st.Index.Delayed == open
	})
	x.members = nil
	r.receiver.expect(overdueRows)
	due := time.Now().Add(overdueIn)
	x.acceptBatches(overdueRows, dueAll(due))
	if time.Now().After(due) {
		r.Fatalf("accepting %d callbacks took %s", overdueRows, overdueIn)
	}
	d.kill()
	time.Sleep(time.Until(due)) // until the overdue callbacks fall due
	return open
}

// Bytes in SQL, in Redis and in PostgreSQL's log.

// A place has the stores of a dispatcher, so that the benchmark can query them.
type place struct {
	args  []string
	conn  *pgx.Conn         // nil: SQLite
	redis *testserver.Redis // nil: the embedded index
	dir   string            // on the disk that may fill up
}

func newPlace(r *run) place {
	if r.system.name == "sqlite" {
		dir := r.TempDir()
		return place{dir: dir, args: []string{"--data-dir", dir}}
	}
	url, redis := testserver.NewPostgres(r).Database(r), testserver.NewRedis(r)
	conn, err := pgx.Connect(r.Context(), url)
	r.check("PostgreSQL", err)
	r.Cleanup(func() { conn.Close(r.Context()) })
	args := []string{"--data-dir", r.TempDir(), "--database-url", url, "--redis-url", redis.URL}
	return place{args, conn, redis, os.TempDir()}
}

// weighSQL adds the size of the database, of PostgreSQL by table with its indexes. SQLite has one file and,
// because its last process was killed, a write-ahead log.
func (p place) weighSQL(r *run, rows int) {
	if p.conn == nil {
		for _, name := range []string{"dispatcher.db", "dispatcher.db-wal"} {
			info, err := os.Stat(p.dir + "/" + name)
			if err == nil {
				r.figures["sql"] += float64(info.Size()) / float64(rows)
			}
		}
		return
	}
	// Update the statistics, as autovacuum would later.
	_, err := p.conn.Exec(r.Context(), "VACUUM (ANALYZE)")
	r.check("vacuum", err)
	for _, table := range []string{"callbacks", "requests", "attempts", "idempotency"} {
		var size, n float64
		err := p.conn.QueryRow(r.Context(), fmt.Sprintf(
			`SELECT pg_total_relation_size('%[1]s'), (SELECT count(*) FROM %[1]s)`, table)).Scan(&size, &n)
		r.check("PostgreSQL", err)
		r.figures[table] = size / max(n, 1)
		r.figures["sql"] += size / float64(rows)
	}
	// A callback is a row of two tables. The payload is a column of the second one, and counts separately.
	var payload float64
	const query = `SELECT avg(pg_column_size(body)) FROM requests`
	r.check("PostgreSQL", p.conn.QueryRow(r.Context(), query).Scan(&payload))
	r.figures["payloads"] = payload
	r.figures["callbacks"] += r.figures["requests"] - payload
}

// logged returns the bytes that PostgreSQL has written to its log, and the number of its syncs.
func (p place) logged(r *run) (bytes, syncs float64) {
	if p.conn != nil {
		r.check("PostgreSQL", p.conn.QueryRow(r.Context(),
			`SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'),
			(SELECT wal_sync FROM pg_stat_wal)`).Scan(&bytes, &syncs))
	}
	return bytes, syncs
}

// redisNumber reads a number of a section of INFO: a value, or the number of calls of a command.
func (r *run) redisNumber(server *testserver.Redis, section, name string) float64 {
	client := testserver.Client(server.Address(), "")
	sections, err := client.InfoMap(r.Context(), section).Result()
	r.check("INFO", errors.Join(err, client.Close()))
	for _, values := range sections {
		if value, found := values[name]; found {
			value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, err := strconv.ParseFloat(value, 64)
			r.check("INFO", err)
			return n
		}
	}
	r.Fatalf("INFO has no %s: %v", name, sections)
	return 0
}
