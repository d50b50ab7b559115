package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// breakerSpread: lanes that failed together are not probed together, and each is at the same distance every time.
func breakerSpread(f *fixture) {
	const lanes = 60
	f.findLanes(lanes)
	first := f.tripAll(lanes)
	apart := make(map[int64]int)
	for _, s := range first {
		apart[s.ProbeAt/20]++
	}
	for at, n := range apart {
		if n > lanes/3 {
			f.Fatalf("%d of %d probes lie within 20 ms of %d", n, lanes, at)
		}
	}
	f.quiet()
}

// tripAll opens the breakers of the first n lanes in the same moment.
func (f *fixture) tripAll(n int) []schedule.LaneState {
	f.Helper()
	for round := range schedule.BreakerAttempts {
		var items []schedule.Item
		for i := range n {
			items = append(items, f.item(i, 0))
		}
		f.ensure(items...)
		for done := 0; done < n; {
			leases := f.take()
			if len(leases) == 0 {
				f.Fatalf("%d of %d lanes gave one in round %d", done, n, round)
			}
			f.ack(leases, schedule.Unanswered)
			done += len(leases)
		}
		if round < schedule.BreakerAttempts-1 {
			f.pass(600 * time.Millisecond)
		}
	}
	states := f.states(f.lanes[:n]...)
	for _, s := range states {
		if s.Breaker != schedule.BreakerOpen {
			f.Fatalf("a lane is %+v", s)
		}
	}
	return states
}

func breakerAndOthers(f *fixture) {
	f.trip(0)
	f.ensure(f.items(0, 10)...)
	// A pause that outlasts the rest keeps the probe, and the lane begins no higher after it.
	f.set(schedule.LaneSetting{Lane: f.lanes[0], PausedUntil: f.Now() + 60_000})
	f.pass(50 * time.Second)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("%v were leased of a paused lane", idsOf(got))
	}
	f.pass(10 * time.Second)
	probe := f.take()
	if len(probe) != 1 {
		f.Fatalf("%d were leased as probes after a pause", len(probe))
	}
	f.ack(probe, schedule.Unanswered)
	// A rate keeps it, too: a probe takes a token.
	f.setRate(0, time.Minute)
	f.untilProbe(0)
	probe = f.take()
	if len(probe) != 1 {
		f.Fatalf("%d were leased as probes", len(probe))
	}
	f.ack(probe, schedule.Unanswered)
	f.untilProbe(0)
	c := f.claim(f.wide())
	if left := c.Next - c.Now; len(c.Leases) != 0 || left < 20_000 || left > 60_000 {
		f.Fatalf("with a rate of 1/m: %d probes, next in %d ms", len(c.Leases), left)
	}
	f.pass(time.Minute)
	f.ack(f.take(), schedule.Answered)
	f.expectState(0, schedule.BreakerClosed, 0, 1)
	f.quiet()
}

func breakerJumps(f *fixture) {
	for _, d := range []time.Duration{-time.Hour, 2 * time.Hour} {
		f.reset()
		f.fail(0, schedule.BreakerAttempts-1, 200*time.Millisecond)
		f.jump(d) // is no time over which attempts got no answer
		f.answer(0, 1, schedule.Unanswered)
		f.expectState(0, schedule.BreakerClosed, schedule.BreakerAttempts, 1)
		f.pass(schedule.BreakerSpan)
		f.answer(0, 1, schedule.Unanswered)
		before := f.state(0).ProbeAt
		f.ensure(f.item(0, -3*time.Hour))
		f.take()
		moved := f.jump(d)
		if got := f.state(0).ProbeAt; got != before+moved {
			f.Fatalf("a jump of %d ms moved the next probe by %d", moved, got-before)
		}
		f.pass(12 * time.Second)
		if got := f.take(); len(got) != 0 {
			f.Fatalf("a probe came early after a jump of %s", d)
		}
		f.pass(5 * time.Second)
		if got := f.take(); len(got) != 1 {
			f.Fatalf("%d probes after a jump of %s", len(got), d)
		}
	}
	f.quiet()
}

// breakerOthers: lanes with an open breaker are nothing that others wait behind.
func breakerOthers(f *fixture) {
	const lanes = 100
	f.findLanes(lanes + 1)
	f.tripAll(lanes)
	for i := range lanes {
		f.ensure(f.items(i, 3)...)
	}
	f.promoteAll()
	if s := f.stats(); s.OpenBreakers != lanes || s.BlockedLanes != lanes || s.RunnableLanes != 0 {
		f.Fatalf("%d breakers are open, %d lanes blocked, %d runnable; want %d, %d, 0", s.OpenBreakers, s.BlockedLanes, s.RunnableLanes, lanes, lanes)
	}
	for range 5 {
		item := f.item(lanes, 0)
		f.ensure(item)
		req := f.wide()
		req.Max = 1
		got := f.claim(req).Leases
		if len(got) != 1 || got[0].ID != item.ID {
			f.Fatalf("claimed %v, want %s", idsOf(got), item.ID)
		}
		f.ack(got, schedule.Answered)
	}
	f.quiet()
}
