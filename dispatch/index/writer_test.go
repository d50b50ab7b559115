package index

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
)

// A recordingIndex records calls, and answers as a test says.
type recordingIndex struct {
	*memq.Index
	settled  []schedule.Settlement
	released []schedule.Unlock
	releases int // calls
	moved    []schedule.Movement
	// waiters and moves are the replies to Release and Move, in turn; err fails everything.
	waiters []schedule.Waiter
	moves   []schedule.Moved
	err     error
}

func (a *recordingIndex) Settle(_ context.Context, list []schedule.Settlement) ([]schedule.Settled, error) {
	a.settled = append(a.settled, list...)
	return make([]schedule.Settled, len(list)), a.err
}

func (a *recordingIndex) Release(_ context.Context, list []schedule.Unlock) ([]schedule.Waiter, error) {
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

func (a *recordingIndex) Move(_ context.Context, list []schedule.Movement) ([]schedule.Moved, error) {
	a.moved = append(a.moved, list...)
	return a.moves[len(a.moved)-1 : len(a.moved)], nil
}

// idleIndex returns an Index that does not run.
func idleIndex(s Store, q Schedule, change ...func(*Options)) *Index {
	o := Options{
		Store: s, Schedule: q, Clock: new(clock.Clock), Logger: slog.New(slog.DiscardHandler),
		Times: process.DefaultTimes(),
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

// within returns whether a time in Unix milliseconds lies between least and most from now, with a second of
// tolerance for a busy machine.
func within(at int64, least, most time.Duration) bool {
	wait := time.Until(time.UnixMilli(at))
	return wait >= least-time.Second && wait <= most+time.Second
}

// leasesWithLocks returns leases with locks, each in a lane of its own.
func leasesWithLocks(ids ...string) (leases []schedule.Lease) {
	for i, id := range ids {
		leases = append(leases, schedule.Lease{
			Item:  schedule.Item{ID: id, Lane: int64(i + 1), Due: int64(i + 1), Lock: "lock-" + id},
			Token: "token",
		})
	}
	return leases
}

// A release tries waiters until one can be moved. Waiters that are gone leave the queue, blocked ones are
// skipped.
func TestUnlock(t *testing.T) {
	t.Parallel()
	index := &recordingIndex{
		Index: memq.New(memq.Options{}),
		waiters: []schedule.Waiter{
			{ID: "gone", Lane: 1}, {ID: "blocked", Lane: 1}, {ID: "next", Lane: 1}, {ID: "after", Lane: 1},
		},
		moves: []schedule.Moved{schedule.MovedGone, schedule.MovedBlocked, schedule.MovedIt},
	}
	e, leases := idleIndex(nil, index), leasesWithLocks("a")
	if !e.Unlock(t.Context(), &leases[0]) || len(index.released) != 3 || len(index.moved) != 3 {
		t.Fatalf("%d releases, %d moves", len(index.released), len(index.moved))
	}
	last := index.released[2]
	if last.Lock != "lock-a" || last.ID != "a" || last.Token != "token" ||
		fmt.Sprint(last.Gone, last.Skip) != "[gone] [blocked]" {
		t.Errorf("the last release is %+v", last)
	}
	if m := index.moved[2]; m.ID != "next" || m.Lane != 1 || !within(m.Due, 0, 0) {
		t.Errorf("moved %+v", m)
	}

	index = &recordingIndex{Index: memq.New(memq.Options{})} // no waiter
	e, leases = idleIndex(nil, index), leasesWithLocks("a", "b")
	if !e.Unlock(t.Context(), &leases[0]) || len(index.released) != 1 || len(index.moved) != 0 {
		t.Errorf("%d releases, %d moves", len(index.released), len(index.moved))
	}
	leases[0].Lock = ""
	if !e.Unlock(t.Context(), &leases[0]) || len(index.released) != 1 {
		t.Error("a lease without a lock is released")
	}
	leases[0].Lock = "lock-a"
	index.err = fmt.Errorf("away")
	before := index.releases
	e.Unlock(t.Context(), &schedule.Lease{}, &leases[0], &leases[1])
	if n := index.releases - before; n != 1 || len(e.missedUnlocks) != 2 {
		t.Errorf("an index that does not answer is called %d times; %d locks are remembered",
			n, len(e.missedUnlocks))
	}
	e.Unlock(t.Context(), &leases[0]) // as if many are put back one after another
	if n := index.releases - before; n != 1 || len(e.missedUnlocks) != 3 {
		t.Errorf("an index that is known not to answer: %d calls in all; %d locks are remembered",
			n, len(e.missedUnlocks))
	}
}

// Settlements that the index did not get are remembered, and with them the items that are still open.
func TestSettleRemembersWhatTheIndexMissed(t *testing.T) {
	t.Parallel()
	list := []schedule.Settlement{
		{Item: schedule.Item{ID: "a"}, Outcome: schedule.Reschedule},
		{Item: schedule.Item{ID: "b"}, Outcome: schedule.Divert},
		{Item: schedule.Item{ID: "c"}, Outcome: schedule.Ack},
		{Item: schedule.Item{ID: "d"}, Outcome: schedule.Bury},
	}
	index := &recordingIndex{Index: memq.New(memq.Options{}), err: fmt.Errorf("away")}
	e := idleIndex(nil, index)
	for round := range 2 { // the second time the index is known to be silent, and is not called
		if e.Settle(t.Context(), list) {
			t.Error("the index has all settlements")
		}
		n := round + 1
		if len(index.settled) != len(list) || len(e.missedSettlements) != n*len(list) ||
			len(e.missedItems) != n*2 {
			t.Errorf("the index got %d, %d are remembered, %d are to be ensured",
				len(index.settled), len(e.missedSettlements), len(e.missedItems))
		}
	}
	index = &recordingIndex{Index: memq.New(memq.Options{})}
	e = idleIndex(nil, index)
	many := make([]schedule.Settlement, schedule.MaxBatch+1)
	if !e.Settle(t.Context(), many) || len(index.settled) != len(many) ||
		len(e.missedSettlements) != 0 {
		t.Errorf("the index got %d of %d", len(index.settled), len(many))
	}
	index.err = fmt.Errorf("away")
	if e.Settle(t.Context(), many) {
		t.Error("the index has all settlements")
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
