package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// bytesPerRow is what a row with its payload and attempts takes on disk, rounded up.
const bytesPerRow = 4500

// A scaled is what was measured on one database. The figures of a phase have its name before theirs.
type scaled struct {
	system
	figures
	open     int
	seedTime time.Duration
}

// sql measures the dispatcher with many callbacks in SQL and in the index: how it starts, what they cost, and
// what a long backlog does to those that are due.
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
	intro := fmt.Sprintf("%d callbacks in %d lanes, accepted and attempted through the API (%s); %d stay open.",
		s.rows, seedLanes, strings.Join(texts, ", "), all[0].open)
	return s.publish("scale-sql", intro, began, measured, fmt.Sprintf("%d callbacks", s.rows), figuresTable(all))
}

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

// checkDisk fails before hours have passed.
func (s *scale) checkDisk(r *run, dir string) {
	var fs syscall.Statfs_t
	r.check("disk", syscall.Statfs(dir, &fs))
	if free, need := int64(fs.Bavail)*fs.Bsize, int64(s.rows)*bytesPerRow; free < need {
		r.Fatalf("%s has %d GB free and %d rows need about %d: set TMPDIR to another disk",
			dir, free>>30, s.rows, need>>30)
	}
}

// startCold starts a dispatcher that must fill its index from SQL, and measures it until the index is full.
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

// awaitRebuild returns how long the dispatcher took to fill its index, which it logs.
func (r *run) awaitRebuild(d *dispatcher, limit time.Duration) (took time.Duration) {
	r.poll("the index is rebuilt", limit, func() error {
		log, err := os.Open(d.logFile)
		if err != nil {
			return err
		}
		defer log.Close()
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var line struct{ Msg, Took string }
			// The last line may be half written.
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "index rebuilt" {
				took, err = time.ParseDuration(line.Took)
				return err
			}
		}
		return errors.New("no such line in its log")
	})
	return took
}

// underLoad measures phases beside everything that is pending.
func (x *scaled) underLoad(r *run, p place, d *dispatcher) {
	s := &session{run: r, dispatcher: d, url: r.receiver.url}
	r.awaitStats(d, "what was overdue is committed", time.Minute, func(st stats) bool {
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
	t := &table{title: "What they take, and what is done beside them", texts: 1, header: []string{""}}
	for _, x := range all {
		t.header = append(t.header, x.label)
	}
	for _, line := range []struct{ text, format, figure string }{
		{"callbacks a second that are put into an empty index", "%.0f", "rebuild"},
		{"from the start of the process to its first send, s", "%.2f", "first send"},
		{"most memory of the dispatcher, MB", "%.0f", "dispatcher MB"},
		{"Redis, bytes for one that is pending", "%.0f", "redis"},
		{"SQL, bytes for a callback", "%.0f", "sql"},
		{"… its row, with indexes", "%.0f", "callbacks"},
		{"… its payload of 512 bytes", "%.0f", "payloads"},
		{"… each attempt", "%.0f", "attempts"},
		{"… an idempotency key", "%.0f", "idempotency"},
		{"lateness of delayed ones beside them: p50 ms", "%.2f", "lateness " + p50},
		{"… p99 ms", "%.2f", "lateness " + p99},
		{"delivered/s beside them", "%.0f", "drain " + rate},
		{"… CPU s per 1,000", "%.3f", "drain " + cpuTime},
		{"accepted/s in batches of 100 beside them", "%.0f", "batch " + rate},
		{"… CPU s per 1,000", "%.3f", "batch " + cpuTime},
		{"accepted/s one a request beside them", "%.0f", "single " + rate},
		{"… CPU s per 1,000", "%.3f", "single " + cpuTime},
		{"WAL, bytes for one that is accepted and delivered", "%.0f", "log"},
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

// inputs are those of docs/reports/scaling.md that are measured here.
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
