package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var breakerChecks = []check{
	{"OpensAfterManyInARowOverASpan", breakerOpens},
	{"StaysClosedForLess", breakerStaysClosed},
	{"KeepsAllButWhatIsForced", breakerKeeps},
	{"LetsOneProbePassInAll", breakerProbe},
	{"ClosesByAnAnswer", breakerCloses},
	{"StaysOpenWithoutOne", breakerStaysOpen},
	{"ProbesAgainWhereNothingWasLearned", breakerProbesAgain},
	{"HearsWhatWasInFlight", breakerInFlight},
	{"HearsWhatWasForced", breakerForced},
	{"LearnsNothingFromWhatIsNotLeased", breakerOverruled},
	{"SpreadsItsProbes", breakerSpread},
	{"GoesWithAPauseAndARate", breakerAndOthers},
	{"KeepsWhatIsLeftOverAJump", breakerJumps},
	{"CostsOthersNothing", breakerOthers},
}

// fail lets attempts of the i-th lane end without an answer, with so much time before each but the first.
func (f *fixture) fail(i, times int, apart time.Duration) {
	f.Helper()
	for n := range times {
		if n > 0 {
			f.pass(apart)
		}
		f.answer(i, 1, []schedule.Signal{schedule.Unanswered, schedule.TimedOut}[n%2])
	}
}

// trip opens the i-th lane's breaker, and returns how it stands.
func (f *fixture) trip(i int) schedule.LaneState {
	f.Helper()
	f.fail(i, schedule.BreakerAttempts, 600*time.Millisecond)
	s := f.state(i)
	if s.Breaker != schedule.BreakerOpen {
		f.Fatalf("after %d attempts without an answer over more than %s the lane is %+v", schedule.BreakerAttempts, schedule.BreakerSpan, s)
	}
	return s
}

// untilProbe lets time pass until the i-th lane's breaker lets a probe pass.
func (f *fixture) untilProbe(i int) {
	f.Helper()
	if left := f.state(i).ProbeAt - f.Now(); left > 0 {
		f.pass(time.Duration(left) * time.Millisecond)
	}
	if s := f.state(i); s.Breaker != schedule.BreakerProbing {
		f.Fatalf("when its probe is due the lane is %+v", s)
	}
}

// expectState wants the i-th lane's breaker, its count and its concurrency.
func (f *fixture) expectState(i int, breaker schedule.BreakerState, unanswered, concurrency int) {
	f.Helper()
	s := f.state(i)
	if s.Breaker != breaker || s.Unanswered != unanswered || s.Concurrency != concurrency {
		f.Fatalf("the breaker is %s after %d attempts without an answer, the concurrency %d; want %s, %d, %d",
			s.Breaker, s.Unanswered, s.Concurrency, breaker, unanswered, concurrency)
	}
	if (s.ProbeAt == 0) != (breaker == schedule.BreakerClosed) || (s.UnansweredSince == 0) != (unanswered == 0) {
		f.Fatalf("the lane is %+v", s)
	}
	if open := f.stats().OpenBreakers; (open == 1) != (breaker != schedule.BreakerClosed) || open > 1 {
		f.Fatalf("the breaker is %s, and %d are counted as open", breaker, open)
	}
}

func breakerOpens(f *fixture) {
	began := f.Now()
	f.fail(0, schedule.BreakerAttempts-1, 600*time.Millisecond)
	f.expectState(0, schedule.BreakerClosed, schedule.BreakerAttempts-1, 1)
	if since := f.state(0).UnansweredSince; since < began || since > began+1000 {
		f.Fatalf("no answer since %d, want since %d", since, began)
	}
	f.answer(0, 1, schedule.Unanswered)
	f.expectState(0, schedule.BreakerOpen, schedule.BreakerAttempts, 1)
	rest := schedule.BreakerRest.Milliseconds()
	if left := f.state(0).ProbeAt - f.Now(); left < rest-1000 || left > rest*11/10 {
		f.Fatalf("a probe is let pass in %d ms, want %s and a little", left, schedule.BreakerRest)
	}
	f.quiet()
}

func breakerStaysClosed(f *fixture) {
	// Many in no time are a burst and no outage; the next one that lies far enough from the first opens it.
	f.fail(0, schedule.BreakerAttempts+10, 0)
	f.expectState(0, schedule.BreakerClosed, schedule.BreakerAttempts, 1)
	f.pass(schedule.BreakerSpan - 2*time.Second)
	f.answer(0, 1, schedule.TimedOut)
	f.expectState(0, schedule.BreakerClosed, schedule.BreakerAttempts, 1)
	f.pass(2 * time.Second)
	f.answer(0, 1, schedule.Unanswered)
	f.expectState(0, schedule.BreakerOpen, schedule.BreakerAttempts, 1)
	// An answer in between begins the count anew; what says nothing does not.
	f.reset()
	f.fail(0, schedule.BreakerAttempts-1, time.Second)
	f.answer(0, 1, schedule.Answered)
	f.expectState(0, schedule.BreakerClosed, 0, 2)
	f.fail(0, schedule.BreakerAttempts-1, time.Second)
	f.answer(0, 3, schedule.NoSignal)
	f.expectState(0, schedule.BreakerClosed, schedule.BreakerAttempts-1, 1)
	f.answer(0, 1, schedule.Unanswered)
	f.expectState(0, schedule.BreakerOpen, schedule.BreakerAttempts, 1)
	// Only time-outs lower the concurrency before that.
	f.reset()
	for range schedule.BreakerAttempts - 1 {
		f.answer(0, 1, schedule.Unanswered)
	}
	f.expectState(0, schedule.BreakerClosed, schedule.BreakerAttempts-1, schedule.StartConcurrency)
	if h := f.state(0).Health; h != schedule.Unproven {
		f.Fatalf("refused connections made the lane's health %d", h)
	}
	f.quiet()
}

func breakerKeeps(f *fixture) {
	probe := f.trip(0).ProbeAt
	waiting := f.items(0, 30)
	f.ensure(waiting...)
	for range 3 {
		c := f.claim(f.allowing(0, 50, 50, 50))
		if len(c.Leases) != 0 || c.More || !c.Waiting || c.Next == 0 || c.Next > probe {
			f.Fatalf("while the breaker is open until %d: %+v", probe, c)
		}
		f.pass(2 * time.Second)
	}
	if s := f.stats(); s.BlockedLanes != 1 || s.RunnableLanes != 0 || s.OpenBreakers != 1 {
		f.Fatalf("%d lanes are blocked, %d runnable, %d breakers open; want 1, 0, 1", s.BlockedLanes, s.RunnableLanes, s.OpenBreakers)
	}
	f.move(waiting[0].Ref(), f.Now(), schedule.MovedHeld)
	f.moveForced(waiting[1].Ref(), f.Now(), schedule.MovedIt)
	f.takeOne(waiting[1].ID)
	f.quiet()
}

// breakerProbe: one item in total, whoever asks, and whatever allowances say.
func breakerProbe(f *fixture) {
	f.trip(0)
	f.ensure(f.items(0, 30)...)
	f.untilProbe(0)
	if c := f.claim(f.empty()); !c.More {
		f.Fatalf("when a probe is due: %+v", c)
	}
	var got []schedule.Lease
	for i := range 9 {
		req := f.allowing(0, 50, 50*(i%2), 50)
		req.Owner = []string{"one", "two", "three"}[i%3]
		c := f.claim(req)
		got = append(got, c.Leases...)
		if c.More {
			f.Fatalf("beside a probe more could be claimed: %+v", c)
		}
	}
	if len(got) != 1 || got[0].Ahead {
		f.Fatalf("%d were leased as probes: %+v", len(got), got)
	}
	f.expectState(0, schedule.BreakerProbing, schedule.BreakerAttempts, 1)
	f.quiet()
}

// empty is a claim that promotes and reaps.
func (f *fixture) empty() schedule.ClaimRequest {
	req := f.wide()
	req.Max = 0
	return req
}

func breakerCloses(f *fixture) {
	f.answer(0, 9, schedule.Answered)
	f.trip(0)
	f.ensure(f.items(0, 60)...)
	f.untilProbe(0)
	probe := f.take()
	if len(probe) != 1 {
		f.Fatalf("%d were leased as probes", len(probe))
	}
	f.ack(probe, schedule.Answered)
	f.expectState(0, schedule.BreakerClosed, 0, 1)
	// It begins anew, with one at a time, and doubles with answers.
	for want := 1; want <= 16; want *= 2 {
		leases := f.take()
		if len(leases) != want {
			f.Fatalf("%d were leased at once, want %d", len(leases), want)
		}
		f.ack(leases[:1], schedule.Answered)
		f.ack(leases[1:], schedule.NoSignal)
	}
	// To open again it takes as much as at first.
	f.cancelAll()
	f.fail(0, schedule.BreakerAttempts-1, time.Second)
	f.expectState(0, schedule.BreakerClosed, schedule.BreakerAttempts-1, 1)
	f.quiet()
}

// cancelAll removes what waits.
func (f *fixture) cancelAll() {
	f.Helper()
	var refs []schedule.Ref
	for _, found := range f.scan(0) {
		refs = append(refs, found.Ref())
	}
	_, err := f.Index.Cancel(f.ctx, refs)
	f.no(err)
}

func breakerStaysOpen(f *fixture) {
	f.trip(0)
	f.ensure(f.items(0, 30)...)
	for _, signal := range []schedule.Signal{schedule.TimedOut, schedule.Unanswered, schedule.Unanswered} {
		f.untilProbe(0)
		probe := f.take()
		if len(probe) != 1 {
			f.Fatalf("%d were leased as probes", len(probe))
		}
		f.pass(3 * time.Second)
		before := f.Now()
		f.ack(probe, signal)
		f.expectState(0, schedule.BreakerOpen, schedule.BreakerAttempts, 1)
		rest := schedule.BreakerRest.Milliseconds()
		if left := f.state(0).ProbeAt - before; left < rest || left > rest*11/10 {
			f.Fatalf("after a probe without an answer the next is let pass in %d ms", left)
		}
		if got := f.take(); len(got) != 0 {
			f.Fatalf("%v were leased after a probe without an answer", idsOf(got))
		}
	}
	f.quiet()
}

// breakerProbesAgain: a probe that is put back, is of something that is gone, or whose lease ends, makes room for another.
func breakerProbesAgain(f *fixture) {
	f.trip(0)
	f.ensure(f.items(0, 30)...)
	f.untilProbe(0)
	for _, o := range []schedule.Outcome{schedule.Divert, schedule.Ack, schedule.Reschedule, schedule.Bury} {
		probe := f.take()
		if len(probe) != 1 {
			f.Fatalf("%d were leased as probes", len(probe))
		}
		s := settled(probe[0], o)
		s.Due = f.Now() + 3600_000
		f.expectSettled(s, schedule.Applied)
		f.expectState(0, schedule.BreakerProbing, schedule.BreakerAttempts, 1)
	}
	probe := f.take()
	f.pass(31 * time.Second)
	c := f.claim(f.wide())
	if len(probe) != 1 || c.Reaped != 1 || len(c.Leases) != 1 {
		f.Fatalf("%d probes, %d reaped, then %d", len(probe), c.Reaped, len(c.Leases))
	}
	f.ack(c.Leases, schedule.Answered)
	f.expectState(0, schedule.BreakerClosed, 0, 1)
	f.quiet()
}

// breakerInFlight: attempts that were in flight when it opened are probes of their own.
func breakerInFlight(f *fixture) {
	for _, answer := range []bool{true, false} {
		f.reset()
		f.answer(0, 4, schedule.Answered)
		f.ensure(f.items(0, 60)...)
		leases := f.take()
		f.cancelAll()
		f.extendAll(leases, 5*time.Minute)
		f.ack(leases[:1], schedule.Unanswered)
		f.pass(schedule.BreakerSpan)
		f.ack(leases[1:20], schedule.Unanswered)
		f.expectState(0, schedule.BreakerOpen, schedule.BreakerAttempts, 1)
		f.ensure(f.items(0, 10)...)
		if f.take(); answer {
			f.expectStanding(1, 0)
			f.ack(leases[20:21], schedule.Answered)
			f.expectState(0, schedule.BreakerClosed, 0, 1)
			f.expectStanding(0, 0) // it is full
			f.ack(leases[21:], schedule.NoSignal)
			f.expectStanding(0, 1)
			continue
		}
		f.untilProbe(0)
		if got := f.take(); len(got) != 0 {
			f.Fatalf("%d were leased as probes beside %d that are in flight", len(got), len(leases)-20)
		}
		before := f.Now()
		f.ack(leases[20:], schedule.TimedOut)
		if left := f.state(0).ProbeAt - before; left > schedule.BreakerRest.Milliseconds()*11/10 {
			f.Fatalf("what was in flight made the next probe wait for %d ms", left)
		}
		f.untilProbe(0)
		if got := f.take(); len(got) != 1 {
			f.Fatalf("%d were leased as probes when nothing was in flight any more", len(got))
		}
	}
	f.quiet()
}

// expectStanding wants so many lanes to be blocked, and so many to be runnable.
func (f *fixture) expectStanding(blocked, runnable int64) {
	f.Helper()
	if s := f.stats(); s.BlockedLanes != blocked || s.RunnableLanes != runnable {
		f.Fatalf("%d lanes are blocked and %d runnable, want %d and %d", s.BlockedLanes, s.RunnableLanes, blocked, runnable)
	}
}

func (f *fixture) extendAll(leases []schedule.Lease, d time.Duration) {
	f.Helper()
	var all []schedule.Extension
	for _, l := range leases {
		all = append(all, schedule.Extension{Ref: l.Ref(), Token: l.Token, Until: f.Now() + d.Milliseconds()})
	}
	_, err := f.Index.Extend(f.ctx, all)
	f.no(err)
}

// breakerForced: one that is forced takes the place of the probe, and its result is heard.
func breakerForced(f *fixture) {
	f.trip(0)
	forced, second := f.press(0), f.press(0)
	f.ensure(f.items(0, 10)...)
	f.ensure(forced, second)
	l := f.takeOne(forced.ID)
	f.untilProbe(0)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("%v were leased beside the only one", idsOf(got))
	}
	s := settled(l, schedule.Reschedule)
	s.Signal, s.Due, s.Forced = schedule.Unanswered, f.Now()+3600_000, false
	f.expectSettled(s, schedule.Applied)
	f.expectState(0, schedule.BreakerOpen, schedule.BreakerAttempts, 1)
	l = f.takeOne(second.ID)
	f.ack([]schedule.Lease{l}, schedule.Answered)
	f.expectState(0, schedule.BreakerClosed, 0, 1)
	if got := f.take(); len(got) != 1 {
		f.Fatalf("%d were leased at once, want 1", len(got))
	}
	f.quiet()
}

// breakerOverruled: what the winner of SQL's fence says of an item that is not leased may be said a second time.
func breakerOverruled(f *fixture) {
	f.fail(0, schedule.BreakerAttempts-1, time.Second)
	item := f.item(0, time.Hour)
	f.ensure(item)
	for _, signal := range []schedule.Signal{schedule.Unanswered, schedule.TimedOut, schedule.Answered} {
		s := schedule.Settlement{Item: item, Token: "t", Outcome: schedule.Reschedule, Won: true, Signal: signal}
		f.expectSettled(s, schedule.Applied)
		s.Won, s.Token = false, "other"
		f.expectSettled(s, schedule.Stale)
		f.expectState(0, schedule.BreakerClosed, schedule.BreakerAttempts-1, 1)
	}
	f.quiet()
}
