package report

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// DispatcherMemory is for how long one that has not ended in order is told of.
	DispatcherMemory = 10 * time.Minute

	// presenceEvery is how often a process reports itself, quietEvery how often one does that has the index
	// alone and of which nothing has changed: it is to leave the disk in peace, and nobody else asks.
	presenceEvery = 5 * time.Second
	quietEvery    = time.Minute
	// farewellTime bounds what is written at the end.
	farewellTime = 2 * time.Second
)

// A presence is what this process says of itself.
type presence struct {
	host string
	// Since is when Run has begun; nil: it does not run.
	since atomic.Pointer[time.Time]
}

func newPresence() *presence {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is known by its name all the same
	}
	return &presence{host: host}
}

// Begin says that this process runs.
func (rp *Reporter) Begin() {
	now := time.Now()
	rp.presence.since.Store(&now)
}

// self returns how this process is now, and false if it does not run.
func (rp *Reporter) self() (store.Dispatcher, bool) {
	since := rp.presence.since.Load()
	if since == nil {
		return store.Dispatcher{}, false
	}
	d := store.Dispatcher{
		Name: rp.o.Name, Host: rp.presence.host, Version: rp.o.Version, Roles: strings.Join(rp.o.Roles, ","),
		Workers: rp.o.Workers, InFlight: rp.o.InFlight(), Held: rp.o.SendingOff, Draining: rp.o.Draining(),
		ClockOffset: rp.clock.Offset().Milliseconds(), StartedAt: rp.clock.At(*since).UnixMilli(),
		SeenAt: rp.clock.Now(),
	}
	if rp.o.NoWorker {
		d.Workers = 0
	}
	return d, true
}

// RunPresence reports this process until ctx ends: at once, every presenceEvery, and when it begins to drain.
func (rp *Reporter) RunPresence(ctx context.Context) {
	var last store.Dispatcher
	part.Loop{
		Every: presenceEvery, AtOnce: true, Wake: rp.o.Drain, Log: rp.log,
		Failing:   "this process cannot report itself; others take it for gone",
		Recovered: "this process is seen again by others",
	}.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		d, _ := rp.self()
		if rp.quiet(d, last) {
			return 0, nil
		}
		err := rp.report(ctx, d)
		if err == nil {
			last = d
		}
		return 0, err
	})
}

// quiet says whether there is no need to report d after what was reported last.
func (rp *Reporter) quiet(d, last store.Dispatcher) bool {
	age := d.SeenAt - last.SeenAt
	last.SeenAt, last.ClockOffset, last.StartedAt = d.SeenAt, d.ClockOffset, d.StartedAt
	return rp.o.Embedded && d == last && age < quietEvery.Milliseconds()
}

func (rp *Reporter) report(ctx context.Context, d store.Dispatcher) error {
	ctx, cancel := context.WithTimeout(ctx, presenceEvery)
	defer cancel()
	return rp.o.Store.ReportDispatcher(ctx, d)
}

// Farewell writes what happened since the last time, and takes this process off the list of those that run.
// Both are only for people: the end does not wait for SQL.
func (rp *Reporter) Farewell(ctx context.Context) {
	rp.presence.since.Store(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTime)
	defer cancel()
	if err := rp.WriteActivity(ctx); err != nil {
		rp.log.Warn("what has happened last is missing in the activity", "error", err)
	}
	if err := rp.o.Store.WithdrawDispatcher(ctx, rp.o.Name, rp.clock.Now()); err != nil {
		rp.log.Warn("this process is listed as gone, though it has ended in order", "error", err)
	}
}

// Dispatchers returns the processes that run, the oldest first, this one as it is now. One that has died is
// among them for DispatcherMemory, and known by a SeenAt that is older than DispatcherSilence: that is since
// when it is gone. One that has ended in order is not.
func (rp *Reporter) Dispatchers(ctx context.Context) ([]store.Dispatcher, error) {
	list, err := rp.o.Store.Dispatchers(ctx, rp.clock.Now()-DispatcherMemory.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("list dispatchers: %w", err)
	}
	if d, runs := rp.self(); runs {
		list = slices.DeleteFunc(list, func(other store.Dispatcher) bool { return other.Name == d.Name })
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b store.Dispatcher) int {
		return cmp.Or(cmp.Compare(a.StartedAt, b.StartedAt), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}
