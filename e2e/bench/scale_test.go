package bench

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// scaleOptions say how much there is when the product is measured as it grows.
type scaleOptions struct {
	rows, pending, lanes int
	on                   string
	requests, readers    int
	scaling, block       string

	indexPending, indexLanes string
	indexRounds              int

	dispatchers, clusterRounds string
}

func (o *scaleOptions) flags() {
	flag.IntVar(&o.rows, "rows", 100_000, "callbacks in SQL, of TestScale")
	flag.IntVar(&o.pending, "pending", 50_000, "how many of them are open")
	flag.IntVar(&o.lanes, "lanes", 10_000, "how many lanes they have")
	flag.StringVar(&o.on, "on", "postgres,sqlite", "which databases, a `list`")
	flag.IntVar(&o.requests, "requests", 300, "requests of each kind to the API")
	flag.IntVar(&o.readers, "readers", 2, "how many of them at once")
	flag.StringVar(&o.block, "block", blockSQL, "the `block` of the report that TestScale writes")
	flag.StringVar(&o.scaling, "scaling", "", "`file` whose table of inputs gets what was measured")
	flag.StringVar(&o.indexPending, "index-pending", "1000,100000", "pending items of the index's benchmarks, a `list`")
	flag.StringVar(&o.indexLanes, "index-lanes", "1,1000,100000", "lanes of the index's benchmarks, a `list`")
	flag.IntVar(&o.indexRounds, "index-rounds", 100, "rounds of the index's benchmarks, of 960 items each")
	flag.StringVar(&o.dispatchers, "dispatchers", "1,2,4", "how many dispatchers share a Cluster, a `list`")
	flag.StringVar(&o.clusterRounds, "cluster-rounds", "3", "how often each of them is measured, in turns")
}

// Figures of the product as it grows.
const (
	seedTime     = "seeded in s"
	rebuildTime  = "rebuilt in s"
	rebuildSpeed = "rebuilt/s"
	readyTime    = "ready s"
	firstSend    = "first send s"
	openRows     = "open"

	redisPerPending = "redis per pending"
	sqlPerCallback  = "sql per callback"
	walPerCallback  = "wal per callback"
)

// overdueRows are due when a dispatcher is started: the first of them shows how long the first send takes.
const overdueRows = 1000

// A scaled is what was measured on one database.
type scaled struct {
	system
	seeded
	figures
	reads      []readFigures
	redisEmpty float64
}

// TestScale measures the product with many callbacks in SQL and in the index: the rebuild, what they cost, how long reads of
// the API take, and what a long backlog does to those that are due.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the binary, servers and, in full, hours")
	}
	first := firstRound(t)
	began := first.loadNow(t)
	var all []*scaled
	for name := range strings.SplitSeq(chosen.on, ",") {
		t.Run(name, func(t *testing.T) {
			r := first
			r.roles = maps.Clone(first.roles)
			all = append(all, measureScale(t, &r, name))
		})
	}
	if t.Failed() {
		return
	}
	publishScale(t, all, began, first.loadNow(t))
	for _, x := range all {
		if x.key == "c" {
			publishInputs(t, x.inputs(), fmt.Sprintf("As it grows, %d callbacks", x.rows))
		}
	}
}

// A place is where a dispatcher keeps what it has.
type place struct {
	database
	args  []string
	redis *testserver.Redis // nil: the embedded index
	dir   string            // on the disk that fills
}

// newPlace makes an empty one.
func newPlace(t *testing.T, name string) place {
	t.Helper()
	dir := t.TempDir()
	p := place{dir: dir, args: []string{"--data-dir", dir}}
	switch name {
	case "sqlite":
		p.file = filepath.Join(dir, "dispatcher.db")
	case "postgres":
		p.postgres = testserver.NewPostgres(t).Database(t)
		p.redis = testserver.NewRedis(t)
		p.args = append(p.args, "--database-url", p.postgres, "--redis-url", p.redis.URL)
		p.dir = os.TempDir()
	default:
		t.Fatalf("there is no database %q: postgres or sqlite", name)
	}
	return p
}

// bytesFor is what a row with its payload and attempts takes, indexes and what loading needs for a while included: measured by
// this benchmark, rounded up.
func (p place) bytesFor(rows int) int64 {
	if p.postgres != "" {
		return int64(rows) * 3500
	}
	return int64(rows) * 2600
}

// checkDisk fails before hours have passed.
func (p place) checkDisk(t *testing.T, rows int) {
	t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(p.dir, &fs); err != nil {
		t.Fatal(err)
	}
	free, need := int64(fs.Bavail)*fs.Bsize, p.bytesFor(rows)
	t.Logf("%d rows need about %.1f GB in %s; %.1f GB are free", rows, float64(need)/1e9, p.dir, float64(free)/1e9)
	if free < need {
		t.Fatalf("%s has %.1f GB free, and %d rows need about %.1f: set TMPDIR to another disk, or -rows to less", p.dir, float64(free)/1e9, rows, float64(need)/1e9)
	}
}

func measureScale(t *testing.T, r *round, name string) *scaled {
	key := map[string]string{"sqlite": "b", "postgres": "c"}[name]
	p := newPlace(t, name)
	p.checkDisk(t, r.rows)
	which, err := pick(key)
	if err != nil {
		t.Fatal(err)
	}
	r.system, r.number, r.concurrency = which[0], 1, connections
	x := &scaled{system: r.system, figures: figures{}}
	s := seeding{
		database: p.database, rows: r.rows, pending: r.pending, lanes: r.lanes, overdue: min(overdueRows, r.pending), receiver: r.receiver.url,
	}
	x.seeded = s.seed(t, r, p.args)
	x.figures[seedTime] = x.took.Seconds()
	t.Logf("%d callbacks, %d of them open, with %d attempts, seeded in %s", x.rows, x.seeded.pending, x.attempts, x.took.Round(time.Second))
	x.weigh(t, p)
	d := x.startCold(t, r, p, s.overdue)
	x.reads = measureReads(t, d, x.seeded, r.scaleOptions)
	x.underLoad(t, r, p, d)
	t.Logf("%s:%s", x.label(), x.figures)
	return x
}

// startCold starts a dispatcher that has to fill its index from SQL, and measures that until it is full.
func (x *scaled) startCold(t *testing.T, r *round, p place, overdue int) *dispatcher {
	t.Helper()
	x.emptyRedis(t, p)
	r.receiver.expect(t, max(overdue, 1))
	limit := 3*time.Minute + time.Duration(x.seeded.pending)*time.Millisecond // a thousand a second
	before := r.cpu(t)
	d := launchDispatcher(t, r.binary, r.concurrency, r.receiver, p.args)
	r.roles[d.pid] = roleDispatcher
	d.awaitReady(t, limit)
	x.figures[readyTime] = time.Since(d.started).Seconds()
	if overdue > 0 {
		at, err := r.receiver.arrivals(t.Context(), overdue, limit)
		if err != nil {
			t.Fatal(err)
		}
		first := at[0]
		for _, a := range at {
			if a.Before(first) {
				first = a
			}
		}
		x.figures[firstSend] = first.Sub(d.started).Seconds()
	}
	built, err := d.rebuilt(t, limit)
	if err != nil {
		t.Fatal(err)
	}
	x.figures[openRows], x.figures[rebuildTime] = float64(built.Open), built.took.Seconds()
	x.figures[rebuildSpeed] = float64(built.Open) / built.took.Seconds()
	x.putCPU(rebuildCPU, before, r.cpu(t), built.Open, r.counted)
	r.putMemory(t, x.figures)
	x.weighRedis(t, p, d)
	return d
}

// rebuildCPU is CPU time for 1,000 open callbacks that are put back into the index.
const rebuildCPU = "rebuild cpu"

// A rebuild is what a dispatcher logs of one.
type rebuild struct {
	Message string `json:"msg"`
	Open    int    `json:"open"`
	TookAs  string `json:"took"`
	took    time.Duration
}

// rebuilt waits until the dispatcher has filled its index.
func (d *dispatcher) rebuilt(t *testing.T, limit time.Duration) (built rebuild, err error) {
	err = poll(t.Context(), "the index is rebuilt", limit, 200*time.Millisecond, func() (bool, error) {
		log, err := os.Open(d.logFile)
		if err != nil {
			return false, err
		}
		defer log.Close()
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var line rebuild
			// The last line may be half written.
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "index rebuilt" {
				line.took, err = time.ParseDuration(line.TookAs)
				built = line
				return err == nil, err
			}
		}
		return false, fmt.Errorf("no such line in its log")
	})
	return built, err
}

// underLoad measures what is due, and what is accepted and due at once, beside everything that is pending.
func (x *scaled) underLoad(t *testing.T, r *round, p place, d *dispatcher) {
	t.Helper()
	was, err := d.stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &session{dispatcher: d, round: r, t: t, f: x.figures, succeeded: was.States.Succeeded, scheduled: was.States.Scheduled}
	s.warm()
	s.lateness()
	before := x.wal(t, p)
	s.drain()
	x.putWAL(before, x.wal(t, p), r.n)
	s.accept()
}

// inputs are those of docs/scaling.md that are measured here, on PostgreSQL and Redis.
func (x *scaled) inputs() inputs {
	return inputs{
		"dispatcher_alone": x.figures[singleCPU+":"+roleDispatcher], "sql_alone": x.figures[singleCPU+":postgres"],
		"redis_bytes": x.figures[redisPerPending], "row_bytes": x.figures["callbacks row"], "payload_bytes": x.figures["payloads row"],
		"attempt_bytes": x.figures["attempts row"], "key_bytes": x.figures["idempotency row"],
		"wal_bytes": x.figures[walPerCallback], "wal_syncs": x.figures[walSyncs], "rebuild": x.figures[rebuildSpeed],
	}
}
