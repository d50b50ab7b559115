package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/robfig/cron/v3"
)

// A Leaser makes sure that only one of several processes runs a maintenance function at a time.
type Leaser interface {
	// TryLease takes or renews the named lease for holder until now+ttl, and reports whether holder has it.
	// now is in Unix milliseconds.
	TryLease(ctx context.Context, name, holder string, now int64, ttl time.Duration) (bool, error)
}

// CronOptions configure a Cron. The zero value is for the only process.
type CronOptions struct {
	// Holder names this process. No other process, and no earlier start of this one, has used the name. It is
	// required with a Lease.
	Holder string
	// Lease keeps other processes from running the same function at the same time; nil: there are no others.
	Lease Leaser
	// Now is the clock of the leases, in Unix milliseconds; nil means this machine's clock.
	Now func() int64
	// Ended is called at each time of a function: after its run, with its error, or with held false if
	// another process has the lease. It is not called if the lease cannot be read. Nil: no calls.
	Ended func(name string, held bool, err error)
	// Logger receives the failures; nil means that nothing is logged.
	Logger *slog.Logger
}

// A Cron runs named maintenance functions at the times of their specs, in UTC.
//
// A function never overlaps itself. In this process, a run is skipped while the last one is still running. In
// other processes the lease prevents the run. A Cron never gives a lease back, so a holder keeps the lease
// while its function runs again before the lease ends.
//
// A function that fails or panics runs again at its next time. The first failure is logged at once; while
// every run fails, one failure a minute is logged. Runs that were missed while no process was running are not
// made up.
type Cron struct {
	o     CronOptions
	times *cron.Cron
	names map[string]bool

	mu  sync.Mutex
	ctx context.Context // of Run
	// failing has the functions whose last run failed, with the time of the last log line.
	failing map[string]time.Time
}

// logEvery is the least time between two log lines about a function that fails on every run, for example
// while the database is unreachable.
const logEvery = time.Minute

// NewCron returns a Cron without functions.
func NewCron(o CronOptions) *Cron {
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Ended == nil {
		o.Ended = func(string, bool, error) {}
	}
	return &Cron{o: o, times: cron.New(cron.WithLocation(time.UTC)), names: make(map[string]bool),
		failing: make(map[string]time.Time)}
}

// Add schedules fn at the times of spec, which [ParseSpec] reads, in UTC. ttl is the duration of the lease
// and of the run: fn's context ends with it. All functions are added before Run. An error names the function:
// the name is empty or a duplicate, ttl is below 1 ms, the Holder is missing, or the spec is invalid.
func (c *Cron) Add(name, spec string, ttl time.Duration, fn func(context.Context) error) error {
	switch {
	case name == "":
		return errors.New("cron function: the name is missing")
	case c.names[name]:
		return fmt.Errorf("cron function %q: duplicate name", name)
	case ttl < time.Millisecond:
		return fmt.Errorf("cron function %q: ttl %s is shorter than 1ms", name, ttl)
	case c.o.Lease != nil && c.o.Holder == "":
		return fmt.Errorf("cron function %q: Lease is set, but Holder is empty", name)
	}
	times, err := ParseSpec(spec, "")
	if err != nil {
		return fmt.Errorf("cron function %q: %w", name, err)
	}
	c.names[name] = true
	var running sync.Mutex
	c.times.Schedule(times, cron.FuncJob(func() {
		if !running.TryLock() {
			c.o.Logger.Debug("cron function is still running", "function", name)
			return
		}
		defer running.Unlock()
		c.run(name, ttl, fn)
	}))
	return nil
}

// Run runs the functions at their times until ctx ends. It returns nil when all running functions have ended;
// their contexts end with ctx. Run is called once.
func (c *Cron) Run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	c.times.Start()
	<-ctx.Done()
	<-c.times.Stop().Done()
	return nil
}

// run executes fn once, if this process gets the lease. A robfig/cron goroutine calls it, one at a time for
// each function (see Add).
func (c *Cron) run(name string, ttl time.Duration, fn func(context.Context) error) {
	c.mu.Lock()
	parent := c.ctx
	c.mu.Unlock()
	// The timeout starts before the request for the lease, so that the run ends before the lease does.
	ctx, cancel := context.WithTimeout(parent, ttl)
	defer cancel()
	if c.o.Lease != nil {
		held, err := c.o.Lease.TryLease(ctx, name, c.o.Holder, c.o.Now(), ttl)
		if err != nil {
			if parent.Err() == nil && c.failed(name) {
				c.o.Logger.Warn("cron lease failed", "function", name, "error", err)
			}
			return
		}
		if !held {
			c.o.Ended(name, false, nil)
			return
		}
	}
	err := guard(ctx, fn)
	c.o.Ended(name, true, err)
	switch {
	case err == nil:
		c.mu.Lock()
		delete(c.failing, name)
		c.mu.Unlock()
	case parent.Err() == nil && c.failed(name):
		c.o.Logger.Error("cron function failed", "function", name, "error", err)
	}
}

// failed records a failure and reports whether to log it.
func (c *Cron) failed(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, known := c.failing[name]; known && time.Since(last) < logEvery {
		return false
	}
	c.failing[name] = time.Now()
	return true
}

// guard calls fn and turns a panic into an error.
func guard(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(ctx)
}
