package index

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
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
	// waiters and moves answer each Release and Move in turn; err fails everything.
	waiters []schedule.Waiter
	moves   []schedule.Moved
	err     error
}

func (a *askedIndex) Settle(_ context.Context, list []schedule.Settlement) ([]schedule.Settled, error) {
	a.settled = append(a.settled, list...)
	return make([]schedule.Settled, len(list)), a.err
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

// idle is an Index that does not run, on a store and an index.
func idle(s Store, q Schedule, change ...func(*Options)) *Index {
	o := Options{
		Store: s, Schedule: q, Clock: new(clock.Clock), Logger: slog.New(slog.DiscardHandler),
		Times: part.UsualTimes(),
	}
	for _, c := range change {
		c(&o)
	}
	ix := New(o)
	ix.Listen(noListener{}, nothingToUndo{})
	return ix
}

type noListener struct{}

func (noListener) NewGeneration(int64)                    {}
func (noListener) SettingsChanged([]schedule.LaneSetting) {}
func (noListener) Wake(int)                               {}

type nothingToUndo struct{}

func (nothingToUndo) Pending() bool             { return false }
func (nothingToUndo) Undo(context.Context) bool { return true }

// within says whether a time in Unix milliseconds lies so far from now on, a second more or less for a
// busy machine.
func within(at int64, least, most time.Duration) bool {
	wait := time.Until(time.UnixMilli(at))
	return wait >= least-time.Second && wait <= most+time.Second
}

// locked are leases with locks, each in a lane of its own.
func locked(ids ...string) (leases []schedule.Lease) {
	for i, id := range ids {
		leases = append(leases, schedule.Lease{
			Item:  schedule.Item{ID: id, Lane: int64(i + 1), Due: int64(i + 1), Lock: "lock-" + id},
			Token: "token",
		})
	}
	return leases
}

// Whose turn it is after a release is asked for until one can be moved: those that are gone are
// forgotten, those that are held are passed over.
func TestUnlock(t *testing.T) {
	t.Parallel()
	index := &askedIndex{
		Index: memq.New(memq.Options{}),
		waiters: []schedule.Waiter{{ID: "gone", Lane: 1}, {ID: "held", Lane: 1}, {ID: "next", Lane: 1},
			{ID: "after", Lane: 1}},
		moves: []schedule.Moved{schedule.MovedGone, schedule.MovedBlocked, schedule.MovedIt},
	}
	e, leases := idle(nil, index), locked("a")
	if !e.Unlock(t.Context(), &leases[0]) || len(index.released) != 3 || len(index.moved) != 3 {
		t.Fatalf("%d releases, %d moves", len(index.released), len(index.moved))
	}
	last := index.released[2]
	if last.Lock != "lock-a" || last.ID != "a" || last.Token != "token" ||
		fmt.Sprint(last.Gone, last.Skip) != "[gone] [held]" {
		t.Errorf("the last release is %+v", last)
	}
	if m := index.moved[2]; m.ID != "next" || m.Lane != 1 || !within(m.Due, 0, 0) {
		t.Errorf("moved %+v", m)
	}

	index = &askedIndex{Index: memq.New(memq.Options{})} // no waiter
	e, leases = idle(nil, index), locked("a", "b")
	if !e.Unlock(t.Context(), &leases[0]) || len(index.released) != 1 || len(index.moved) != 0 {
		t.Errorf("%d releases, %d moves", len(index.released), len(index.moved))
	}
	leases[0].Lock = ""
	if !e.Unlock(t.Context(), &leases[0]) || len(index.released) != 1 {
		t.Error("what has no lock is released")
	}
	leases[0].Lock = "lock-a"
	index.err = fmt.Errorf("away")
	before := index.releases
	e.Unlock(t.Context(), &schedule.Lease{}, &leases[0], &leases[1])
	if n := index.releases - before; n != 1 || len(e.missedUnlocks) != 2 {
		t.Errorf("an index that does not answer is asked %d times; %d locks are remembered",
			n, len(e.missedUnlocks))
	}
	e.Unlock(t.Context(), &leases[0]) // as when many are put back one after the other
	if n := index.releases - before; n != 1 || len(e.missedUnlocks) != 3 {
		t.Errorf("an index that is known not to answer: asked %d times in all; %d locks are remembered",
			n, len(e.missedUnlocks))
	}
}

// What the index did not hear of is remembered, and with it what it should hold: what goes on, not what
// has ended.
func TestSettleIndexRemembers(t *testing.T) {
	t.Parallel()
	list := []schedule.Settlement{
		{Item: schedule.Item{ID: "a"}, Outcome: schedule.Reschedule}, {Item: schedule.Item{ID: "b"},
			Outcome: schedule.Divert},
		{Item: schedule.Item{ID: "c"}, Outcome: schedule.Ack}, {Item: schedule.Item{ID: "d"},
			Outcome: schedule.Bury},
	}
	index := &askedIndex{Index: memq.New(memq.Options{}), err: fmt.Errorf("away")}
	e := idle(nil, index)
	for asked := range 2 { // the second time the index is known to be silent, and is not asked
		if e.Settle(t.Context(), list) {
			t.Error("it was heard")
		}
		n := asked + 1
		if len(index.settled) != len(list) || len(e.missedSettlements) != n*len(list) ||
			len(e.missedItems) != n*2 {
			t.Errorf("%d told, %d remembered, %d to be ensured", len(index.settled), len(e.missedSettlements),
				len(e.missedItems))
		}
	}
	index = &askedIndex{Index: memq.New(memq.Options{})}
	e = idle(nil, index)
	many := make([]schedule.Settlement, schedule.MaxBatch+1)
	if !e.Settle(t.Context(), many) || len(index.settled) != len(many) ||
		len(e.missedSettlements) != 0 {
		t.Errorf("%d of %d told", len(index.settled), len(many))
	}
	index.err = fmt.Errorf("away")
	if e.Settle(t.Context(), many) {
		t.Error("it was heard")
	}
}

func TestLockIDsBelongToTheirProject(t *testing.T) {
	t.Parallel()
	if lockID("a", "") != "" {
		t.Error("no key has a lock")
	}
	seen := map[string]string{}
	for _, p := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"a", "b"}, {"b", "a"}, {"a", "bc "}} {
		id := lockID(p[0], p[1])
		if len(id) != 16 {
			t.Errorf("%q is %d characters", id, len(id))
		}
		if other, taken := seen[id]; taken {
			t.Errorf("%v and %s share a lock", p, other)
		}
		seen[id] = p[0] + "/" + p[1]
	}
}
