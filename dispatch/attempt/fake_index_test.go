package attempt

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A fakeIndex records calls, and answers as a test says.
type fakeIndex struct {
	*memq.Index
	settled  []schedule.Settlement
	released []schedule.Unlock
	// acquire and acquireErr are the reply to Acquire; err is the error of the other calls.
	acquire    []schedule.LockReply
	acquireErr error
	err        error
}

func (a *fakeIndex) Settle(_ context.Context, list []schedule.Settlement) ([]schedule.Settled, error) {
	a.settled = append(a.settled, list...)
	return make([]schedule.Settled, len(list)), a.err
}

func (a *fakeIndex) Ensure(_ context.Context, items []schedule.Item) ([]schedule.Position, error) {
	return make([]schedule.Position, len(items)), a.err
}

func (a *fakeIndex) Acquire(context.Context, []schedule.Lease) ([]schedule.LockReply, error) {
	return a.acquire, a.acquireErr
}

func (a *fakeIndex) Release(_ context.Context, list []schedule.Unlock) ([]schedule.Waiter, error) {
	a.released = append(a.released, list...)
	return make([]schedule.Waiter, len(list)), a.err
}

// runnerWithClaims returns a runner on that index that has just claimed these leases, each in a lane of its
// own.
func runnerWithClaims(t *testing.T, index *fakeIndex, ids ...string) (*Runner, []schedule.Lease) {
	t.Helper()
	index.Index = memq.New(memq.Options{})
	rn := idleRunner(t, &pastAttempts{}, index)
	c := schedule.Claimed{}
	for i, id := range ids {
		c.Leases = append(c.Leases, schedule.Lease{
			Item: schedule.Item{ID: id, Lane: int64(i + 1), Due: int64(i + 1),
				Lock: "lock-" + id}, Token: "token", Health: schedule.Answering,
		})
	}
	g := rn.slots.reserve(len(ids))
	rn.limits.endClaim(0, c.Leases, true)
	rn.slots.returnUnused(g, c.Leases)
	return rn, c.Leases
}

// within returns whether a time in Unix milliseconds lies between least and most from now, with a second of
// tolerance for a busy machine.
func within(at int64, least, most time.Duration) bool {
	wait := time.Until(time.UnixMilli(at))
	return wait >= least-time.Second && wait <= most+time.Second
}

// idleRunner returns a Runner that does not run.
func idleRunner(t *testing.T, s Store, q interface {
	Schedule
	index.Schedule
}) *Runner {
	t.Helper()
	c, log, times := new(clock.Clock), slog.New(slog.DiscardHandler), process.DefaultTimes()
	ix := index.New(index.Options{Schedule: q, Clock: c, Logger: log, Times: times})
	ac := accept.New(accept.Options{Index: ix, Clock: c, Logger: log})
	return New(Options{
		Store: s, Schedule: q, Index: ix, Accept: ac, Clock: c, Logger: log, Times: times,
		Observer: noObserver{},
		Workers:  512, LaneConcurrency: 32,
	})
}

type noObserver struct{}

func (noObserver) Settled([]store.Result, []store.Committed, int64) {}
func (noObserver) Crashed(*store.Stamped, int64)                    {}

// awaitCatchUp runs the catch-up until the index counts as answering.
func awaitCatchUp(t *testing.T, rn *Runner) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		rn.index.RunWrites(ctx)
	}()
	for rn.index.Failing() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	if rn.index.Failing() {
		t.Error("the index does not answer again")
	}
}
