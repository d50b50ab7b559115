package queuetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var claimChecks = []check{
	{"WithALeadWhatIsDueIsFirstOfBothKinds", leadAcrossKinds},
	{"NextIsAsEarlyAsTheLeadAllows", leadNext},
	{"ZeroAndThePastAreNow", zeroIsNow},
	{"RepeatedTokenReturnsTheSameBatch", repeatedToken},
	{"ReapsManyInSteps", reapsMany},
	{"CountsDivertsInARow", divertsInARow},
}

func zeroIsNow(f *fixture) {
	before := f.Now()
	zero, past := f.item(0, 0), f.item(0, -24*time.Hour)
	zero.Due = 0
	f.ensure(zero, past)
	leases := f.take()
	if len(leases) != 2 || leases[0].ID != past.ID || leases[1].ID != zero.ID {
		f.Fatalf("claimed %v, want the one of the past and then the one of now", idsOf(leases))
	}
	if leases[1].Due < before || leases[1].Due > f.Now() {
		f.Fatalf("due zero became %d; now is %d", leases[1].Due, f.Now())
	}
}

func repeatedToken(f *fixture) {
	f.ensure(f.items(0, 3)...)
	req := f.wide()
	first := f.claim(req)
	if len(first.Leases) != 3 {
		f.Fatalf("claimed %d of 3", len(first.Leases))
	}
	f.ensure(f.items(1, 3)...)
	again := f.claim(req)
	for i := range first.Leases {
		first.Leases[i].Full = true // whether their lane is is not known any more
	}
	if diff := cmp.Diff(sorted(first.Leases), sorted(again.Leases)); diff != "" {
		f.Fatalf("the repeated claim differs (-first +again):\n%s", diff)
	}
	f.expectSettled(settled(first.Leases[1], schedule.Ack), schedule.Applied)
	rest := idsOf(sorted(f.claim(req).Leases))
	if want := []string{first.Leases[0].ID, first.Leases[2].ID}; !slices.Equal(rest, want) {
		f.Fatalf("after one was settled the repeated claim has %v, want %v", rest, want)
	}
	other := f.take()
	if len(other) != 3 || other[0].Lane != f.lanes[1] {
		f.Fatalf("the next token claimed %v, want the three new ones", idsOf(other))
	}
	if late := f.claim(req); len(late.Leases) != 0 {
		f.Fatalf("a token that is not the last one's returned %v", idsOf(late.Leases))
	}
}

// sorted returns the leases by id.
func sorted(leases []schedule.Lease) []schedule.Lease {
	return slices.SortedFunc(slices.Values(leases), func(a, b schedule.Lease) int { return strings.Compare(a.ID, b.ID) })
}

func reapsMany(f *fixture) {
	f.answer(0, 7, schedule.Answered)
	f.ensure(f.items(0, 250)...)
	if got := f.take(); len(got) != 250 {
		f.Fatalf("claimed %d of 250", len(got))
	}
	f.pass(time.Minute)
	reaped := 0
	for range 10 {
		c := f.claim(f.empty())
		if c.Reaped > 100 {
			f.Fatalf("one claim reaped %d", c.Reaped)
		}
		reaped += c.Reaped
	}
	if reaped != 250 {
		f.Fatalf("reaped %d of 250", reaped)
	}
	f.pass(time.Second)
	if got := f.take(); len(got) != 250 {
		f.Fatalf("%d of 250 came back", len(got))
	}
	f.quiet()
}

// led is a claim with the longest lead.
func (f *fixture) led() schedule.ClaimRequest {
	req := f.wide()
	req.Lead = schedule.MaxLead
	return req
}

// leadAcrossKinds: an item that is not due yet does not overtake one that is due, also where it is of the
// other kind and has its turn.
func leadAcrossKinds(f *fixture) {
	for _, retry := range []bool{true, false} {
		early := f.item(0, time.Minute)
		early.Retry = !retry
		f.ensure(early)
		f.pass(55 * time.Second)
		var due []schedule.Item
		for range 6 {
			item := f.item(0, 0)
			item.Retry = retry
			due = append(due, item)
		}
		f.ensure(due...)
		for _, want := range append(due, early) {
			one := f.led()
			one.Max = 1
			got := f.claim(one).Leases
			if len(got) != 1 || got[0].ID != want.ID {
				f.Fatalf("claimed %v, want %s; what is not due is a retry: %t", idsOf(got), want.ID, early.Retry)
			}
			f.ack(got, schedule.Answered)
		}
	}
}

// leadNext: half the lead before an item is due, and not before the end of a lease: a claim would find
// nothing.
func leadNext(f *fixture) {
	item := f.item(0, time.Hour)
	f.ensure(item)
	if c := f.claim(f.led()); c.Next != item.Due-schedule.MaxLead.Milliseconds()/2 {
		f.Fatalf("next is %d, want half the lead before %d", c.Next, item.Due)
	}
	if c := f.claim(f.wide()); c.Next != item.Due {
		f.Fatalf("next of a claim without a lead is %d, want %d", c.Next, item.Due)
	}
	lease := f.one()
	if c := f.claim(f.led()); c.Next != lease.Until {
		f.Fatalf("next is %d, want the end of the lease, %d", c.Next, lease.Until)
	}
}

// divertsInARow: a settlement that is repeated is no other divert, and an attempt ends the row.
func divertsInARow(f *fixture) {
	l := f.one()
	for _, c := range []struct {
		outcome schedule.Outcome
		want    int
	}{{schedule.Divert, 1}, {schedule.Divert, 2}, {schedule.Reschedule, 0}, {schedule.Divert, 1}} {
		s := settled(l, c.outcome)
		s.Won, s.Due = true, f.Now()
		f.expectSettled(s, schedule.Applied)
		if c.outcome == schedule.Divert {
			f.expectSettled(s, schedule.Applied)
		}
		if l = f.takeOne(l.ID); l.Diverts != c.want {
			f.Fatalf("after outcome %d it has %d diverts, want %d", c.outcome, l.Diverts, c.want)
		}
	}
}

var countingChecks = []check{
	{"EndedLeasesMakeRoom", endedMakeRoom},
	{"PrefetchedLeasesCountAsNext", prefetchedCount},
	{"ALeaseThatDoesNotCountFreesNoPlace", uncountedEnd},
	{"OnlyWhatAnswersIsPrefetched", onlyAnsweringIsPrefetched},
	{"RoomThatIsLeftIsHinted", roomIsHinted},
	{"ARepetitionNamesMore", repetitionNames},
}

// inFlight checks how many leases of the i-th lane count.
func (f *fixture) inFlight(i, want int) {
	f.Helper()
	states, err := f.Index.LaneStates(f.ctx, []int64{f.lanes[i]})
	f.no(err)
	if got := states[0].InFlight; got != want {
		f.Fatalf("%d leases count, want %d", got, want)
	}
}

// naming is a claim that names leases as ended.
func (f *fixture) naming(ended ...schedule.EndedLease) schedule.ClaimRequest {
	req := f.wide()
	req.Ended = ended
	return req
}

func endedLease(l schedule.Lease) schedule.EndedLease {
	return schedule.EndedLease{LeaseRef: l.LeaseRef()}
}

// fill has the i-th lane give all that it has room for, with more to come: four, for nothing of it has ended
// yet.
func (f *fixture) fill(i int) []schedule.Lease {
	f.Helper()
	f.ensure(f.items(i, 40)...)
	leases := f.take()
	if len(leases) != schedule.StartConcurrency || !leases[0].Full || leases[0].Ahead {
		f.Fatalf("claimed %d, the first %+v; want 4 of a lane that is full", len(leases), leases[0])
	}
	return leases
}

func endedMakeRoom(f *fixture) {
	four := f.fill(0)
	if again := f.take(); len(again) != 0 {
		f.Fatalf("claimed %d of a lane that is full", len(again))
	}
	other := endedLease(four[1])
	other.Token = "another"
	req := f.naming(endedLease(four[0]), endedLease(four[0]), other)
	one := f.claim(req).Leases
	if len(one) != 1 || !one[0].Full || one[0].Ahead {
		f.Fatalf("claimed %+v, want one in place of the one that has ended", one)
	}
	f.claim(req)                                                      // its reply was lost
	f.claim(f.naming(endedLease(four[0])))                            // and what it said comes again
	f.expectSettled(settled(four[0], schedule.Ack), schedule.Applied) // it made room already
	f.claim(f.naming(endedLease(four[0])))                            // too late
	f.inFlight(0, 4)
	f.ack(append(four[1:], one...), schedule.NoSignal)
	f.inFlight(0, 0)
}

func prefetchedCount(f *fixture) {
	f.answer(0, 1, schedule.Answered)
	req := f.wide()
	req.LaneLimit, req.Prefetch = 8, []schedule.LanePrefetch{{Lane: f.lanes[0], Max: 3}}
	f.ensure(f.items(0, 40)...)
	all := f.claim(req).Leases
	ahead := 0
	for _, l := range all {
		if l.Ahead {
			ahead++
		}
	}
	if len(all) != 11 || ahead != 3 || all[7].Ahead || !all[8].Ahead {
		f.Fatalf("claimed %d, of them %d ahead; want 8 and then 3", len(all), ahead)
	}
	f.inFlight(0, 8)
	named := endedLease(all[0])
	named.Next = all[8].LeaseRef()
	req = f.naming(named)
	req.LaneLimit = 8
	if got := f.claim(req).Leases; len(got) != 0 {
		f.Fatalf("claimed %d; the place of the one that has ended is taken", len(got))
	}
	f.inFlight(0, 8)
	s := settled(all[1], schedule.Ack)
	next := all[9].LeaseRef()
	s.Next = &next
	f.expectSettled(s, schedule.Applied)
	f.inFlight(0, 8)
	f.expectSettled(settled(all[8], schedule.Ack), schedule.Applied) // it counts since it was named
	f.inFlight(0, 7)
	f.expectSettled(s, schedule.Gone) // repeated
	f.inFlight(0, 7)
}

// uncountedEnd: whatever ends a lease that does not count, its lane has no more room after it.
func uncountedEnd(f *fixture) {
	four := f.fill(0)
	f.claim(f.naming(endedLease(four[0]), endedLease(four[1]), endedLease(four[2])))
	f.inFlight(0, 4)
	f.expectSettled(settled(four[0], schedule.Divert), schedule.Applied)
	s := settled(four[1], schedule.Reschedule)
	s.Due = f.Now() + time.Hour.Milliseconds()
	f.expectSettled(s, schedule.Applied)
	f.inFlight(0, 4)
	f.pass(time.Minute)
	if c := f.claim(f.empty()); c.Reaped != 5 {
		f.Fatalf("reaped %d of 5", c.Reaped)
	}
	f.inFlight(0, 0)
	f.quiet()
}

func onlyAnsweringIsPrefetched(f *fixture) {
	f.answer(1, 1, schedule.TimedOut)
	f.ensure(append(f.items(0, 40), f.items(1, 40)...)...)
	req := f.wide()
	req.Prefetch = []schedule.LanePrefetch{{Lane: f.lanes[0], Max: 9}, {Lane: f.lanes[1], Max: 9}, {Lane: f.lanes[2], Max: 9}}
	for _, l := range f.claim(req).Leases {
		if l.Ahead {
			f.Fatalf("%s of a lane with health %d was prefetched", l.ID, l.Health)
		}
	}
}

// roomIsHinted: a claim that frees more of a lane than it takes wakes the claimers of others.
func roomIsHinted(f *fixture) {
	defer f.listen()()
	var left []schedule.Lease
	f.hinted(func() {
		f.ack(left, schedule.NoSignal)
		four := f.fill(0)
		req := f.naming(endedLease(four[0]), endedLease(four[1]))
		req.Max = 1
		left = append(four, f.claim(req).Leases...)
	})
}

// repetitionNames: a claim that is repeated may name leases that have ended meanwhile.
func repetitionNames(f *fixture) {
	f.answer(0, 1, schedule.Answered)
	req := f.wide()
	req.LaneLimit, req.Prefetch = 8, []schedule.LanePrefetch{{Lane: f.lanes[0], Max: 3}}
	f.ensure(f.items(0, 40)...)
	all := f.claim(req).Leases
	f.inFlight(0, 8)
	named := endedLease(all[0])
	named.Next = all[8].LeaseRef()
	req.Ended = []schedule.EndedLease{named, endedLease(all[1])}
	if again := f.claim(req).Leases; len(again) != 11 {
		f.Fatalf("claimed %d of 11 again", len(again))
	}
	f.inFlight(0, 7)
	f.expectSettled(settled(all[0], schedule.Ack), schedule.Applied)
	f.inFlight(0, 7)
}

var forcedChecks = []check{
	{"GoesFirst", forcedFirst},
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

// forcedFirst: what is forced goes before what has waited for longer, each kind in the order of due times,
// fresh ones first.
func forcedFirst(f *fixture) {
	waiting := f.items(0, 12)
	for i := range waiting[:6] {
		waiting[i].Retry = true
	}
	f.ensure(waiting...)
	f.claim(f.empty())
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

// forcedLeavesHeldLane: when what is forced goes otherwise than by a claim, the lane is held as before.
func forcedLeavesHeldLane(f *fixture) {
	f.holdLane(0, time.Minute)
	forced := f.press(0)
	f.ensure(forced)
	if c := f.claim(f.empty()); !c.More {
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
