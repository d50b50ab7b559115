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

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// DispatcherMemory is how long a process that died is listed.
	DispatcherMemory = 10 * time.Minute

	// heartbeatEvery is how often a process writes its heartbeat. unchangedEvery applies to an embedded
	// process without changes: no other process reads it, and fewer writes spare the disk.
	heartbeatEvery = 5 * time.Second
	unchangedEvery = time.Minute
	// deregisterTime bounds Deregister.
	deregisterTime = 2 * time.Second
)

// A presence is what this process reports about itself.
type presence struct {
	host string
	// since is when Begin was called; nil: the process does not run.
	since atomic.Pointer[time.Time]
}

func newPresence() *presence {
	host, err := os.Hostname()
	if err != nil {
		host = "" // the name identifies the process
	}
	return &presence{host: host}
}

// Begin marks this process as running.
func (rp *Reporter) Begin() {
	now := time.Now()
	rp.presence.since.Store(&now)
}

// current returns the heartbeat of this process, and false if it does not run.
func (rp *Reporter) current() (store.Dispatcher, bool) {
	since := rp.presence.since.Load()
	if since == nil {
		return store.Dispatcher{}, false
	}
	d := store.Dispatcher{
		Name: rp.o.Name, Host: rp.presence.host, Version: rp.o.Version, Roles: strings.Join(rp.o.Roles, ","),
		Workers: rp.o.Workers, InFlight: rp.o.InFlight(),
		SendingOff: rp.o.SendingOff, Draining: rp.o.Draining(),
		ClockOffset: rp.clock.Offset().Milliseconds(), StartedAt: rp.clock.At(*since).UnixMilli(),
		SeenAt: rp.clock.Now(),
	}
	if rp.o.NoWorker {
		d.Workers = 0
	}
	return d, true
}

// RunPresence writes heartbeats until ctx ends: at once, every heartbeatEvery, and when the process begins to
// drain.
func (rp *Reporter) RunPresence(ctx context.Context) {
	var last store.Dispatcher
	process.Loop{
		Every: heartbeatEvery, AtOnce: true, Wake: rp.o.Drain, Log: rp.log,
		Failing:   "writing the heartbeat failed, other processes consider this one lost",
		Recovered: "heartbeat is written again",
	}.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		d, _ := rp.current()
		if rp.unchanged(d, last) {
			return 0, nil
		}
		err := rp.report(ctx, d)
		if err == nil {
			last = d
		}
		return 0, err
	})
}

// unchanged reports whether heartbeat d can be skipped after the heartbeat last.
func (rp *Reporter) unchanged(d, last store.Dispatcher) bool {
	age := d.SeenAt - last.SeenAt
	last.SeenAt, last.ClockOffset, last.StartedAt = d.SeenAt, d.ClockOffset, d.StartedAt
	return rp.o.Embedded && d == last && age < unchangedEvery.Milliseconds()
}

func (rp *Reporter) report(ctx context.Context, d store.Dispatcher) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatEvery)
	defer cancel()
	return rp.o.Store.ReportDispatcher(ctx, d)
}

// Deregister writes the remaining activity, and removes this process from the list. Both serve people only,
// so the shutdown does not wait longer than deregisterTime for SQL.
func (rp *Reporter) Deregister(ctx context.Context) {
	rp.presence.since.Store(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deregisterTime)
	defer cancel()
	if err := rp.WriteActivity(ctx); err != nil {
		rp.log.Warn("could not write the last activity at shutdown", "error", err)
	}
	if err := rp.o.Store.WithdrawDispatcher(ctx, rp.o.Name, rp.clock.Now()); err != nil {
		rp.log.Warn("could not deregister at shutdown", "error", err)
	}
}

// Dispatchers returns the running processes, the oldest first, this one with its current state. A process
// that died is listed for DispatcherMemory; its SeenAt is older than control.DispatcherSilence, and is the
// time of its end. A process that shut down in order is not listed.
func (rp *Reporter) Dispatchers(ctx context.Context) ([]store.Dispatcher, error) {
	list, err := rp.o.Store.Dispatchers(ctx, rp.clock.Now()-DispatcherMemory.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("list dispatchers: %w", err)
	}
	if d, runs := rp.current(); runs {
		list = slices.DeleteFunc(list, func(other store.Dispatcher) bool { return other.Name == d.Name })
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b store.Dispatcher) int {
		return cmp.Or(cmp.Compare(a.StartedAt, b.StartedAt), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}

// ProcessPlace returns the place of this process among those that Dispatchers lists, from 0, and their
// number. A process that does not run is the first one.
func (rp *Reporter) ProcessPlace(ctx context.Context) (place, of int, err error) {
	list, err := rp.Dispatchers(ctx)
	if err != nil {
		return 0, 0, err
	}
	own := func(d store.Dispatcher) bool { return d.Name == rp.o.Name }
	return max(slices.IndexFunc(list, own), 0), max(len(list), 1), nil
}
