package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// quantum is the most that a lane may give before another's turn comes.
const quantum = 8

var fairnessChecks = []check{
	{"EqualLanesGetEqualShares", equalLanes},
	{"BacklogDoesNotDelayLightLanes", backlog},
	{"WokenLanesDoNotCatchUp", noCatchUp},
	{"FreshAndRetriesShareALane", freshAndRetries},
	{"TimingOutLanesAreBounded", boundedTimingOut},
	{"UncertainLanesAreBounded", boundedUncertain},
	{"HangingLanesNeverHideAnsweringOnes", hangingHideNothing},
}

func equalLanes(f *fixture) {
	const lanes = 5
	for i := range lanes {
		f.answer(i, 6, schedule.Answered)
	}
	for i := range lanes {
		f.ensure(f.items(i, 300)...)
	}
	f.promoteAll()
	taken := make(map[int64]int)
	for round := range 60 {
		req := f.wide()
		req.Max = 1 + round*7%23
		leases := f.claim(req).Leases
		if len(leases) != req.Max {
			f.Fatalf("claimed %d of %d from backlogged lanes", len(leases), req.Max)
		}
		for _, l := range leases {
			taken[l.Lane]++
		}
		f.ack(leases, schedule.NoSignal)
		least, most := taken[f.lanes[0]], taken[f.lanes[0]]
		for _, lane := range f.lanes[:lanes] {
			least, most = min(least, taken[lane]), max(most, taken[lane])
		}
		if most-least > quantum+1 {
			f.Fatalf("after %d claims the lanes have had %v", round+1, taken)
		}
	}
}

func backlog(f *fixture) {
	size := 10_000
	if f.Full {
		size = 100_000
	}
	f.answer(0, 6, schedule.Answered)
	for range size / schedule.MaxBatch {
		f.ensure(f.items(0, schedule.MaxBatch)...)
	}
	f.promoteAll()
	light := []schedule.Item{f.item(1, 0), f.item(2, 0), f.item(3, 0)}
	f.ensure(light...)
	waiting := map[string]bool{light[0].ID: true, light[1].ID: true, light[2].ID: true}
	for range 3 {
		req := f.wide()
		req.Max = 16
		for _, l := range f.claim(req).Leases {
			delete(waiting, l.ID)
		}
	}
	if len(waiting) > 0 {
		f.Fatalf("after three claims of 16 light items still wait behind a backlog of %d: %v", size, waiting)
	}
}

// noCatchUp: a lane that had nothing to do for long has no claim to what it did not use.
func noCatchUp(f *fixture) {
	for i := range 2 {
		f.answer(i, 7, schedule.Answered)
	}
	f.ensure(f.items(0, 800)...)
	for range 20 {
		req := f.wide()
		req.Max = 20
		f.ack(f.claim(req).Leases, schedule.NoSignal)
	}
	f.ensure(f.items(1, 200)...)
	taken := make(map[int64]int)
	for range 10 {
		req := f.wide()
		req.Max = 16
		leases := f.claim(req).Leases
		for _, l := range leases {
			taken[l.Lane]++
		}
		f.ack(leases, schedule.NoSignal)
	}
	if a, b := taken[f.lanes[0]], taken[f.lanes[1]]; b-a > quantum+1 || a-b > quantum+1 {
		f.Fatalf("the lane that slept has had %d, the other %d", b, a)
	}
}

func freshAndRetries(f *fixture) {
	f.answer(0, 7, schedule.Answered)
	items := f.items(0, 120)
	for i := range items[:60] {
		items[i].Retry = true
	}
	f.ensure(items...)
	var taken [2]int
	lastOf := [2]string{}
	for round := range 20 {
		// Claims of three at a time: the rotation must go on from one claim to the next.
		req := f.wide()
		req.Max = 3
		for _, l := range f.claim(req).Leases {
			kind := 0
			if l.Retry {
				kind = 1
			}
			taken[kind]++
			if l.ID < lastOf[kind] {
				f.Fatalf("%s was claimed after %s", l.ID, lastOf[kind])
			}
			lastOf[kind] = l.ID
		}
		total := taken[0] + taken[1]
		if want := total / (schedule.FreshShare + 1); taken[1] < want-1 || taken[1] > want+1 {
			f.Fatalf("after %d claims %d fresh ones and %d retries were made", round+1, taken[0], taken[1])
		}
	}
	// Once one kind is used up the other has the lane alone.
	leases := f.take()
	for len(leases) > 0 {
		f.ack(leases, schedule.NoSignal)
		leases = f.take()
	}
	if s := f.stats(); s.Ready+s.Delayed != 0 {
		f.Fatalf("%d items still wait", s.Ready+s.Delayed)
	}
}

// pools makes the first n lanes time out, gives them and one answering lane a backlog, and returns the
// answering lane.
func (f *fixture) pools(n int, signal schedule.Signal) int64 {
	f.Helper()
	f.findLanes(n + 1)
	if signal != schedule.NoSignal {
		var items []schedule.Item
		for i := range n {
			items = append(items, f.item(i, 0))
		}
		f.ensure(items...)
		for done := 0; done < n; {
			leases := f.take()
			if len(leases) == 0 {
				f.Fatalf("only %d of %d lanes gave an item", done, n)
			}
			f.ack(leases, signal)
			done += len(leases)
		}
	}
	f.answer(n, 6, schedule.Answered)
	for i := range n {
		f.ensure(f.items(i, 5)...)
	}
	f.pass(time.Second)
	return f.lanes[n]
}

func boundedTimingOut(f *fixture) {
	answering := f.pools(20, schedule.TimedOut)
	f.ensure(f.items(20, 10)...)
	req := f.wide()
	req.Max, req.MaxUncertain, req.MaxTimingOut = 64, 50, 5
	f.expectShares(req, answering, 10, 5)
	req = f.wide()
	req.Max, req.MaxUncertain, req.MaxTimingOut = 64, 3, 50
	f.expectShares(req, answering, 0, 3)
	req = f.wide()
	req.Max, req.MaxUncertain, req.MaxTimingOut = 64, 64, 0
	f.expectShares(req, answering, 0, 0)
	// With room for them the rest goes out: one each, for so much is a lane that timed out twice still given.
	if got := f.take(); len(got) == 0 {
		f.Fatalf("lanes that time out are claimed no more")
	}
}

func boundedUncertain(f *fixture) {
	answering := f.pools(20, schedule.NoSignal)
	f.ensure(f.items(20, 10)...)
	req := f.wide()
	req.Max, req.MaxUncertain, req.MaxTimingOut = 64, 7, 64
	f.expectShares(req, answering, 10, 7)
	req = f.wide()
	req.Max, req.MaxUncertain, req.MaxTimingOut = 64, 9, 0
	f.expectShares(req, answering, 0, 9)
}

// expectShares claims and expects so many of the answering lane and so many of all others. Skipped items are
// announced.
func (f *fixture) expectShares(req schedule.ClaimRequest, answering int64, certain, others int) {
	f.Helper()
	c := f.claim(req)
	n := 0
	for _, l := range c.Leases {
		if l.Lane == answering {
			n++
		}
	}
	if n != certain || len(c.Leases)-n != others {
		f.Fatalf("with shares of %d uncertain and %d timing out: %d of the answering lane and %d others, want %d and %d",
			req.MaxUncertain, req.MaxTimingOut, n, len(c.Leases)-n, certain, others)
	}
	if !c.More {
		f.Fatalf("the claim does not say that more could be claimed with larger shares")
	}
}

func hangingHideNothing(f *fixture) {
	for _, signal := range []schedule.Signal{schedule.TimedOut, schedule.NoSignal} {
		f.reset()
		answering := f.pools(300, signal)
		for range 10 {
			item := f.item(300, 0)
			f.ensure(item)
			req := f.wide()
			req.Max, req.MaxUncertain, req.MaxTimingOut = 8, 0, 0
			// The hanging lanes' items have to be promoted first; that is two claims at most.
			var got []schedule.Lease
			for range 3 {
				if got = f.claim(req).Leases; len(got) > 0 {
					break
				}
				req.Token = f.wide().Token
			}
			if len(got) != 1 || got[0].Lane != answering {
				f.Fatalf("claimed %v, want the answering lane's only item", idsOf(got))
			}
			f.ack(got, schedule.Answered)
		}
	}
}
