package dispatch

import (
	"context"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
)

// An askedIndex remembers what it is told, and answers what a test says.
type askedIndex struct {
	*memq.Index
	settled  []schedule.Settlement
	released []schedule.Unlock
	releases int // calls
	moved    []schedule.Movement
	// acquire and acquireErr answer an Acquire, waiters and moves each Release and Move in turn; err fails
	// everything.
	acquire    []schedule.LockReply
	acquireErr error
	waiters    []schedule.Waiter
	moves      []schedule.Moved
	err        error
}

func (a *askedIndex) Settle(_ context.Context, list []schedule.Settlement) ([]schedule.Settled, error) {
	a.settled = append(a.settled, list...)
	return make([]schedule.Settled, len(list)), a.err
}

func (a *askedIndex) Acquire(context.Context, []schedule.LockRequest) ([]schedule.LockReply, error) {
	return a.acquire, a.acquireErr
}

func (a *askedIndex) Release(_ context.Context, list []schedule.Unlock) ([]schedule.Waiter, error) {
	a.released = append(a.released, list...)
	a.releases++
	if a.err != nil {
		return nil, a.err
	}
	if n := len(a.released); n <= len(a.waiters) {
		return a.waiters[n-1 : n], nil
	}
	return make([]schedule.Waiter, len(list)), nil
}

func (a *askedIndex) Move(_ context.Context, list []schedule.Movement) ([]schedule.Moved, error) {
	a.moved = append(a.moved, list...)
	return a.moves[len(a.moved)-1 : len(a.moved)], nil
}

// claimedBy is an engine on that index that has just claimed these leases, each in a lane of its own.
func claimedBy(t *testing.T, index *askedIndex, ids ...string) (*Engine, []schedule.Lease) {
	t.Helper()
	index.Index = memq.New(memq.Options{})
	e := idleEngine(t, &pastAttempts{}, index)
	c := schedule.Claimed{}
	for i, id := range ids {
		c.Leases = append(c.Leases, schedule.Lease{
			Item: schedule.Item{ID: id, Lane: int64(i + 1), Due: int64(i + 1),
				Lock: "lock-" + id}, Token: "token", Health: schedule.Answering,
		})
	}
	g := e.slots.reserve(len(ids))
	e.limits.endClaim(0, c.Leases, true)
	e.slots.settle(g, c.Leases)
	return e, c.Leases
}

// within says whether a time in Unix milliseconds lies so far from now on, a second more or less for a
// busy machine.
func within(at int64, least, most time.Duration) bool {
	wait := time.Until(time.UnixMilli(at))
	return wait >= least-time.Second && wait <= most+time.Second
}

// idleEngine is an engine that does not run.
func idleEngine(t *testing.T, s Store, index Schedule) *Engine {
	t.Helper()
	e, err := New(Options{Store: s, Schedule: index, Sender: sendsNothing{}, Keyring: new(Keyring)})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
