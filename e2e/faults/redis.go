package faults

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

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// restHealing is for a sweep, a lease that runs out, the tiers, and a backlog on a machine that others load.
const restHealing = 2 * time.Minute

// redisFaults are what can happen to Redis and to the way to it. While any of them lasts, accepting goes on,
// the program says ready and degraded, and is not restarted.
func redisFaults() []fault {
	return slices.Concat(redisRestarts(), redisLosses(), redisWires(), redisHangs(), redisLimits(),
		redisRefusals())
}

// sharedAccept is how long an accept may take at p99 where other trials load the machine: less than a call to
// an index that hangs.
const sharedAccept = 3 * time.Second

// outageRate is the load of an outage, in callbacks a second.
const outageRate = 50

// An outage is the run that these faults have in common: a load all the while, a fault in the middle of it.
type outage struct {
	rate  int                          // zero: outageRate
	shape func(int) harness.Submission // nil: mixed
	// before and after are the callbacks that are accepted before the fault begins, and after it has ended;
	// zero: those of three seconds.
	before, after int
	// strike is the fault, from its beginning to its end.
	strike func(*harness.Process)
	// acceptLimit is how long an accept may take at p99; zero is sharedAccept.
	acceptLimit time.Duration
}

// An aftermath is what was seen of an outage from outside.
type aftermath struct {
	p     *harness.Process
	load  harness.LoadReport
	ready *readings
	// acceptLimit is the outage's.
	acceptLimit time.Duration
	// stretch is how much slower others made the machine.
	stretch float64
	// began and ended are the fault's.
	began, ended time.Time
}

// suffer runs an outage until everything is terminal, and holds it to what every one of them must leave
// alone: each accept is answered at the first asking and soon, readiness, the process, and the size of its
// log.
func (tr *trial) suffer(o outage) aftermath {
	tr.Helper()
	if o.shape == nil {
		o.shape = tr.Mixed
	}
	o.rate = cmp.Or(o.rate, outageRate)
	o.before, o.after = cmp.Or(o.before, 3*o.rate), cmp.Or(o.after, 3*o.rate)
	a := aftermath{p: tr.AnyProcess(), acceptLimit: o.acceptLimit}
	all, ours, err := harness.CPUUse()
	if err != nil {
		tr.Fatal(err)
	}
	harness.Eventually(tr, harness.StartTime, "the index is whole before the fault", func() error {
		if now := look(a.p); now.degraded || now.wrong != "" {
			return fmt.Errorf("/readyz says degraded, or %q", now.wrong)
		}
		return nil
	})
	a.ready = watchReadiness(tr, a.p)
	ld := tr.Load(o.rate, o.shape)
	tr.awaitAccepted(o.before)
	a.began = time.Now()
	tr.MarkFault()
	o.strike(a.p)
	tr.MarkFault()
	a.ended = time.Now()
	tr.awaitMore(o.after)
	a.load = ld.Finish()
	tr.Settle(3 * time.Minute)
	a.ready.stop()
	if a.stretch, err = harness.CPUStretch(all, ours); err != nil {
		tr.Fatal(err)
	}
	tr.unharmed(&a)
	return a
}

// mostStretch is how much slower than without others a machine may be, so that what takes too long on it is a
// failure.
const mostStretch = 2

// unharmed is what suffer promises.
func (tr *trial) unharmed(a *aftermath) {
	tr.Helper()
	if a.stretch < mostStretch {
		tr.inTime(a)
	}
	if a.p.Ended() {
		tr.Errorf("the process ended: %s", a.p.Cmd.ProcessState)
	}
	lines, kinds := logLines(tr, a.p)
	lasted := a.ended.Sub(a.began)
	polls, degraded := a.ready.between(a.began, a.ended)
	tr.Remark("fault of %s; accepts p99 %s, most %s; degraded in %d of %d looks during it; %d log lines "+
		"(others made "+
		"the machine %.1f times as slow)", lasted.Round(100*time.Millisecond),
		a.load.Took.P99.Round(time.Millisecond),
		a.load.Took.Most.Round(time.Millisecond), degraded, polls, lines, a.stretch)
	if most := 60 + 5*int(lasted.Seconds()); lines > most {
		tr.Errorf("the process wrote %d lines of log, more than %d: a flood. The most frequent: %v", lines, most,
			kinds)
	}
}

// inTime checks that accepting went on as before, and that the process was ready all the time.
func (tr *trial) inTime(a *aftermath) {
	tr.Helper()
	if a.load.Again > 0 {
		tr.Errorf("%d accepts were refused or timed out", a.load.Again)
	}
	if most := cmp.Or(a.acceptLimit, sharedAccept); a.load.Took.P99 > most {
		tr.Errorf("accepts took %s at p99 (most %s), at most %s is allowed", a.load.Took.P99, a.load.Took.Most,
			most)
	}
	for _, bad := range a.ready.unready() {
		tr.Errorf("not ready: %s", bad)
	}
}

// awaitAccepted waits until the load has handed over n callbacks in all.
func (tr *trial) awaitAccepted(n int) {
	tr.Helper()
	harness.Eventually(tr, 3*time.Minute, "the load is handed over", func() error {
		if got := tr.Count(); got < n {
			return fmt.Errorf("%d of %d are accepted", got, n)
		}
		return nil
	})
}

// awaitDegraded waits until the process says that Redis is in trouble, and returns when it did.
func (tr *trial) awaitDegraded(p *harness.Process) time.Time {
	tr.Helper()
	harness.Eventually(tr, 20*time.Second, "the process says that it is degraded", func() error {
		if now := look(p); !now.degraded {
			return errNotYet
		}
		return nil
	})
	return time.Now()
}

// awaitMore waits until the load has handed over n callbacks more.
func (tr *trial) awaitMore(n int) {
	tr.Helper()
	tr.awaitAccepted(tr.Count() + n)
}

// lasting waits until the load has handed over what it does in that time.
func (tr *trial) lasting(d time.Duration) {
	tr.Helper()
	tr.awaitMore(int(d.Seconds() * outageRate))
}

// cameBack says how sending went on after the outage.
func (tr *trial) cameBack(a *aftermath) string {
	tr.Helper()
	arrived := tr.firstArrivals(a.ended)
	return fmt.Sprintf("back to the first send %s, to the end of the backlog of %d %s",
		arrived.first.Round(time.Millisecond), arrived.backlog, arrived.drained.Round(time.Millisecond))
}

// degradedThroughout fails unless each look between the two times found the process ready and degraded by
// Redis.
func (tr *trial) degradedThroughout(a *aftermath, from, to time.Time) {
	tr.Helper()
	polls, degraded := a.ready.between(from, to)
	if polls == 0 || degraded < polls {
		tr.Errorf("/readyz said degraded by redis in %d of %d looks between %s and %s after the fault began",
			degraded, polls, from.Sub(a.began).Round(time.Millisecond), to.Sub(a.began).Round(time.Millisecond))
	}
}

// logLines counts the lines of a process's log, and its most frequent messages.
func logLines(tr *trial, p *harness.Process) (n int, kinds []string) {
	tr.Helper()
	text, err := os.ReadFile(p.LogFile)
	if err != nil {
		tr.Fatal(err)
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
func watchReadiness(tr *trial, p *harness.Process) *readings {
	ctx, cancel := context.WithCancel(context.Background())
	r := &readings{end: cancel, done: make(chan struct{})}
	tr.Cleanup(r.stop)
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

func look(p *harness.Process) reading {
	one := reading{at: time.Now()}
	status, body, err := p.Readyz()
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

// do sends Redis a command that must succeed.
func do(tr *trial, c *redis.Client, args ...any) {
	tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Do(ctx, args...).Err(); err != nil {
		tr.Fatalf("%v: %v", args, err)
	}
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

// exact are the bounds of a fault that costs no duplicate: SQL knows of every claim, whatever Redis forgets.
func exact() judge.Bounds { return judge.Bounds{Heal: restHealing} }

// tally is a metric's sum, in words; what was never counted is none.
func tally(p *harness.Process, name string) string {
	n, err := p.Metric(name)
	if err != nil {
		return "none"
	}
	return fmt.Sprintf("%.0f", n)
}
