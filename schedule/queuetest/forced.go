package queuetest

import (
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var forcedChecks = []check{
	{"GoesFirst", forcedFirst},
	{"GoesFirstAmongWhatIsPromotedAtOnce", forcedFirstAtOnce},
	{"IgnoresAHold", forcedIgnoresHold},
	{"IsKeptByAPause", forcedAndPause},
	{"IsKeptByTheConcurrency", forcedAndConcurrency},
	{"ByAMovement", forcedByMovement},
	{"ByAMovementOfALease", forcedByMovementOfLease},
	{"AsTheSettlementSays", forcedAsSettled},
	{"SurvivesTheEndOfItsLease", forcedSurvivesReap},
	{"IsCarried", forcedIsCarried},
	{"LeavesAHeldLaneWithoutATrace", forcedLeavesHeldLane},
}

// press returns a new forced item of the i-th lane that is due now.
func (f *fixture) press(i int) schedule.Item {
	item := f.item(i, 0)
	item.Forced = true
	return item
}

// expectIDs claims and wants exactly those items, in that order.
func (f *fixture) expectIDs(req schedule.ClaimRequest, want ...schedule.Item) []schedule.Lease {
	f.Helper()
	leases := f.claim(req).Leases
	got, ids := idsOf(leases), make([]string, len(want))
	for i, item := range want {
		ids[i] = item.ID
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		f.Fatalf("claimed %v, want %v", got, ids)
	}
	for i, l := range leases {
		if l.Item != want[i] {
			f.Fatalf("claimed %+v, want %+v", l.Item, want[i])
		}
	}
	return leases
}

// forcedFirst: what is forced goes before what has waited for longer, each kind in the order of due times, fresh ones first.
func forcedFirst(f *fixture) {
	waiting := f.items(0, 12)
	for i := range waiting[:6] {
		waiting[i].Retry = true
	}
	f.ensure(waiting...)
	empty := f.wide()
	empty.Max = 0
	f.claim(empty)
	first, second, third := f.press(0), f.press(0), f.press(0)
	first.Retry, third.Due = true, third.Due-1000
	f.ensure(first, second, third)
	req := f.wide()
	req.Max = 2
	leases := f.expectIDs(req, third, second)
	req = f.wide()
	req.Max = 1
	leases = append(leases, f.expectIDs(req, first)...)
	f.ack(leases, schedule.Answered)
	// The share of fresh ones and retries goes on as if they had not been.
	req = f.wide()
	req.Max = 4
	f.expectIDs(req, waiting[6], waiting[7], waiting[8], waiting[0])
	f.quiet()
}

// forcedFirstAtOnce: likewise where nothing was ready before.
func forcedFirstAtOnce(f *fixture) {
	early, late := f.item(0, -time.Minute), f.item(0, -time.Second)
	late.Retry = true
	forced, again := f.press(0), f.press(0)
	again.Retry = true
	f.ensure(early, late, again, forced)
	f.expectIDs(f.wide(), forced, again, early, late)
	f.quiet()
}

func forcedIgnoresHold(f *fixture) {
	held := f.holdLane(0, time.Minute)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("%v were claimed of a held lane", idsOf(got))
	}
	forced, later := f.press(0), f.item(0, 20*time.Second)
	later.Forced = true
	f.ensure(forced, later)
	c := f.claim(f.wide())
	if len(c.Leases) != 1 || c.Leases[0].Item != forced {
		f.Fatalf("claimed %+v of a held lane, want %s alone", c.Leases, forced.ID)
	}
	if c.More || !c.Waiting || c.Next == 0 || c.Next > later.Due {
		f.Fatalf("a held lane beside what is forced: %+v", c)
	}
	if s := f.stats(); s.BlockedLanes != 1 || s.RunnableLanes != 0 {
		f.Fatalf("%d lanes are blocked and %d runnable, want 1 and 0", s.BlockedLanes, s.RunnableLanes)
	}
	f.pass(21 * time.Second)
	f.takeOne(later.ID)
	f.pass(40 * time.Second)
	f.takeAmong(held.ID)
	f.quiet()
}

// takeAmong claims and wants the item to be among the leases.
func (f *fixture) takeAmong(id string) {
	f.Helper()
	for _, l := range f.take() {
		if l.ID == id {
			return
		}
	}
	f.Fatalf("%s was not claimed", id)
}

func forcedAndPause(f *fixture) {
	until := f.Now() + 60_000
	f.no(f.Index.SetLanes(f.ctx, []schedule.LaneSetting{{Lane: f.lanes[0], PausedUntil: until, Version: 1}}))
	// The hold outlasts the pause, and does not keep what is forced.
	hold := schedule.Settlement{Item: f.item(0, 0), Token: "t", Outcome: schedule.Ack, Won: true, HoldUntil: until + 60_000}
	f.expectSettled(hold, schedule.Applied)
	forced, ordinary := f.press(0), f.item(0, 0)
	f.ensure(forced, ordinary)
	for range 2 {
		c := f.claim(f.wide())
		if len(c.Leases) != 0 || c.More || c.Next == 0 || c.Next > until {
			f.Fatalf("a paused lane with something forced: %+v", c)
		}
	}
	f.move(forced.Ref(), 0, schedule.MovedHeld)
	f.pass(time.Minute)
	f.takeOne(forced.ID)
	f.pass(time.Minute)
	f.takeAmong(ordinary.ID)
	f.quiet()
}

func forcedAndConcurrency(f *fixture) {
	f.ensure(f.items(0, 9)...)
	leases := f.take()
	forced := f.press(0)
	f.ensure(forced)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("%v were claimed beyond the concurrency", idsOf(got))
	}
	f.ack(leases[:1], schedule.NoSignal)
	f.takeOne(forced.ID)
	f.quiet()
}

func forcedByMovement(f *fixture) {
	f.ensure(f.items(0, 9)...)
	leases := f.take()
	delayed, ready := f.item(0, time.Hour), f.item(0, 0)
	delayed.Retry = true
	f.ensure(delayed, ready)
	f.take()
	for _, item := range []schedule.Item{ready, delayed} {
		for range 2 {
			item.Forced, item.Due = true, f.Now()
			f.moveForced(item.Ref(), item.Due, schedule.MovedIt)
			if got := f.find(item.Ref()); got.Item != item {
				f.Fatalf("a movement that forces left %+v, want %+v", got.Item, item)
			}
		}
	}
	// Another movement leaves it forced.
	f.move(delayed.Ref(), f.Now(), schedule.MovedIt)
	for i, id := range []string{ready.ID, delayed.ID} {
		f.ack(leases[i:i+1], schedule.NoSignal)
		if l := f.takeOne(id); !l.Forced {
			f.Fatalf("%s is not forced any more", id)
		}
	}
	f.moveForced(schedule.Ref{ID: f.id(), Lane: f.lanes[0]}, 0, schedule.MovedGone)
	// In a held lane it is not held.
	f.reset()
	item := f.holdLane(0, time.Hour)
	f.move(item.Ref(), 0, schedule.MovedHeld)
	f.moveForced(item.Ref(), 0, schedule.MovedIt)
	f.move(item.Ref(), 0, schedule.MovedIt)
	f.takeOne(item.ID)
	f.quiet()
}

func (f *fixture) moveForced(ref schedule.Ref, due int64, want schedule.Moved) {
	f.Helper()
	got, err := f.Index.Move(f.ctx, []schedule.Movement{{Ref: ref, Due: due, Forced: true}})
	f.no(err)
	if len(got) != 1 || got[0] != want {
		f.Fatalf("move of %s: %v, want %d", ref.ID, got, want)
	}
}

// forcedByMovementOfLease: a lease remembers that, too, whichever of the two times wins.
func forcedByMovementOfLease(f *fixture) {
	for _, o := range []schedule.Outcome{schedule.Ack, schedule.Reschedule, schedule.Divert, schedule.Bury} {
		for _, after := range []time.Duration{time.Minute, 3 * time.Minute} {
			l := f.one()
			s := settled(l, o)
			s.Due = f.Now() + 120_000
			want := s.Due
			at := f.Now() + after.Milliseconds()
			if at < want || o == schedule.Ack || o == schedule.Bury {
				want = at
			}
			f.moveForced(l.Ref(), at, schedule.MovedHeld)
			f.move(l.Ref(), at+60_000, schedule.MovedHeld)
			if got := f.find(l.Ref()); got.Forced {
				f.Fatalf("the lease itself became forced: %+v", got)
			}
			f.expectSettled(s, schedule.Applied)
			if got := f.find(l.Ref()); got.Due != want || !got.Forced {
				f.Fatalf("outcome %d left %+v, want it forced and due at %d", o, got, want)
			}
			f.moveForced(l.Ref(), 0, schedule.MovedIt)
			again := settled(f.takeOne(l.ID), schedule.Reschedule)
			again.Due, again.Forced = f.Now(), false
			f.expectSettled(again, schedule.Applied)
			last := f.takeOne(l.ID)
			if last.Forced {
				f.Fatalf("what was remembered of one lease is remembered of the next")
			}
			f.ack([]schedule.Lease{last}, schedule.NoSignal)
		}
	}
	f.quiet()
}

func forcedAsSettled(f *fixture) {
	for _, o := range []schedule.Outcome{schedule.Reschedule, schedule.Divert} {
		for _, forced := range []bool{true, false, true} {
			l := f.one()
			s := settled(l, o)
			s.Due, s.Forced = f.Now()+1000, forced
			f.expectSettled(s, schedule.Applied)
			if got := f.find(l.Ref()); got.Forced != forced {
				f.Fatalf("outcome %d, forced %t, left %+v", o, forced, got)
			}
			s.Token, s.Won, s.Forced = "other", true, !forced
			f.expectSettled(s, schedule.Applied)
			if got := f.find(l.Ref()); got.Forced == forced {
				f.Fatalf("the winner's outcome %d, forced %t, left %+v", o, !forced, got)
			}
			_, err := f.Index.Cancel(f.ctx, []schedule.Ref{l.Ref()})
			f.no(err)
		}
	}
	f.quiet()
}

func forcedSurvivesReap(f *fixture) {
	own, moved := f.press(0), f.item(0, 0)
	f.ensure(own, moved)
	f.take()
	f.moveForced(moved.Ref(), 0, schedule.MovedHeld)
	f.pass(31 * time.Second)
	f.claim(f.wide())
	for _, item := range []schedule.Item{own, moved} {
		if got := f.find(item.Ref()); !got.Forced {
			f.Fatalf("after its lease has ended: %+v", got)
		}
	}
	f.quiet()
}

// forcedIsCarried: in every place, and through an adoption.
func forcedIsCarried(f *fixture) {
	var items []schedule.Item
	for i := range 4 {
		item := f.press(i)
		item.Retry = i%2 == 1
		if i > 1 {
			item.Lock = "order_0001"
		}
		items = append(items, item)
	}
	f.ensure(items...)
	for _, want := range items {
		if got := f.find(want.Ref()); got.Item != want {
			f.Fatalf("delayed: %+v, want %+v", got, want)
		}
	}
	// What is present stays as it is.
	plain := items[0]
	plain.Forced = false
	f.ensure(plain)
	for _, l := range f.take() {
		if !l.Forced {
			f.Fatalf("claimed %+v, which was forced", l)
		}
		f.expectSettled(settled(l, schedule.Divert), schedule.Applied)
	}
	running := f.press(4)
	f.no(f.Index.Adopt(f.ctx, []schedule.Adoption{{Item: running, Token: "t", Until: f.Now() + 30_000}}))
	if got := f.find(running.Ref()); got.Item != running || got.Place != schedule.Leased {
		f.Fatalf("adopted: %+v, want %+v", got, running)
	}
	f.quiet()
}

// forcedLeavesHeldLane: when what is forced goes otherwise than by a claim, the lane is held as before.
func forcedLeavesHeldLane(f *fixture) {
	f.holdLane(0, time.Minute)
	forced := f.press(0)
	f.ensure(forced)
	empty := f.wide()
	empty.Max = 0
	if c := f.claim(empty); !c.More {
		f.Fatalf("something forced is ready: %+v", c)
	}
	_, err := f.Index.Cancel(f.ctx, []schedule.Ref{forced.Ref()})
	f.no(err)
	if s := f.stats(); s.BlockedLanes != 1 || s.RunnableLanes != 0 {
		f.Fatalf("%d lanes are blocked and %d runnable, want 1 and 0", s.BlockedLanes, s.RunnableLanes)
	}
	if c := f.claim(f.wide()); len(c.Leases) != 0 || c.More {
		f.Fatalf("a held lane: %+v", c)
	}
	f.pass(61 * time.Second)
	if got := f.take(); len(got) != 1 {
		f.Fatalf("after the hold %v were claimed", idsOf(got))
	}
	f.quiet()
}
