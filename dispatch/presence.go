package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// DispatcherRows keeps what processes say of themselves.
type DispatcherRows interface {
	// ReportDispatcher writes down how a process is now, in place of what it said before.
	ReportDispatcher(ctx context.Context, d store.Dispatcher) error
	// WithdrawDispatcher takes a process that ends off the list at now; one that is not known is as good.
	WithdrawDispatcher(ctx context.Context, name string, now int64) error
	// LastWorker is when a process with workers was last seen, also one that has ended; zero: there never was
	// one.
	LastWorker(ctx context.Context) (int64, error)
	// Dispatchers returns the processes that have reported themselves at that time or later.
	Dispatchers(ctx context.Context, seenSince int64) ([]store.Dispatcher, error)
	// PurgeDispatchers removes up to limit processes that have not reported themselves for long, and returns how many.
	PurgeDispatchers(ctx context.Context, now int64, limit int) (int, error)
}

const (
	// DispatcherSilence is for how long a process that runs may not be heard of. One that has not reported itself for longer has died, or
	// cannot reach SQL.
	DispatcherSilence = 30 * time.Second
	// DispatcherMemory is for how long one that has not ended in order is told of.
	DispatcherMemory = 10 * time.Minute

	// presenceEvery is how often a process reports itself, quietEvery how often one does that has the index alone and of which nothing has
	// changed: it is to leave the disk in peace, and nobody else asks.
	presenceEvery = 5 * time.Second
	quietEvery    = time.Minute
	// farewellTime bounds what is written at the end.
	farewellTime = 2 * time.Second
)

// A presence is what this process says of itself.
type presence struct {
	host string
	// since is when Run has begun; nil: it does not run.
	since atomic.Pointer[time.Time]
}

func newPresence() *presence {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is known by its name all the same
	}
	return &presence{host: host}
}

// self returns how this process is now, and false if it does not run.
func (e *Engine) self() (store.Dispatcher, bool) {
	since := e.presence.since.Load()
	if since == nil {
		return store.Dispatcher{}, false
	}
	d := store.Dispatcher{
		Name: e.o.Name, Host: e.presence.host, Version: e.o.Version, Roles: strings.Join(e.o.Roles, ","),
		Workers: e.o.Workers, InFlight: e.slots.onWire(), Held: e.o.Hold, Draining: e.draining.Load(),
		ClockOffset: e.clock.offset().Milliseconds(), StartedAt: e.clock.at(*since).UnixMilli(), SeenAt: e.clock.now(),
	}
	if e.o.NoWorker {
		d.Workers = 0
	}
	return d, true
}

// runPresence reports this process until ctx ends: at once, every presenceEvery, and when it begins to drain.
func (e *Engine) runPresence(ctx context.Context) {
	ticker := time.NewTicker(presenceEvery)
	defer ticker.Stop()
	drain := e.drain
	var last store.Dispatcher
	var failing complaint
	for {
		d, _ := e.self()
		if !e.quiet(d, last) {
			err := e.report(ctx, d)
			switch {
			case err == nil && failing.over():
				e.log.Info("this process is seen again by others")
			case err != nil && ctx.Err() == nil && failing.due(time.Now()):
				e.log.Warn("this process cannot report itself; others take it for gone", "error", err)
			}
			if err == nil {
				last = d
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-drain:
			drain = nil
		}
	}
}

// quiet says whether there is no need to report d after what was reported last.
func (e *Engine) quiet(d, last store.Dispatcher) bool {
	age := d.SeenAt - last.SeenAt
	last.SeenAt, last.ClockOffset, last.StartedAt = d.SeenAt, d.ClockOffset, d.StartedAt
	return e.o.Alone && d == last && age < quietEvery.Milliseconds()
}

func (e *Engine) report(ctx context.Context, d store.Dispatcher) error {
	ctx, cancel := context.WithTimeout(ctx, presenceEvery)
	defer cancel()
	return e.o.Store.ReportDispatcher(ctx, d)
}

// farewell writes what happened since the last time, and takes this process off the list of those that run. Both are only for people: the
// end does not wait for SQL.
func (e *Engine) farewell(ctx context.Context) {
	e.presence.since.Store(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTime)
	defer cancel()
	if err := e.writeActivity(ctx); err != nil {
		e.log.Warn("what has happened last is missing in the activity", "error", err)
	}
	if err := e.o.Store.WithdrawDispatcher(ctx, e.o.Name, e.clock.now()); err != nil {
		e.log.Warn("this process is listed as gone, though it has ended in order", "error", err)
	}
}

// Dispatchers returns the processes that run, the oldest first, this one as it is now. One that has died is among them for
// DispatcherMemory, and known by a SeenAt that is older than DispatcherSilence: that is since when it is gone. One that has ended in order
// is not.
func (e *Engine) Dispatchers(ctx context.Context) ([]store.Dispatcher, error) {
	list, err := e.o.Store.Dispatchers(ctx, e.clock.now()-DispatcherMemory.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("list dispatchers: %w", err)
	}
	if d, runs := e.self(); runs {
		list = slices.DeleteFunc(list, func(other store.Dispatcher) bool { return other.Name == d.Name })
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b store.Dispatcher) int {
		return cmp.Or(cmp.Compare(a.StartedAt, b.StartedAt), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}
