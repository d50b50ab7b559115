package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var rateChecks = []check{
	{"IsExactOverTime", rateExact},
	{"CatchesUpNoMoreThanAMoment", rateCatchesUp},
}

// set makes a setting with a version above that of every earlier one.
func (f *fixture) set(s schedule.LaneSetting) {
	f.Helper()
	f.tokens++
	s.Version = int64(f.tokens)
	f.no(f.Index.SetLanes(f.ctx, []schedule.LaneSetting{s}))
}

func (f *fixture) setRate(i int, every time.Duration) {
	f.Helper()
	f.set(schedule.LaneSetting{Lane: f.lanes[i], Every: every, Limit: 1000})
}

// quicken gives the i-th lane a concurrency that no test of a rate uses up.
func (f *fixture) quicken(i int) {
	f.Helper()
	f.set(schedule.LaneSetting{Lane: f.lanes[i], Limit: 1000})
	f.answer(i, 9, schedule.Answered)
}

// rateExact: with twice as much to do as its rate allows a lane gets its rate, and a claimer that sleeps
// until each reply's next event neither oversleeps nor spins.
func rateExact(f *fixture) {
	for _, c := range []struct {
		every  time.Duration
		length time.Duration
	}{
		{time.Second / 500, 4 * time.Second},
		{time.Second / 50, 10 * time.Second},
		{time.Second / 3, 100 * time.Second},
		{time.Minute / 7, 20 * time.Minute},
	} {
		f.reset()
		f.quicken(0)
		expected := float64(c.length) / float64(c.every)
		f.ensure(f.items(0, int(2*expected))...)
		f.promoteAll()
		f.setRate(0, c.every)
		fl := f.drainFor(c.length)
		expected *= float64(fl.lasted) / float64(c.length.Milliseconds())
		off := 0.02 + float64(int64(fl.stalls)*schedule.TokenStep.Milliseconds())/float64(fl.lasted)
		if got := float64(fl.leases) / expected; got < 1-off || got > 1+off {
			f.Fatalf("one in %s gave %d leases in %d ms, %.3f of what it should", c.every, fl.leases, fl.lasted, got)
		}
		// Tokens come in steps of 10 ms, so that many are claimed at once; in between nothing is claimed in
		// vain.
		most := int(min(expected, c.length.Seconds()*100)) + 20 + fl.leases/100
		if fl.claims > most || fl.empty > most/20+2 {
			f.Fatalf("%d claims, %d of them in vain, for %d leases; want %d at most", fl.claims, fl.empty, fl.leases, most)
		}
		f.quiet()
	}
	f.reset()
	f.setRate(0, time.Microsecond)
	f.ensure(f.items(0, 10)...)
	if got := f.take(); len(got) == 0 {
		f.Fatalf("nothing was claimed of a lane that may give a million a second")
	}
}

// empty is a claim that promotes and reaps.
func (f *fixture) empty() schedule.ClaimRequest {
	req := f.wide()
	req.Max = 0
	return req
}

// promoteAll makes ready what is due.
func (f *fixture) promoteAll() {
	f.Helper()
	for s := f.stats(); s.HeadDue != 0 && s.HeadDue <= s.Now; s = f.stats() {
		f.claim(f.empty())
	}
}

// rateCatchesUp: what was not used for long is lost, but for the last 100 ms.
func rateCatchesUp(f *fixture) {
	f.quicken(0)
	f.ensure(f.items(0, 300)...)
	f.promoteAll()
	f.setRate(0, time.Second/50)
	for _, idle := range []time.Duration{5 * time.Second, time.Minute} {
		f.pass(idle)
		// Of 100 ms there are five, and the one whose time it is.
		if got := len(f.take()); got != 6 {
			f.Fatalf("after %s without a claim a lane of 50/s gave %d at once, want 6", idle, got)
		}
	}
}

// A flood is what a claimer did that slept until each reply's next event.
type flood struct {
	leases, claims, empty int
	lasted                int64 // ms in which tokens could be given
	stalls                int   // each leaves less than a step of the tokens in doubt
}

// drainFor claims for so long, and answers all at once, as a claimer does that sleeps until the next event of
// each reply.
func (f *fixture) drainFor(d time.Duration) flood {
	f.Helper()
	var fl flood
	var began, wake int64
	for {
		c := f.claim(f.wide())
		if began == 0 {
			began, wake = c.Now, c.Now
		}
		// A busy machine wakes the claimer too late for some tokens.
		if late := c.Now - wake - schedule.CatchUp.Milliseconds(); late > 0 {
			began += late
			fl.stalls++
		}
		f.ack(c.Leases, schedule.Answered)
		fl.claims++
		if fl.lasted = c.Now - began; fl.lasted >= d.Milliseconds() {
			return fl
		}
		fl.leases += len(c.Leases)
		if len(c.Leases) == 0 {
			fl.empty++
		}
		if wake = c.Now; c.More {
			continue
		}
		if c.Next == 0 {
			f.Fatalf("nothing is in sight after %d leases", fl.leases)
		}
		wake = max(c.Next, c.Now)
		f.pass(time.Duration(wake-f.Now()) * time.Millisecond)
	}
}

// Keeps are the ways in which Keep keeps lanes back.
func Keeps() []string { return []string{"held", "paused", "without a token", "open"} }

// Keep gives the lanes from first on, at most schedule.MaxBatch, one ready item each that they keep back:
// because they are held or paused, have no token, or their breaker is open, which is so for 15 s of the
// index's clock. The index may hold nothing else that is due.
func Keep(tb testing.TB, h Harness, how string, first int64, lanes int) {
	tb.Helper()
	f := &fixture{tb: tb, Harness: h, ctx: context.Background(), ids: 1 << 42, tokens: 1 << 42}
	for i := range lanes {
		f.lanes = append(f.lanes, first+int64(i))
	}
	switch how {
	case "held":
		var settlements []schedule.Settlement
		for _, item := range f.oneEach() {
			settlements = append(settlements, schedule.Settlement{
				Item: item, Token: "t", Outcome: schedule.Ack, Won: true, HoldUntil: f.Now() + 3600_000,
			})
		}
		f.settle(settlements...)
	case "paused":
		f.setAll(schedule.LaneSetting{PausedUntil: f.Now() + 3600_000, Version: 1})
	case "without a token":
		f.setAll(schedule.LaneSetting{Every: 24 * time.Hour, Version: 1})
		f.ensure(f.oneEach()...)
		for taken := 0; taken < lanes; {
			leases := f.take()
			if len(leases) == 0 {
				f.Fatalf("%d of %d lanes gave their token", taken, lanes)
			}
			f.ack(leases, schedule.Answered)
			taken += len(leases)
		}
	case "open":
		f.openAll()
	default:
		f.Fatalf("lanes cannot be kept %q", how)
	}
	f.ensure(f.oneEach()...)
	f.promoteAll()
	if s := f.stats(); s.BlockedLanes != int64(lanes) {
		f.Fatalf("%d lanes are blocked, want %d", s.BlockedLanes, lanes)
	}
}

// oneEach returns an item of each lane that is due now.
func (f *fixture) oneEach() []schedule.Item {
	var items []schedule.Item
	for i := range f.lanes {
		items = append(items, f.item(i, 0))
	}
	return items
}

// setAll makes the setting for every lane.
func (f *fixture) setAll(s schedule.LaneSetting) {
	f.Helper()
	var settings []schedule.LaneSetting
	for _, lane := range f.lanes {
		s.Lane = lane
		settings = append(settings, s)
	}
	f.no(f.Index.SetLanes(f.ctx, settings))
}

// openAll opens every lane's breaker in the same moment.
func (f *fixture) openAll() {
	f.Helper()
	for round := range schedule.BreakerAttempts {
		if round == schedule.BreakerAttempts-1 {
			f.pass(schedule.BreakerSpan)
		}
		var adoptions []schedule.Adoption
		var settlements []schedule.Settlement
		for _, item := range f.oneEach() {
			adoptions = append(adoptions, schedule.Adoption{Item: item, Token: "t", Until: f.Now() + 60_000})
			settlements = append(settlements, schedule.Settlement{
				Item: item, Token: "t", Outcome: schedule.Ack, Signal: schedule.Unanswered,
			})
		}
		f.no(f.Index.Adopt(f.ctx, adoptions))
		f.settle(settlements...)
	}
	for _, s := range f.states(f.lanes...) {
		if s.Breaker != schedule.BreakerOpen {
			f.Fatalf("a lane of which nothing was answered is %+v", s)
		}
	}
}
