package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// restHealing is for a sweep, a lease that runs out, the tiers, and a backlog on a machine that others load.
const restHealing = 2 * time.Minute

// sharedAccept is how long an accept may take at p99 where other trials load the machine: less than a call to
// an index that hangs.
const sharedAccept = 3 * time.Second

// outageRate is the load of an outage, in callbacks a second.
const outageRate = 50

// An outage is the run that the faults of Redis have in common: a load all the while, a fault in the middle
// of it.
type outage struct {
	rate  int                          // zero: outageRate
	shape func(int) harness.Submission // nil: mixed
	// around are the callbacks that are accepted before the fault begins, and after it has ended; zero: those
	// of three seconds.
	around int
	// strike is the fault, from its beginning to its end.
	strike func(*harness.Process)
	// acceptLimit is how long an accept may take at p99; zero is sharedAccept.
	acceptLimit time.Duration
}

// An aftermath is what was seen of an outage from outside.
type aftermath struct {
	p *harness.Process
	w *watch
	// began and ended are the fault's.
	began, ended time.Time
}

// mostStretch is how much slower than without others a machine may be, so that what takes too long on it is a
// failure.
const mostStretch = 2

// suffer runs an outage until everything is terminal, and holds it to what every one of them must leave
// alone: each accept is answered at the first asking and soon, readiness, the process, its size, and that of
// its log.
func (tr *trial) suffer(o outage) aftermath {
	tr.Helper()
	if o.shape == nil {
		o.shape = tr.Mixed
	}
	o.rate = cmp.Or(o.rate, outageRate)
	o.around = cmp.Or(o.around, 3*o.rate)
	a := aftermath{p: tr.AnyProcess()}
	all, ours, err := harness.CPUUse()
	if err != nil {
		tr.Fatal(err)
	}
	tr.ready(a.p)
	started := time.Now()
	a.w = tr.watch(a.p)
	ld := tr.Load(o.rate, o.shape)
	tr.awaitMore(o.around)
	a.began = time.Now()
	tr.MarkFault()
	o.strike(a.p)
	tr.MarkFault()
	a.ended = time.Now()
	tr.awaitMore(o.around)
	load := ld.Finish()
	tr.moderate(a.w, time.Since(started))
	tr.Settle(3 * time.Minute)
	stretch, err := harness.CPUStretch(all, ours)
	if err != nil {
		tr.Fatal(err)
	}
	g := a.w.during(started, time.Now())
	tr.Remark("fault of %s; accepts p99 %s, most %s; %s; others made the machine %.1f times as slow",
		a.ended.Sub(a.began).Round(100*time.Millisecond), load.Took.P99.Round(time.Millisecond),
		load.Took.Most.Round(time.Millisecond), a.w.during(a.began, a.ended), stretch)
	if stretch >= mostStretch {
		return a
	}
	if load.Again > 0 || g.accepts[http.StatusAccepted] == 0 || len(g.accepts) > 1 {
		tr.Errorf("accepts were refused or timed out: %d of the load (the first: %v); %s", load.Again, load.First, g)
	}
	if g.ready[http.StatusOK] == 0 || len(g.ready) > 1 {
		tr.Errorf("the process was not ready all the time: %s", g)
	}
	if most := cmp.Or(o.acceptLimit, sharedAccept); load.Took.P99 > most {
		tr.Errorf("accepts took %s at p99 (most %s), at most %s is allowed", load.Took.P99, load.Took.Most, most)
	}
	return a
}

// awaitMore waits until the load has handed over n callbacks more.
func (tr *trial) awaitMore(n int) {
	tr.Helper()
	n += tr.Count()
	harness.Eventually(tr, 3*time.Minute, "the load is handed over", func() error {
		if got := tr.Count(); got < n {
			return fmt.Errorf("%d of %d are accepted", got, n)
		}
		return nil
	})
}

// lasting waits until the load has handed over what it does in that time.
func (tr *trial) lasting(d time.Duration) {
	tr.Helper()
	tr.awaitMore(int(d.Seconds() * outageRate))
}

// An away is a Redis that cannot be written to for a while.
type away struct {
	prepare func(*trial) // before the dispatcher starts; nil: nothing
	// strike begins the fault, and heal ends it.
	strike, heal func(*trial, *redis.Client)
	// says is what a write is answered with meanwhile; empty: it has no answer.
	says string
	// lasts is how long the process must say that it is degraded, from when it first does; zero: the fault
	// ends by itself.
	lasts       time.Duration
	rate        int
	acceptLimit time.Duration
}

// run has the process say that it is degraded for as long as Redis is away. What is in flight when that
// begins is recorded all the same, and Redis is not asked for connections without end.
func (x away) run(tr *trial) {
	if x.prepare != nil {
		x.prepare(tr)
	}
	tr.Serve()
	c := tr.Backend.RedisClient(tr)
	options := *c.Options()
	options.MaxRetries = -1 // else it would ask again until the answer is another
	once := redis.NewClient(&options)
	defer once.Close()
	before := tr.connected(c)
	var noticed, until time.Time
	var committed time.Duration
	a := tr.suffer(outage{rate: x.rate, acceptLimit: x.acceptLimit, strike: func(p *harness.Process) {
		x.strike(tr, c)
		struck := time.Now()
		if x.says != "" {
			harness.Eventually(tr, 30*time.Second, "Redis refuses a write", func() error {
				if err := once.Set(tr.Context(), "test", "1", 0).Err(); !redis.HasErrorPrefix(err, x.says) {
					return fmt.Errorf("a write gave %v, want %s", err, x.says)
				}
				return nil
			})
		}
		harness.Eventually(tr, 20*time.Second, "the process says that it is degraded", func() error {
			_, degraded, err := readiness(p)
			if err == nil && !degraded {
				err = errNotYet
			}
			return err
		})
		noticed = time.Now()
		harness.Eventually(tr, 30*time.Second, "all that arrived is committed to SQL meanwhile", tr.allRecorded)
		committed = time.Since(struck)
		time.Sleep(time.Until(noticed.Add(x.lasts))) // the fault lasts, by the clock
		until = time.Now()
		x.heal(tr, c)
	}})
	g := a.w.during(noticed, until)
	if x.lasts > 0 && (g.looks() == 0 || g.degraded < g.looks()) {
		tr.Errorf("/readyz named Redis in %d of %d looks from %s to %s after the fault began", g.degraded,
			g.looks(), noticed.Sub(a.began), until.Sub(a.began))
	}
	tr.Remark("results of what was in flight committed after %s, degraded after %s",
		committed.Round(10*time.Millisecond), noticed.Sub(a.began).Round(10*time.Millisecond))
	// After a refusal the client closes its connection: perhaps it leads to a server that is no master any
	// more.
	if asked, most := tr.connected(c)-before, 50+25*int(a.ended.Sub(a.began).Seconds()); asked > most {
		tr.Errorf("Redis was asked for %d connections, more than %d", asked, most)
	}
	tr.Verdict(exact())
}

// errNotYet is what a poll says whose condition has no figure.
var errNotYet = errors.New("not yet")

// allRecorded says whether SQL has an attempt for each request that came to the receiver.
func (tr *trial) allRecorded() error {
	arrived := tr.Recorder.Count()
	attempts, busy := tr.sqlCount(`SELECT count(*) FROM attempts`), tr.Recorder.InFlight()
	if attempts < arrived || busy > 0 {
		return fmt.Errorf("%d requests arrived, %d attempts are in SQL, %d are being answered", arrived, attempts,
			busy)
	}
	return nil
}

// exact are the bounds of a fault that costs no duplicate: SQL knows of every claim, whatever Redis forgets.
func exact() judge.Bounds { return judge.Bounds{Heal: restHealing} }

// do sends Redis a command that must succeed.
func do(tr *trial, c *redis.Client, args ...any) {
	tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Do(ctx, args...).Err(); err != nil {
		tr.Fatalf("%v: %v", args, err)
	}
}

// info reads one number of INFO.
func info(tr *trial, c *redis.Client, section, name string) int {
	tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	values, err := c.InfoMap(ctx, section).Result()
	if err != nil {
		tr.Fatalf("INFO %s: %v", section, err)
	}
	for _, found := range values {
		if value, ok := found[name]; ok {
			n, err := strconv.Atoi(value)
			if err != nil {
				tr.Fatal(err)
			}
			return n
		}
	}
	tr.Fatalf("INFO %s has no %s: %v", section, name, values)
	return 0
}

// connected is how many connections the server has ever been asked for.
func (tr *trial) connected(c *redis.Client) int {
	tr.Helper()
	return info(tr, c, "stats", "total_connections_received")
}

// rebuilds is how often the process has rebuilt its index.
func (tr *trial) rebuilds(p *harness.Process) int {
	tr.Helper()
	n, err := p.Metric("dispatcher_rebuilds_total")
	if err != nil {
		tr.Fatal(err)
	}
	return int(n)
}

// behindProxy puts a proxy between the processes that are started from now on and Redis.
func (tr *trial) behindProxy() *harness.Proxy {
	tr.Helper()
	p, through := harness.InFrontOf(tr, tr.Backend.Redis)
	tr.Backend.RedisBehind, tr.Backend.Redis = tr.Backend.Redis, through
	return p
}

// restartedWith restarts the trial's Redis with arguments, before anything is in it.
func (tr *trial) restartedWith(args ...string) {
	tr.Helper()
	tr.Backend.Server.Kill()
	tr.Backend.Server.Start(args...)
}

// appended are the settings of a Redis that people keep an index in.
var appended = []string{"--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage",
	"0"}

// appendLog is the file that the server appends to, and its size.
func (tr *trial) appendLog() (string, int64) {
	tr.Helper()
	files, err := filepath.Glob(filepath.Join(tr.Backend.Server.Dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		tr.Fatalf("no append-only file in %s: %v", tr.Backend.Server.Dir, err)
	}
	file := slices.Max(files)
	info, err := os.Stat(file)
	if err != nil {
		tr.Fatal(err)
	}
	return file, info.Size()
}
