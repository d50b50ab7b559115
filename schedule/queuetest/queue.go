package queuetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var queueChecks = []check{
	{"EnsureAddsOnlyWhatIsAbsent", ensureAdds},
	{"EnsureAnswersDuplicatesInOneCall", ensureDuplicates},
	{"EmptyCalls", emptyCalls},
	{"CancelRemovesWhatIsNotLeased", cancelRemoves},
	{"MoveGivesAnotherDueTime", moveDue},
}

func ensureAdds(f *fixture) {
	item := f.item(0, time.Hour)
	if got := f.ensure(item)[0]; got != (schedule.Position{}) {
		f.Fatalf("the first ensure answered %v, want absent", got)
	}
	other := item
	other.Due, other.Retry, other.Lock = item.Due+1000, true, "another"
	want := schedule.Position{Place: schedule.Delayed, Due: item.Due}
	if got := f.ensure(other)[0]; got != want {
		f.Fatalf("the second ensure answered %v, want %v", got, want)
	}
	if got := f.find(item.Ref()); got.Item != item {
		f.Fatalf("the second ensure changed the item: %v, want %v", got.Item, item)
	}

	f.pass(time.Hour)
	l := f.takeOne(item.ID)
	other.Due = f.Now() + 5000
	want = schedule.Position{Place: schedule.Leased, Due: item.Due}
	if got := f.ensure(other)[0]; got != want {
		f.Fatalf("ensure of a leased item answered %v, want %v", got, want)
	}
	f.expectSettled(settled(l, schedule.Ack), schedule.Applied)
	f.expectPlace(item.Ref(), schedule.Absent)
}

func ensureDuplicates(f *fixture) {
	item := f.item(0, time.Hour)
	later := item
	later.Due += 5000
	got := f.ensure(item, later)
	want := []schedule.Position{{}, {Place: schedule.Delayed, Due: item.Due}}
	if diff := cmp.Diff(want, got); diff != "" {
		f.Fatalf("positions (-want +got):\n%s", diff)
	}
	if s := f.stats(); s.Delayed != 1 {
		f.Fatalf("%d items are delayed, want 1", s.Delayed)
	}
}

func emptyCalls(f *fixture) {
	if got := f.ensure(); len(got) != 0 {
		f.Fatalf("ensure of nothing answered %v", got)
	}
	if got := f.settle(); len(got) != 0 {
		f.Fatalf("settle of nothing answered %v", got)
	}
	extended, err := f.Index.Extend(f.ctx, nil)
	f.no(err)
	canceled, err := f.Index.Cancel(f.ctx, nil)
	f.no(err)
	moved, err := f.Index.Move(f.ctx, nil)
	f.no(err)
	acquired, err := f.Index.Acquire(f.ctx, nil)
	f.no(err)
	released, err := f.Index.Release(f.ctx, nil)
	f.no(err)
	f.no(f.Index.Adopt(f.ctx, nil))
	f.no(f.Index.SetLanes(f.ctx, nil))
	states, err := f.Index.LaneStates(f.ctx, nil)
	f.no(err)
	if n := len(extended) + len(canceled) + len(moved) + len(acquired) + len(released) + len(states); n != 0 {
		f.Fatalf("calls with no elements answered %d", n)
	}
	if c := f.claim(f.wide()); len(c.Leases) != 0 || c.More || c.Next != 0 || c.Now == 0 {
		f.Fatalf("a claim of an empty index answered %+v", c)
	}
}

func cancelRemoves(f *fixture) {
	delayed, leased := f.item(0, time.Hour), f.item(1, 0)
	f.ensure(delayed, leased)
	l := f.takeOne(leased.ID)
	// Room for four: the rest of the lane's items stay ready.
	ready := f.items(2, 8)
	f.ensure(ready...)
	f.take()
	absent := schedule.Ref{ID: f.id(), Lane: f.lanes[0]}
	refs := []schedule.Ref{delayed.Ref(), ready[7].Ref(), leased.Ref(), absent}
	want := []schedule.Position{
		{Place: schedule.Delayed, Due: delayed.Due},
		{Place: schedule.Ready, Due: ready[7].Due},
		{Place: schedule.Leased, Due: leased.Due},
		{},
	}
	for range 2 { // looking changes nothing
		if diff := cmp.Diff(want, f.lookup(refs...)); diff != "" {
			f.Fatalf("positions before (-want +got):\n%s", diff)
		}
	}
	got, err := f.Index.Cancel(f.ctx, refs)
	f.no(err)
	if diff := cmp.Diff(want, got); diff != "" {
		f.Fatalf("positions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]schedule.Position{{}, {}, want[2], {}}, f.lookup(refs...)); diff != "" {
		f.Fatalf("positions afterwards (-want +got):\n%s", diff)
	}
	again, err := f.Index.Cancel(f.ctx, refs)
	f.no(err)
	want = []schedule.Position{{}, {}, want[2], {}}
	if diff := cmp.Diff(want, again); diff != "" {
		f.Fatalf("positions at the second time (-want +got):\n%s", diff)
	}
	f.expectSettled(settled(l, schedule.Ack), schedule.Applied)
	f.quiet()
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
