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
	{"ExtendLengthensOnlyTheLeaseItNames", extendLengthens},
	{"RecordsAreCarried", recordsAreCarried},
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

func extendLengthens(f *fixture) {
	l := f.one()
	extend := func(ref schedule.Ref, token string, until int64) bool {
		held, err := f.Index.Extend(f.ctx, []schedule.Extension{{Ref: ref, Token: token, Until: until}})
		f.no(err)
		return held[0]
	}
	if extend(l.Ref(), "other", l.Until+3600_000) {
		f.Fatalf("a foreign token extended the lease")
	}
	if extend(schedule.Ref{ID: f.id(), Lane: l.Lane}, l.Token, l.Until) {
		f.Fatalf("an absent item was extended")
	}
	if !extend(l.Ref(), l.Token, l.Until-1000) {
		f.Fatalf("the lease is not held")
	}
	for range 2 {
		if !extend(l.Ref(), l.Token, l.Until+60_000) {
			f.Fatalf("the lease is not held")
		}
	}
	f.pass(time.Duration(l.Until-f.Now()+1000) * time.Millisecond)
	if c := f.claim(f.wide()); c.Reaped != 0 {
		f.Fatalf("an extended lease was reaped")
	}
	f.pass(time.Minute)
	if c := f.claim(f.wide()); c.Reaped != 1 {
		f.Fatalf("%d leases were reaped at the end of the extension, want 1", c.Reaped)
	}
	if extend(l.Ref(), l.Token, l.Until+600_000) {
		f.Fatalf("a reaped lease was extended")
	}
}

func recordsAreCarried(f *fixture) {
	items := []schedule.Item{f.item(0, 0), f.item(1, 0), f.item(1, 0)}
	items[1].Lock, items[1].Retry = "order_0001-AZaz", true
	items[2].Lock = "abcdefghij0123456789AB"
	f.ensure(items...)
	leases := f.take()
	if len(leases) != 3 {
		f.Fatalf("claimed %d of 3", len(leases))
	}
	for _, item := range items {
		found := false
		for _, l := range leases {
			found = found || l.Item == item
		}
		if !found {
			f.Fatalf("%+v was not claimed as it is: %+v", item, leases)
		}
	}
}
