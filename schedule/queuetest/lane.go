package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var laneChecks = []check{
	{"ConcurrencyFollowsSignals", concurrency},
	{"ConcurrencyIsBounded", concurrencyBounded},
	{"OwnLimit", ownLimit},
	{"RoomComesBackWithEachLease", roomComesBack},
	{"PauseEndsAtAnExactTime", pause},
	{"SettingsAreInForceWithTheNextClaim", settingsAtOnce},
	{"AfterAPauseItBeginsLow", beginsLow},
	{"OlderSettingsChangeNothing", olderSettings},
	{"HoldOnlyLengthens", hold},
	{"HoldLeavesOtherLanes", holdOthers},
	{"HealthIsTold", health},
}

// fill puts enough items into the lane for a claim to show its concurrency, and returns how many were leased.
func (f *fixture) fill(i int, req schedule.ClaimRequest) []schedule.Lease {
	f.Helper()
	f.ensure(f.items(i, 150)...)
	return f.claim(req).Leases
}

// drain acknowledges the leases and removes what still waits.
func (f *fixture) drain(leases []schedule.Lease) {
	f.Helper()
	f.ack(leases, schedule.NoSignal)
	var refs []schedule.Ref
	for _, found := range f.scan(0) {
		refs = append(refs, found.Ref())
	}
	_, err := f.Index.Cancel(f.ctx, refs)
	f.no(err)
}

func (f *fixture) expectRoom(i, want int) {
	f.Helper()
	leases := f.fill(i, f.wide())
	if len(leases) != want {
		f.Fatalf("the lane leased %d, want %d", len(leases), want)
	}
	f.drain(leases)
}

func concurrency(f *fixture) {
	f.expectRoom(0, schedule.StartConcurrency)
	f.answer(0, 1, schedule.Answered)
	f.expectRoom(0, 2*schedule.StartConcurrency)
	f.answer(0, 2, schedule.Answered)
	f.expectRoom(0, 8*schedule.StartConcurrency)
	f.answer(0, 1, schedule.TimedOut)
	f.expectRoom(0, 4*schedule.StartConcurrency)
	f.answer(0, 8, schedule.TimedOut)
	f.expectRoom(0, 1)
	f.answer(0, 3, schedule.NoSignal)
	f.expectRoom(0, 1)
	f.answer(0, 1, schedule.Answered)
	f.expectRoom(0, 2)
	// Another lane learned nothing of it.
	f.expectRoom(1, schedule.StartConcurrency)
}

func concurrencyBounded(f *fixture) {
	bounded := func(limit int) schedule.ClaimRequest {
		req := f.wide()
		req.LaneLimit = limit
		return req
	}
	leases := f.fill(0, bounded(2))
	if len(leases) != 2 {
		f.Fatalf("leased %d with a limit of 2", len(leases))
	}
	f.drain(leases)
	for range 8 {
		item := f.item(0, 0)
		f.ensure(item)
		leases := f.claim(bounded(10)).Leases
		f.ack(leases, schedule.Answered)
	}
	leases = f.fill(0, bounded(10))
	if len(leases) != 10 {
		f.Fatalf("leased %d with a limit of 10", len(leases))
	}
	f.drain(leases)
	// Answers beyond the limit bank nothing: one time-out halves what was really used.
	item := f.item(0, 0)
	f.ensure(item)
	f.ack(f.claim(bounded(10)).Leases, schedule.TimedOut)
	leases = f.fill(0, bounded(10))
	if len(leases) != 5 {
		f.Fatalf("leased %d after a time-out at 10, want 5", len(leases))
	}
	f.drain(leases)
}

func ownLimit(f *fixture) {
	f.answer(0, 5, schedule.Answered)
	set := func(limit int, version int64) {
		f.Helper()
		f.no(f.Index.SetLanes(f.ctx, []schedule.LaneSetting{{Lane: f.lanes[0], Limit: limit, Version: version}}))
	}
	set(3, 1)
	leases := f.fill(0, f.wide())
	if len(leases) != 3 {
		f.Fatalf("leased %d with an own limit of 3", len(leases))
	}
	// A limit that falls below what is in flight stops claims until it is undercut.
	set(2, 2)
	f.ack(leases[:1], schedule.NoSignal)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("leased %v beyond a lowered limit", idsOf(got))
	}
	f.ack(leases[1:2], schedule.NoSignal)
	more := f.take()
	if len(more) != 1 {
		f.Fatalf("leased %d when one had ended below the limit of 2", len(more))
	}
	// Raising it lets the rest in at once.
	set(100, 3)
	rest := f.take()
	if len(rest) == 0 {
		f.Fatalf("nothing was leased under the raised limit")
	}
	f.drain(append(append(rest, more...), leases[2]))
	f.quiet()
}

func roomComesBack(f *fixture) {
	f.ensure(f.items(0, 20)...)
	leases := f.take()
	if len(leases) != schedule.StartConcurrency {
		f.Fatalf("leased %d, want %d", len(leases), schedule.StartConcurrency)
	}
	if got := f.take(); len(got) != 0 {
		f.Fatalf("leased %d beyond the concurrency", len(got))
	}
	for _, o := range []schedule.Outcome{schedule.Ack, schedule.Reschedule, schedule.Divert, schedule.Bury} {
		s := settled(leases[0], o)
		s.Due = f.Now() + 3600_000
		f.expectSettled(s, schedule.Applied)
		got := f.take()
		if len(got) != 1 {
			f.Fatalf("outcome %d gave back room for %d", o, len(got))
		}
		leases = append(leases[1:], got...)
	}
	f.pass(31 * time.Second)
	if c := f.claim(f.wide()); c.Reaped != 4 || len(c.Leases) != 4 {
		f.Fatalf("reaped %d and claimed %d, want 4 and 4", c.Reaped, len(c.Leases))
	}
	f.quiet()
}

func pause(f *fixture) {
	f.ensure(f.items(0, 2)...)
	until := f.Now() + 60_000
	f.no(f.Index.SetLanes(f.ctx, []schedule.LaneSetting{{Lane: f.lanes[0], PausedUntil: until, Version: 1}}))
	c := f.claim(f.wide())
	if len(c.Leases) != 0 || c.More {
		f.Fatalf("a paused lane: %+v", c)
	}
	if c.Next == 0 || c.Next > until {
		f.Fatalf("next is %d, later than the pause's end %d", c.Next, until)
	}
	if s := f.stats(); s.BlockedLanes != 1 || s.RunnableLanes != 0 {
		f.Fatalf("%d lanes are blocked and %d runnable, want 1 and 0", s.BlockedLanes, s.RunnableLanes)
	}
	f.pass(50 * time.Second)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("%v was claimed before the pause's end", idsOf(got))
	}
	f.pass(10 * time.Second)
	if got := f.take(); len(got) != 2 {
		f.Fatalf("%d of 2 were claimed at the pause's end", len(got))
	}
}

// settingsAtOnce: a claim that follows a setting gives what that allows, exactly.
func settingsAtOnce(f *fixture) {
	f.answer(0, 9, schedule.Answered)
	f.ensure(f.items(0, 100)...)
	f.set(schedule.LaneSetting{Lane: f.lanes[0], Limit: 7})
	leases := f.expectClaim(f.wide(), 7, 0)
	f.set(schedule.LaneSetting{Lane: f.lanes[0], Limit: 9})
	leases = append(leases, f.expectClaim(f.wide(), 2, 0)...)
	f.set(schedule.LaneSetting{Lane: f.lanes[0], Limit: 4})
	f.ack(leases[:5], schedule.Answered)
	f.expectClaim(f.wide(), 0, 0)
	f.ack(leases[5:6], schedule.Answered)
	leases = append(leases[6:], f.expectClaim(f.wide(), 1, 0)...)
	until := f.Now() + 3600_000
	f.set(schedule.LaneSetting{Lane: f.lanes[0], Limit: 50, PausedUntil: until})
	f.ack(leases, schedule.Answered)
	f.expectClaim(f.allowing(0, 50, 50, 50), 0, 0)
	f.set(schedule.LaneSetting{Lane: f.lanes[0], Limit: 50, PausedUntil: until + 3600_000})
	f.pass(time.Hour)
	f.expectClaim(f.wide(), 0, 0)
	f.quiet()
}

// beginsLow: what answered before a pause may not bear as much after it, and what has gathered comes at once.
func beginsLow(f *fixture) {
	paused := func(until int64) {
		f.Helper()
		f.set(schedule.LaneSetting{Lane: f.lanes[0], PausedUntil: until})
	}
	for _, byTime := range []bool{true, false} {
		for _, ready := range []bool{true, false} {
			f.reset()
			f.answer(0, 5, schedule.Answered)
			f.expectRoom(0, 32*schedule.StartConcurrency)
			paused(f.Now() + 60_000)
			if ready {
				f.ensure(f.items(0, 100)...)
				f.take()
			}
			if byTime {
				f.pass(time.Minute)
			} else {
				paused(0)
			}
			if s := f.state(0); s.Concurrency != schedule.StartConcurrency {
				f.Fatalf("after a pause, by itself %t, with items ready %t, the lane is %+v", byTime, ready, s)
			}
			f.ensure(f.items(0, 200)...)
			for want := schedule.StartConcurrency; want <= 32; want *= 2 {
				leases := f.expectClaim(f.wide(), want, 0)
				f.ack(leases[:1], schedule.Answered)
				f.ack(leases[1:], schedule.NoSignal)
			}
			// A setting that says once more that it is over ends nothing.
			paused(f.Now() - 1000)
			f.expectClaim(f.wide(), 64, 0)
		}
	}
	// What answers while it lasts doubles nothing for later, and a lane that was lower stays so.
	f.reset()
	f.answer(0, 8, schedule.TimedOut)
	f.ensure(f.items(0, 100)...)
	l := f.take()
	paused(f.Now() + 60_000)
	f.ack(l, schedule.NoSignal)
	f.pass(time.Minute)
	f.expectClaim(f.wide(), 1, 0)
	f.quiet()
}

func olderSettings(f *fixture) {
	f.ensure(f.items(0, 2)...)
	set := func(until, version int64) {
		f.no(f.Index.SetLanes(f.ctx, []schedule.LaneSetting{{Lane: f.lanes[0], PausedUntil: until, Version: version}}))
	}
	set(f.Now()+400*24*3600_000, 5)
	set(0, 4)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("an older setting ended the pause")
	}
	set(0, 6)
	if got := f.take(); len(got) != 2 {
		f.Fatalf("a newer setting did not end the pause: %d of 2 were claimed", len(got))
	}
}

func hold(f *fixture) {
	l := f.one()
	f.ensure(f.items(0, 1)...)
	s := settled(l, schedule.Reschedule)
	until := f.Now() + 60_000
	s.HoldUntil = until
	f.expectSettled(s, schedule.Applied)
	held := f.item(0, 0)
	won := schedule.Settlement{Item: held, Token: "t", Outcome: schedule.Reschedule, Won: true, HoldUntil: until - 30_000}
	f.expectSettled(won, schedule.Applied)
	c := f.claim(f.wide())
	if len(c.Leases) != 0 || c.Next == 0 || c.Next > until {
		f.Fatalf("a held lane: %+v", c)
	}
	f.pass(45 * time.Second)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("a shorter hold replaced the longer one")
	}
	f.pass(15 * time.Second)
	if got := f.take(); len(got) != 3 {
		f.Fatalf("%d of 3 were claimed after the hold", len(got))
	}
}

func holdOthers(f *fixture) {
	l := f.one()
	s := settled(l, schedule.Divert)
	s.HoldUntil = f.Now() + 60_000
	f.expectSettled(s, schedule.Applied)
	other := f.item(1, 0)
	f.ensure(other)
	f.takeOne(other.ID)
}

func health(f *fixture) {
	want := func(h schedule.Health) schedule.Lease {
		f.Helper()
		l := f.one()
		if l.Health != h {
			f.Fatalf("the lane's health is %d, want %d", l.Health, h)
		}
		return l
	}
	f.ack([]schedule.Lease{want(schedule.Unproven)}, schedule.NoSignal)
	f.ack([]schedule.Lease{want(schedule.Unproven)}, schedule.TimedOut)
	f.ack([]schedule.Lease{want(schedule.TimingOut)}, schedule.NoSignal)
	f.ack([]schedule.Lease{want(schedule.TimingOut)}, schedule.Answered)
	want(schedule.Answering)
}
