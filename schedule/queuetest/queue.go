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
	{"SettleTwiceIsLikeOnce", settleTwice},
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
	f.everyBatch(f.ctx, 0, func(name string, err error) {
		if err != nil {
			f.Fatalf("%s of nothing: %v", name, err)
		}
	})
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

// settleTwice: the reply to a settlement may be lost, and the settlement repeated.
func settleTwice(f *fixture) {
	for _, won := range []bool{false, true} {
		for _, o := range []schedule.Outcome{schedule.Ack, schedule.Reschedule, schedule.Divert, schedule.Bury} {
			l := f.one()
			s := settled(l, o)
			s.Won, s.Due, s.Signal = won, f.Now()+60_000, schedule.Answered
			f.expectSettled(s, schedule.Applied)
			first := f.find(l.Ref())
			want := schedule.Applied
			switch {
			case !won && (o == schedule.Ack || o == schedule.Bury):
				want = schedule.Gone
			case !won:
				want = schedule.Stale
			}
			f.expectSettled(s, want)
			if again := f.find(l.Ref()); again != first {
				f.Fatalf("outcome %d, won %t: once %+v, twice %+v", o, won, first, again)
			}
			if first.Place == schedule.Absent {
				continue
			}
			f.pass(time.Minute)
			got := f.takeOne(l.ID)
			diverts := 0
			if o == schedule.Divert {
				diverts = 1
			}
			if got.Diverts != diverts {
				f.Fatalf("outcome %d, won %t: %d diverts, want %d", o, won, got.Diverts, diverts)
			}
			f.ack([]schedule.Lease{got}, schedule.NoSignal)
		}
	}
}
