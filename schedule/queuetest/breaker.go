package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var breakerChecks = []check{
	{"OpensAfterManyInARowOverASpan", breakerOpens},
	{"HearsWhatWasInFlight", breakerInFlight},
	{"SpreadsItsProbes", breakerSpread},
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

// empty is a claim that promotes and reaps.
func (f *fixture) empty() schedule.ClaimRequest {
	req := f.wide()
	req.Max = 0
	return req
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

// breakerSpread: lanes that failed together are not probed together, and each is at the same distance every
// time.
func breakerSpread(f *fixture) {
	const lanes = 60
	f.findLanes(lanes)
	f.openAll()
	apart := make(map[int64]int)
	for _, s := range f.states(f.lanes...) {
		apart[s.ProbeAt/20]++
	}
	for at, n := range apart {
		if n > lanes/3 {
			f.Fatalf("%d of %d probes lie within 20 ms of %d", n, lanes, at)
		}
	}
	f.quiet()
}
