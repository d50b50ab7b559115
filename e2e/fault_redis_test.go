package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// withRedis are the combinations that have one.
var (
	withRedis   = []combination{sqliteRedis, full}
	oneOfRedis  = []combination{full}
	otherRedis  = []combination{sqliteRedis}
	restHealing = 2 * time.Minute // a sweep, a lease that runs out, the tiers, and a backlog on a machine that others load
)

// redisFaults are what can happen to Redis and to the way to it. While any of them lasts, accepting goes on, the program says
// ready and degraded, and nobody restarts it.
func redisFaults() []fault {
	return slices.Concat(redisRestarts(), redisLosses(), redisWires(), redisHangs(), redisLimits(), redisRefusals())
}

// sharedAccept is how long an accept may take at p99 where other labs load the machine: less than a call to an index that
// hangs.
const sharedAccept = 3 * time.Second

// An outage is the run that these faults have in common: a load all the while, a fault in the middle of it.
type outage struct {
	rate  int
	shape func(int) submission // nil: mixed
	// before and after are the callbacks that are accepted before the fault begins, and after it has ended.
	before, after int
	// strike is the fault, from its beginning to its end.
	strike func(*process)
	// acceptLimit is how long an accept may take at p99; zero is sharedAccept.
	acceptLimit time.Duration
}

// An aftermath is what was seen of an outage from outside.
type aftermath struct {
	p     *process
	load  loadReport
	ready *readings
	// acceptLimit is the outage's.
	acceptLimit time.Duration
	// began and ended are the fault's.
	began, ended time.Time
}

// suffer runs an outage until everything is terminal, and holds it to what every one of them must leave alone: each accept
// is answered at the first asking and soon, readiness, the process, and the size of its log.
func (l *lab) suffer(o outage) aftermath {
	l.Helper()
	if o.shape == nil {
		o.shape = l.mixed
	}
	a := aftermath{p: l.one(), acceptLimit: o.acceptLimit}
	eventually(l, startTime, "the index is whole before the fault", func() error {
		if now := look(a.p); now.degraded || now.wrong != "" {
			return fmt.Errorf("/readyz says degraded, or %q", now.wrong)
		}
		return nil
	})
	a.ready = watchReadiness(l, a.p)
	ld := l.load(o.rate, o.shape)
	l.awaitAccepted(o.before)
	a.began = time.Now()
	l.struck()
	o.strike(a.p)
	l.struck()
	a.ended = time.Now()
	l.awaitAccepted(l.count() + o.after)
	a.load = ld.finish()
	l.settle(3 * time.Minute)
	a.ready.stop()
	l.unharmed(&a)
	return a
}

// unharmed is what suffer promises.
func (l *lab) unharmed(a *aftermath) {
	l.Helper()
	if a.load.again > 0 {
		l.Errorf("%d accepts were refused or timed out", a.load.again)
	}
	if most := cmp.Or(a.acceptLimit, sharedAccept); a.load.took.P99 > most {
		l.Errorf("accepts took %s at p99 (most %s), at most %s is allowed", a.load.took.P99, a.load.took.Most, most)
	}
	for _, bad := range a.ready.unready() {
		l.Errorf("not ready: %s", bad)
	}
	if a.p.ended() {
		l.Errorf("the process ended: %s", a.p.cmd.ProcessState)
	}
	lines, kinds := logLines(l, a.p)
	lasted := a.ended.Sub(a.began)
	polls, degraded := a.ready.between(a.began, a.ended)
	l.remark("fault of %s; accepts p99 %s, most %s; degraded in %d of %d looks during it; %d log lines",
		lasted.Round(100*time.Millisecond), a.load.took.P99.Round(time.Millisecond), a.load.took.Most.Round(time.Millisecond), degraded, polls, lines)
	if most := 60 + 5*int(lasted.Seconds()); lines > most {
		l.Errorf("the process wrote %d lines of log, more than %d: a flood. The most frequent: %v", lines, most, kinds)
	}
}

// awaitAccepted waits until the load has handed over n callbacks in all.
func (l *lab) awaitAccepted(n int) {
	l.Helper()
	eventually(l, 3*time.Minute, "the load is handed over", func() error {
		if got := l.count(); got < n {
			return fmt.Errorf("%d of %d are accepted", got, n)
		}
		return nil
	})
}

// degradedThroughout fails unless each look between the two times found the process ready and degraded by Redis.
func (l *lab) degradedThroughout(a *aftermath, from, to time.Time) {
	l.Helper()
	polls, degraded := a.ready.between(from, to)
	if polls == 0 || degraded < polls {
		l.Errorf("/readyz said degraded by redis in %d of %d looks between %s and %s after the fault began",
			degraded, polls, from.Sub(a.began).Round(time.Millisecond), to.Sub(a.began).Round(time.Millisecond))
	}
}

// logLines counts the lines of a process's log, and its most frequent messages.
func logLines(l *lab, p *process) (n int, kinds []string) {
	l.Helper()
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		l.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var entry struct{ Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			entry.Msg = line // a library's own line
		}
		count[entry.Msg]++
		n++
	}
	for kind, times := range count {
		if times > 5 {
			kinds = append(kinds, fmt.Sprintf("%d × %.100s", times, kind))
		}
	}
	slices.Sort(kinds)
	return n, kinds
}

// A reading is one look at /readyz.
type reading struct {
	at       time.Time
	wrong    string // why it was not 200; empty: it was
	degraded bool   // by redis
}

// Readings are looks at a process's readiness, ten a second.
type readings struct {
	mu   sync.Mutex
	all  []reading
	end  context.CancelFunc
	done chan struct{}
}

// watchReadiness looks until stop, or the test's end.
func watchReadiness(l *lab, p *process) *readings {
	ctx, cancel := context.WithCancel(context.Background())
	r := &readings{end: cancel, done: make(chan struct{})}
	l.Cleanup(r.stop)
	go func() {
		defer close(r.done)
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			one := look(p)
			r.mu.Lock()
			r.all = append(r.all, one)
			r.mu.Unlock()
		}
	}()
	return r
}

func look(p *process) reading {
	one := reading{at: time.Now()}
	status, body, err := p.readyz()
	var said struct {
		Degraded []string `json:"degraded"`
	}
	switch {
	case err != nil:
		one.wrong = err.Error()
	case status != http.StatusOK:
		one.wrong = fmt.Sprintf("status %d: %s", status, body)
	default:
		if err := json.Unmarshal([]byte(body), &said); err != nil {
			one.wrong = fmt.Sprintf("body %q: %v", body, err)
		}
	}
	one.degraded = slices.Contains(said.Degraded, "redis")
	return one
}

func (r *readings) stop() {
	r.end()
	<-r.done
}

// between counts the looks in a time, and those that found it degraded.
func (r *readings) between(from, to time.Time) (polls, degraded int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if one.at.After(from) && one.at.Before(to) {
			polls++
			if one.degraded {
				degraded++
			}
		}
	}
	return polls, degraded
}

// unready lists the looks that did not answer 200.
func (r *readings) unready() (why []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if one.wrong != "" {
			why = append(why, one.at.Format(time.TimeOnly)+" "+one.wrong)
		}
	}
	return why
}

// behindProxy puts a proxy between the processes that are started from now on and Redis.
func (l *lab) behindProxy() *proxy {
	l.Helper()
	p, through := inFrontOf(l, l.on.redis)
	l.on.redisBehind, l.on.redis = l.on.redis, through
	return p
}

// restartedWith starts the lab's Redis anew with arguments, before anything is in it.
func (l *lab) restartedWith(args ...string) {
	l.Helper()
	l.on.server.Kill()
	l.on.server.Start(args...)
}

// do sends Redis a command that must succeed.
func do(l *lab, c *redis.Client, args ...any) {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Do(ctx, args...).Err(); err != nil {
		l.Fatalf("%v: %v", args, err)
	}
}

// rebuilds is how often the process has rebuilt its index.
func (l *lab) rebuilds(p *process) int {
	l.Helper()
	n, err := p.metric("dispatcher_rebuilds_total")
	if err != nil {
		l.Fatal(err)
	}
	return int(n)
}

// exact are the bounds of a fault that costs no duplicate: SQL knows of every claim, whatever Redis forgets.
func exact() judge.Bounds { return judge.Bounds{Heal: restHealing} }

// tally is a metric's sum, in words; what was never counted is none.
func tally(p *process, name string) string {
	n, err := p.metric(name)
	if err != nil {
		return "none"
	}
	return fmt.Sprintf("%.0f", n)
}
