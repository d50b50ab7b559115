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

// A Leaser lets one of several processes run a maintenance function at a time.
type Leaser interface {
	// TryLease takes or renews the named lease for holder until now+ttl, and says whether it is held. Now is
	// in Unix milliseconds.
	TryLease(ctx context.Context, name, holder string, now int64, ttl time.Duration) (bool, error)
}

// CronOptions of a Cron. The zero value is for a process that is alone.
type CronOptions struct {
	// Holder is this process: a name that no other process and no earlier start of this one has used. It is
	// required where there is a Lease.
	Holder string
	// Lease keeps other processes from running the same function; nil: there are no others.
	Lease Leaser
	// Now is the clock that leases are counted by, in Unix milliseconds; nil means this machine's.
	Now func() int64
	// Logger takes what goes wrong; nil means nothing is logged.
	Logger *slog.Logger
}

// A Cron runs named maintenance functions at the times that their specs say, in UTC.
//
// A function never overlaps itself: in this process a time that comes while it still runs is left out, and in
// other processes the lease keeps it out. The lease is not given back: who has it keeps it as long as the
// function's next time comes before its end. A function that fails or panics runs again at its next time, and
// is logged: at once, and then once a minute for as long as each of its runs fails. What was due while no
// process ran is not made up for.
type Cron struct {
	o     CronOptions
	times *cron.Cron
	names map[string]bool

	mu  sync.Mutex
	ctx context.Context // of Run
	// failing are the functions whose last run failed, with when the log was last told.
	failing map[string]time.Time
}

// complainEvery is the least time between two lines about a function that fails whenever it runs, as while a
// database is away.
const complainEvery = time.Minute

// NewCron returns a Cron without functions.
func NewCron(o CronOptions) *Cron {
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Cron{o: o, times: cron.New(cron.WithLocation(time.UTC)), names: make(map[string]bool),
		failing: make(map[string]time.Time)}
}

// Add lets fn run at the times of spec, which is as for [ParseSpec], in UTC. The ttl bounds each run: the
// lease is taken for so long, and fn's context ends with it. Functions are added before Run.
func (c *Cron) Add(name, spec string, ttl time.Duration, fn func(context.Context) error) error {
	switch {
	case name == "":
		return errors.New("a cron function needs a name")
	case c.names[name]:
		return fmt.Errorf("cron function %q is there already", name)
	case ttl < time.Millisecond:
		return fmt.Errorf("cron function %q: a ttl of %s leaves it no time", name, ttl)
	case c.o.Lease != nil && c.o.Holder == "":
		return fmt.Errorf("cron function %q: a lease needs a holder", name)
	}
	times, err := ParseSpec(spec, "")
	if err != nil {
		return fmt.Errorf("cron function %q: %w", name, err)
	}
	c.names[name] = true
	var running sync.Mutex
	c.times.Schedule(times, cron.FuncJob(func() {
		if !running.TryLock() {
			c.o.Logger.Debug("cron function still runs", "function", name)
			return
		}
		defer running.Unlock()
		c.run(name, ttl, fn)
	}))
	return nil
}

// Run runs the functions at their times until the context ends. It returns nil when all of them have ended;
// their contexts end with ctx. It is called once.
func (c *Cron) Run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	c.times.Start()
	<-ctx.Done()
	<-c.times.Stop().Done()
	return nil
}

// run makes one run, if the lease is to be had.
func (c *Cron) run(name string, ttl time.Duration, fn func(context.Context) error) {
	c.mu.Lock()
	parent := c.ctx
	c.mu.Unlock()
	// The time starts before the lease is asked for: the run must not outlast it.
	ctx, cancel := context.WithTimeout(parent, ttl)
	defer cancel()
	if c.o.Lease != nil {
		held, err := c.o.Lease.TryLease(ctx, name, c.o.Holder, c.o.Now(), ttl)
		if err != nil {
			if parent.Err() == nil && c.failed(name) {
				c.o.Logger.Warn("cron lease", "function", name, "error", err)
			}
			return
		}
		if !held {
			return
		}
	}
	switch err := guard(ctx, fn); {
	case err == nil:
		c.mu.Lock()
		delete(c.failing, name)
		c.mu.Unlock()
	case parent.Err() == nil && c.failed(name):
		c.o.Logger.Error("cron function", "function", name, "error", err)
	}
}

// failed notes that a function could not run or failed, and says whether the log is to be told.
func (c *Cron) failed(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, known := c.failing[name]; known && time.Since(last) < complainEvery {
		return false
	}
	c.failing[name] = time.Now()
	return true
}

// guard calls fn, and makes a panic an error.
func guard(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(ctx)
}
