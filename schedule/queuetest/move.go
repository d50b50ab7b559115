package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var moveChecks = []check{
	{"GivesAnotherDueTime", moveDue},
	{"OfWhatIsAbsent", moveAbsent},
	{"IsRememberedByALease", moveLeased},
	{"IsRememberedByAReapedLease", moveReaped},
	{"InAHeldLaneMovesAllTheSame", moveHeld},
}

func moveDue(f *fixture) {
	item := f.item(0, time.Hour)
	f.ensure(item)
	for range 2 {
		f.move(item.Ref(), item.Due+3600_000, schedule.MovedIt)
		f.expectAt(item.Ref(), item.Due+3600_000)
	}
	f.move(item.Ref(), 0, schedule.MovedIt)
	l := f.takeOne(item.ID)
	f.ack([]schedule.Lease{l}, schedule.NoSignal)

	ready := f.items(1, 6)
	f.ensure(ready...)
	leases := f.take()
	f.expectPlace(ready[5].Ref(), schedule.Ready)
	due := f.Now() + 3600_000
	f.move(ready[5].Ref(), due, schedule.MovedIt)
	f.expectAt(ready[5].Ref(), due)
	f.ack(leases, schedule.NoSignal)
	f.takeOne(ready[4].ID)
	f.quiet()
}

func moveAbsent(f *fixture) {
	f.move(schedule.Ref{ID: f.id(), Lane: f.lanes[0]}, 0, schedule.MovedGone)
	l := f.one()
	f.ack([]schedule.Lease{l}, schedule.NoSignal)
	f.move(l.Ref(), 0, schedule.MovedGone)
	if s := f.stats(); s.Delayed+s.Ready+s.Leased != 0 {
		f.Fatalf("moving what is absent left something: %+v", s)
	}
}

func moveLeased(f *fixture) {
	now := f.Now()
	near, far := now+3600_000, now+2*3600_000
	for _, c := range []struct {
		name             string
		outcome          schedule.Outcome
		moved, due, want int64
	}{
		{"an earlier movement wins", schedule.Reschedule, near, far, near},
		{"a later movement loses", schedule.Reschedule, far, near, near},
		{"likewise after a divert", schedule.Divert, near, far, near},
		{"after an ack it is due again", schedule.Ack, near, 0, near},
		{"after a bury it is due again", schedule.Bury, near, 0, near},
	} {
		l := f.one()
		for range 2 {
			f.move(l.Ref(), c.moved, schedule.MovedHeld)
		}
		f.expectPlace(l.Ref(), schedule.Leased)
		s := settled(l, c.outcome)
		s.Due = c.due
		f.expectSettled(s, schedule.Applied)
		if found := f.find(l.Ref()); found.Place != schedule.Delayed || found.Due != c.want {
			f.Fatalf("%s: it is %s, due %d, want delayed, due %d", c.name, found.Place, found.Due, c.want)
		}
		// The movement is used up.
		f.move(l.Ref(), 0, schedule.MovedIt)
		f.ack([]schedule.Lease{f.takeOne(l.ID)}, schedule.NoSignal)
		f.expectPlace(l.Ref(), schedule.Absent)
	}
}

func moveReaped(f *fixture) {
	l := f.one()
	f.move(l.Ref(), 0, schedule.MovedHeld)
	f.pass(31 * time.Second)
	// The movement's time has passed, so that not even the jitter of a reap is waited for.
	if c := f.claim(f.wide()); c.Reaped != 1 || len(c.Leases) != 1 {
		f.Fatalf("reaped %d, claimed %d; want 1 and 1", c.Reaped, len(c.Leases))
	}
}

func moveHeld(f *fixture) {
	item := f.item(0, 2*time.Hour)
	f.ensure(item)
	until := f.Now() + 3600_000
	f.no(f.Index.SetLanes(f.ctx, []schedule.LaneSetting{{Lane: item.Lane, PausedUntil: until, Version: 1}}))
	f.move(item.Ref(), 0, schedule.MovedHeld)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("%v was claimed from a paused lane", idsOf(got))
	}
	f.pass(time.Hour)
	f.takeOne(item.ID)
}
