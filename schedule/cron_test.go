package schedule_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// leases is a table of leases by name.
type leases struct {
	mu      sync.Mutex
	holders map[string]string
	until   map[string]int64
	err     error
	asked   int
}

func (l *leases) TryLease(_ context.Context, name, holder string, now int64, ttl time.Duration) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.err != nil {
		return false, l.err
	}
	if l.holders == nil {
		l.holders, l.until = make(map[string]string), make(map[string]int64)
	}
	if l.holders[name] != holder && l.until[name] > now {
		return false, nil
	}
	l.holders[name], l.until[name] = holder, now+ttl.Milliseconds()
	return true, nil
}

// start runs c in the bubble and returns what stops it and waits for its end.
func start(t *testing.T, c *schedule.Cron) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run returned %v", err)
		}
	}
}

func add(t *testing.T, c *schedule.Cron, name, spec string, ttl time.Duration, fn func(context.Context) error) {
	t.Helper()
	if err := c.Add(name, spec, ttl, fn); err != nil {
		t.Fatal(err)
	}
}

// runFor runs a function of those options for so long in the bubble, and returns the log.
func runFor(
	t *testing.T, d time.Duration, o schedule.CronOptions, spec string, ttl time.Duration,
	fn func(context.Context) error,
) string {
	t.Helper()
	var log bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c := schedule.NewCron(o)
	add(t, c, "function", spec, ttl, fn)
	stop := start(t, c)
	time.Sleep(d)
	stop()
	return log.String()
}

func TestCronRunsAtItsTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var every, quarter []time.Duration
		c := schedule.NewCron(schedule.CronOptions{})
		add(t, c, "every", "@every 15s", time.Minute, func(context.Context) error {
			every = append(every, time.Since(began))
			return nil
		})
		add(t, c, "quarter", "*/15 * * * *", time.Minute, func(context.Context) error {
			quarter = append(quarter, time.Since(began))
			return nil
		})
		stop := start(t, c)
		time.Sleep(time.Hour + time.Second)
		stop()
		if len(every) != 240 || every[0] != 15*time.Second || every[239] != time.Hour {
			t.Errorf("@every 15s ran %d times in an hour: %v", len(every), every)
		}
		want := []time.Duration{15 * time.Minute, 30 * time.Minute, 45 * time.Minute, time.Hour}
		if diff := cmp.Diff(want, quarter); diff != "" {
			t.Errorf("quarters (-want +got):\n%s", diff)
		}
		time.Sleep(time.Hour)
		if len(every) != 240 {
			t.Errorf("it ran on after Run had returned")
		}
	})
}

func TestCronNeverOverlapsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, runs := 0, 0
		runFor(t, 41*time.Second, schedule.CronOptions{}, "@every 1s", time.Minute, func(context.Context) error {
			if running++; running > 1 {
				t.Errorf("%d runs at a time", running)
			}
			time.Sleep(3500 * time.Millisecond)
			running--
			runs++
			return nil
		})
		if runs != 10 && runs != 11 {
			t.Errorf("a function of 3.5 s ran %d times in 41 s, want 10 and perhaps one that ended with the rest", runs)
		}
	})
}

func TestCronRunsInOneProcessAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := new(leases)
		var runs [2]atomic.Int64
		var stops [2]func()
		for i := range runs {
			c := schedule.NewCron(schedule.CronOptions{Holder: fmt.Sprint("process-", i), Lease: shared})
			add(t, c, "sweep", "@every 10s", 25*time.Second, func(context.Context) error {
				runs[i].Add(1)
				return nil
			})
			stops[i] = start(t, c)
			time.Sleep(time.Second)
		}
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if first, second := runs[0].Load(), runs[1].Load(); first != 10 || second != 0 {
			t.Errorf("the processes ran it %d and %d times, want 10 and never", first, second)
		}
		stops[0]()
		time.Sleep(time.Minute)
		synctest.Wait()
		if runs[1].Load() == 0 {
			t.Errorf("the second process did not take over")
		}
		stops[1]()
	})
}

func TestCronWithoutItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		table := &leases{err: errors.New("no connection")}
		var runs atomic.Int64
		c := schedule.NewCron(schedule.CronOptions{
			Holder: "process", Lease: table, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Now: func() int64 { return 1000 },
		})
		add(t, c, "sweep", "@every 1s", time.Second, func(context.Context) error {
			runs.Add(1)
			return nil
		})
		stop := start(t, c)
		time.Sleep(5500 * time.Millisecond)
		synctest.Wait()
		table.mu.Lock()
		if n := runs.Load(); n != 0 || table.asked != 5 {
			t.Errorf("it ran %d times and asked %d times for the lease, want 0 and 5", n, table.asked)
		}
		table.err = nil
		table.mu.Unlock()
		time.Sleep(time.Second)
		stop()
		if n := runs.Load(); n != 1 || table.until["sweep"] != 2000 {
			t.Errorf("afterwards it ran %d times, with a lease until %d; want once, until 2000", n, table.until["sweep"])
		}
		if !strings.Contains(log.String(), "no connection") {
			t.Errorf("the log does not say why: %q", log.String())
		}
	})
}

func TestCronGoesOnAfterFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		o := schedule.CronOptions{}
		log := runFor(t, 4500*time.Millisecond, o, "@every 1s", time.Second, func(context.Context) error {
			switch runs++; runs {
			case 1:
				panic("out of cheese")
			case 3:
				return errors.New("out of milk")
			}
			return nil
		})
		if runs != 4 {
			t.Errorf("it ran %d times, want 4", runs)
		}
		for _, want := range []string{"out of cheese", "out of milk", "function=function"} {
			if !strings.Contains(log, want) {
				t.Errorf("the log does not say %q: %s", want, log)
			}
		}
	})
}

// While a database is away, functions that run every second must not fill the log.
func TestCronSaysNowAndThenThatAFunctionFails(t *testing.T) {
	t.Parallel()
	out := errors.New("out of milk")
	for _, lease := range []schedule.Leaser{nil, &leases{err: out}} {
		synctest.Test(t, func(t *testing.T) {
			o := schedule.CronOptions{Holder: "us", Lease: lease}
			log := runFor(t, 5*time.Minute, o, "@every 1s", time.Second, func(context.Context) error { return out })
			if n := strings.Count(log, "out of milk"); n < 4 || n > 6 {
				t.Errorf("%d lines in five minutes, leased %t:\n%s", n, lease != nil, log)
			}
		})
	}
}

func TestCronBoundsARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lasted []time.Duration
		// The second run is a second old, and ends with Run.
		o := schedule.CronOptions{}
		runFor(t, 21*time.Second, o, "@every 10s", 4*time.Second, func(ctx context.Context) error {
			began := time.Now()
			<-ctx.Done()
			lasted = append(lasted, time.Since(began))
			return ctx.Err()
		})
		if diff := cmp.Diff([]time.Duration{4 * time.Second, time.Second}, lasted); diff != "" {
			t.Errorf("runs lasted (-want +got):\n%s", diff)
		}
	})
}

func TestCronRefuses(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context) error { return nil }
	for _, spec := range []string{"", "every minute", "0 0 31 2 *", "TZ=UTC * * * * *", "@every 1ms"} {
		if err := schedule.NewCron(schedule.CronOptions{}).Add("f", spec, time.Second, nothing); err == nil {
			t.Errorf("the spec %q was taken", spec)
		}
	}
	c := schedule.NewCron(schedule.CronOptions{})
	for _, spec := range []string{"@every 15s", "*/5 * * * *", "@daily", "0 3 * * 1-5", "0 0 29 2 *"} {
		add(t, c, spec, spec, time.Second, nothing)
	}
	if err := c.Add("@daily", "@daily", time.Second, nothing); err == nil {
		t.Errorf("a second function of the same name was taken")
	}
	if err := c.Add("", "@daily", time.Second, nothing); err == nil {
		t.Errorf("a function without a name was taken")
	}
	if err := c.Add("f", "@daily", 0, nothing); err == nil {
		t.Errorf("a function without time was taken")
	}
	leased := schedule.NewCron(schedule.CronOptions{Lease: new(leases)})
	if err := leased.Add("f", "@daily", time.Second, nothing); err == nil {
		t.Errorf("a lease without a holder was taken")
	}
}
