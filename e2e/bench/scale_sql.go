package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bytesPerRow is what a row with its payload and attempts takes on disk, rounded up.
const bytesPerRow = 4500

// A scaled is what was measured on one database. The figures of a phase have its name before theirs.
type scaled struct {
	system
	seeded
	figures
	seedTime time.Duration
	reads    []readFigures
}

// sql measures the dispatcher with many callbacks in SQL and in the index: how it starts, what they cost, how
// long reads of the API take, and what a long backlog does to those that are due.
func (s *scale) sql() error {
	began := loadNow(s.tb)
	var all []*scaled
	for name := range strings.SplitSeq(s.databases, ",") {
		if err := s.in(name, func(r *run) { all = append(all, s.measureSQL(r)) }); err != nil {
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
	x := all[0]
	intro := fmt.Sprintf("%d callbacks in %d lanes, accepted and attempted through the API (%s); %d remain "+
		"open; %d attempts. %d requests of each kind, %d at once. %s",
		x.open+x.ended, s.lanes, strings.Join(texts, ", "), x.open, x.attempts, s.requests, readers, s.since(began))
	return s.publish(s.sqlBlock, intro, measured, fmt.Sprintf("As it grows, %d callbacks", x.open+x.ended),
		figuresTable(all), readsTable(all))
}

func (s *scale) measureSQL(r *run) *scaled {
	p := newPlace(r)
	s.checkDisk(r, p.dir)
	x := &scaled{system: r.system, figures: r.figures}
	began := time.Now()
	x.seeded = s.seed(r, p.args)
	x.seedTime = time.Since(began)
	logf("%s: %d callbacks seeded in %s", r.system.name, s.rows, x.seedTime.Round(time.Second))
	p.analyze(r)
	p.weighSQL(r, s.rows)
	d := x.startCold(r, p)
	of := &samples{Rand: rand.New(rand.NewPCG(1, 2)), lanes: s.lanes, from: x.from, to: x.to}
	x.reads = measureReads(r, d, of, s.requests)
	x.underLoad(r, p, d)
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
		client := redisClient(p.redis)
		r.check("empty Redis", errors.Join(client.FlushAll(r.Context()).Err(), client.Close()))
		empty = r.redisNumber(p.redis, "memory", "used_memory")
	}
	arriving, before := r.receiver.expect(overdueRows), r.cpu()
	limit := 3*time.Minute + time.Duration(x.open)*time.Millisecond // a thousand a second
	d := r.launch(p.args)
	r.awaitReady(d, limit)
	first := slices.MinFunc(arriving.await(r, limit), time.Time.Compare)
	x.figures["first send"] = first.Sub(d.started).Seconds()
	took := r.awaitRebuild(d, limit)
	x.figures["rebuild"], x.figures["rebuild rate"] = took.Seconds(), float64(x.open)/took.Seconds()
	r.putCPU("rebuild cpu", before, r.cpu(), x.open)
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
	before := p.logPosition(r)
	phase("drain ", drain)
	if p.postgres != "" {
		before.put(x.figures, p.logPosition(r), r.n)
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
		{"filling an empty index with the open ones, s", "%.1f", "rebuild"},
		{"… callbacks a second", "%.0f", "rebuild rate"},
		{"… CPU s for 1,000, all processes", "%.3f", "rebuild cpu"},
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
		{"… most ms", "%.1f", "lateness " + largest},
		{"… early", "%.0f", "lateness " + early},
		{"delivered/s beside them", "%.0f", "drain " + rate},
		{"… CPU s per 1,000", "%.3f", "drain " + cpuTime},
		{"accepted/s in batches of 100 beside them", "%.0f", "batch " + rate},
		{"… CPU s per 1,000", "%.3f", "batch " + cpuTime},
		{"WAL, bytes for one that is accepted and delivered", "%.0f", "log"},
		{"… of it pages logged whole, for 1,000", "%.0f", "pages"},
		{"… commits for 1,000", "%.1f", "commits"},
		{"… syncs of the log for 1,000", "%.1f", "syncs"},
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

func readsTable(all []*scaled) *table {
	t := &table{title: "Reads of the API", texts: 1, header: []string{"request"}}
	for _, x := range all {
		t.header = append(t.header, x.name+": p50 ms", "p99 ms", "callbacks on a page")
	}
	for i, kind := range readKinds {
		cells := []string{kind.name}
		for _, x := range all {
			f := x.reads[i]
			for _, v := range []float64{f.p50, f.p99, f.rows} {
				cells = append(cells, fmt.Sprintf("%.1f", v))
			}
		}
		t.add(cells...)
	}
	return t
}

// inputs are those of docs/scaling.md that are measured here.
func (x *scaled) inputs() numbers {
	f := x.figures
	return numbers{
		"dispatcher_alone": f["single "+cpuTime+":"+roleDispatcher],
		"sql_alone":        f["single "+cpuTime+":"+rolePostgres],
		"redis_bytes":      f["redis"], "row_bytes": f["callbacks"], "payload_bytes": f["payloads"],
		"attempt_bytes": f["attempts"], "key_bytes": f["idempotency"],
		"wal_bytes": f["log"], "wal_syncs": f["syncs"], "rebuild": f["rebuild rate"],
	}
}
