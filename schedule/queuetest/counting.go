package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

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
