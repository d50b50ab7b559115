package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var rateChecks = []check{
	{"IsExactOverTime", rateExact},
	{"IsExactForEveryLaneByItself", rateOfLanes},
	{"KeepsOrderAndShares", rateOrder},
	{"CatchesUpNoMoreThanAMoment", rateCatchesUp},
	{"EndsWithTheTokens", rateAndAllowances},
	{"ChangesAtOnce", rateChanges},
	{"IsNothingToWhatIsForced", rateAndForced},
	{"TakesNothingForWhatIsPutBack", rateAndDiverts},
	{"KeepsWhatIsLeftOverAJump", rateAndJumps},
	{"CostsOthersNothing", rateOthers},
}

// perSecond, perMinute are the times between two attempts of such rates.
func perSecond(n int) time.Duration { return time.Second / time.Duration(n) }

func perMinute(n int) time.Duration { return time.Minute / time.Duration(n) }

// versions of settings go up with every one that a test makes.
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

// expectRate wants so many leases a second, to within 2 %.
func (f *fixture) expectRate(fl *flood, want float64) {
	f.Helper()
	if got := fl.perSecond(); got < want*0.98 || got > want*1.02 {
		f.Fatalf("%d leases in %d ms are %.2f a second, want %.2f", len(fl.leases), fl.ended-fl.began, got, want)
	}
}

// rateExact: with ten times as much to do as its rate allows a lane gets its rate, and a claimer that sleeps until each reply's next
// event neither oversleeps nor spins.
func rateExact(f *fixture) {
	for _, c := range []struct {
		every  time.Duration
		rate   float64 // a second
		length time.Duration
	}{
		{perSecond(3000), 3000, 2 * time.Second},
		{perSecond(50), 50, 20 * time.Second},
		{perSecond(3), 3, 100 * time.Second},
		{perMinute(7), 7. / 60, 20 * time.Minute},
		{time.Microsecond, 0, 0},
	} {
		f.reset()
		f.quicken(0)
		n := int(10*c.rate*c.length.Seconds()) + 400
		f.ensure(f.items(0, min(n, 20_000))...)
		f.promoteAll()
		f.setRate(0, c.every)
		if c.rate == 0 {
			if got := f.take(); len(got) == 0 {
				f.Fatalf("nothing was claimed of a lane that may give a million a second")
			}
			continue
		}
		fl := f.drainFor(c.length, 256)
		f.expectRate(fl, c.rate)
		// Tokens come in steps of 10 ms, so that many are claimed at once; in between nobody is woken.
		most := int(c.length.Seconds()*min(c.rate, 100)) + 20 + len(fl.leases)/100
		if fl.claims > most || fl.empty > most/20+2 {
			f.Fatalf("%d claims, %d of them in vain, for %d leases; want %d at most", fl.claims, fl.empty, len(fl.leases), most)
		}
		f.quiet()
	}
}

// promoteAll makes ready what is due.
func (f *fixture) promoteAll() {
	f.Helper()
	for s := f.stats(); s.HeadDue != 0 && s.HeadDue <= s.Now; s = f.stats() {
		f.claim(f.empty())
	}
}

// rateOfLanes: several lanes with rates of their own, claimed together.
func rateOfLanes(f *fixture) {
	rates := []int{40, 11, 3}
	for i := range rates {
		f.quicken(i)
	}
	for i, rate := range rates {
		f.ensure(f.items(i, 400)...)
		f.setRate(i, perSecond(rate))
	}
	fl := f.drainFor(10*time.Second, 7)
	for i, rate := range rates {
		n := 0
		for _, l := range fl.leases {
			if l.Lane == f.lanes[i] {
				n++
			}
		}
		if want := rate * 10; n < want-1 || n > want*51/50+2 {
			f.Fatalf("a lane of %d/s gave %d in %d ms, want %d", rate, n, fl.ended-fl.began, want)
		}
	}
	f.quiet()
}

// rateOrder: the items come in the order of due times within each kind, three fresh ones for each retry.
func rateOrder(f *fixture) {
	f.quicken(0)
	items := f.items(0, 400)
	for i := range items {
		items[i].Due -= int64(1000 - i)
		items[i].Retry = i%2 == 0
	}
	f.ensure(items...)
	f.promoteAll()
	f.setRate(0, perSecond(20))
	fl := f.drainFor(8*time.Second, 256)
	var last [2]int64
	var n [2]int
	for _, l := range fl.leases {
		kind := 0
		if l.Retry {
			kind = 1
		}
		n[kind]++
		if l.Due < last[kind] {
			f.Fatalf("%s, due %d, was claimed after what is due at %d", l.ID, l.Due, last[kind])
		}
		last[kind] = l.Due
	}
	if got := n[0] - schedule.FreshShare*n[1]; got < -schedule.FreshShare || got > schedule.FreshShare {
		f.Fatalf("%d fresh ones and %d retries were claimed", n[0], n[1])
	}
}

// rateCatchesUp: what was not used for long is lost, but for the last 100 ms.
func rateCatchesUp(f *fixture) {
	f.quicken(0)
	f.ensure(f.items(0, 300)...)
	f.promoteAll()
	f.setRate(0, perSecond(50))
	for _, idle := range []time.Duration{5 * time.Second, time.Minute} {
		f.pass(idle)
		// Of 100 ms there are five, and the one whose time it is.
		if got := len(f.take()); got != 6 {
			f.Fatalf("after %s without a claim a lane of 50/s gave %d at once, want 6", idle, got)
		}
	}
	// With less than one in that time it is still one, and the next comes so much sooner.
	f.setRate(0, time.Second)
	f.pass(time.Minute)
	fl := f.drainFor(9500*time.Millisecond, 256)
	if n := len(fl.leases); n != 10 && n != 11 {
		f.Fatalf("a lane of 1/s gave %d in 9.5 s, want 10", n)
	}
	if first := fl.at[1] - fl.at[0]; first < 890 || first > 1010 {
		f.Fatalf("the second came %d ms after the first", first)
	}
}

// rateAndAllowances: neither credit nor ahead gives more than there are tokens.
func rateAndAllowances(f *fixture) {
	f.quicken(0)
	f.ensure(f.items(0, 100)...)
	f.promoteAll()
	f.setRate(0, time.Hour)
	leases := f.expectClaim(f.allowing(0, 9, 50, 50), 1, 0)
	f.expectClaim(f.allowing(0, 9, 50, 50), 0, 0)
	f.ack(leases, schedule.Answered)
	c := f.claim(f.allowing(0, 9, 50, 50))
	if len(c.Leases) != 0 || c.More || !c.Waiting {
		f.Fatalf("without a token: %+v", c)
	}
	if left := c.Next - c.Now; left < 3590_000 || left > 3600_010 {
		f.Fatalf("next is in %d ms, want an hour", left)
	}
	if s := f.stats(); s.BlockedLanes != 1 || s.RunnableLanes != 0 {
		f.Fatalf("%d lanes are blocked and %d runnable, want 1 and 0", s.BlockedLanes, s.RunnableLanes)
	}
	f.quiet()
}

func rateChanges(f *fixture) {
	f.quicken(0)
	f.ensure(f.items(0, 300)...)
	f.promoteAll()
	f.setRate(0, time.Hour)
	if got := f.take(); len(got) != 1 {
		f.Fatalf("a new rate gave %d at once, want 1", len(got))
	}
	// A faster one: nobody waits for what the slower one promised.
	f.setRate(0, time.Minute)
	if left := f.state(0).NextToken - f.Now(); left < 58_000 || left > 60_010 {
		f.Fatalf("after a change to 1/m the next token is %d ms away", left)
	}
	f.setRate(0, perSecond(50))
	f.pass(20 * time.Millisecond)
	if got := f.take(); len(got) < 1 || len(got) > 6 {
		f.Fatalf("20 ms after a change to 50/s %d were given", len(got))
	}
	// A slower one holds from the next token on.
	f.setRate(0, time.Hour)
	f.pass(time.Second)
	f.take()
	if got := f.take(); len(got) != 0 {
		f.Fatalf("%d were given beyond a rate of 1/h", len(got))
	}
	// The same again changes nothing; an older version, neither.
	f.setRate(0, time.Hour)
	f.no(f.Index.SetLanes(f.ctx, []schedule.LaneSetting{{Lane: f.lanes[0], Limit: 1000, Version: 1}}))
	if got := f.take(); len(got) != 0 {
		f.Fatalf("%d were given although nothing has changed", len(got))
	}
	f.setRate(0, 0)
	if got := f.take(); len(got) < 200 {
		f.Fatalf("without a rate %d were given, want all that are left", len(got))
	}
	f.quiet()
}

func rateAndForced(f *fixture) {
	f.quicken(0)
	f.ensure(f.items(0, 20)...)
	f.promoteAll()
	f.setRate(0, time.Hour)
	f.ack(f.take(), schedule.NoSignal)
	forced := []schedule.Item{f.press(0), f.press(0), f.press(0)}
	f.ensure(forced...)
	f.ack(f.expectIDs(f.wide(), forced...), schedule.NoSignal)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("%d were given beside what is forced", len(got))
	}
	// They have not taken the tokens of the others.
	f.pass(time.Hour)
	more := f.press(0)
	f.ensure(more)
	got := f.take()
	if len(got) != 2 || got[0].ID != more.ID || got[1].Forced {
		f.Fatalf("an hour later %v were given, want %s and one more", idsOf(got), more.ID)
	}
	f.quiet()
}

// rateAndDiverts: of what is put back without a word of its lane no attempt was made.
func rateAndDiverts(f *fixture) {
	f.quicken(0)
	f.ensure(f.items(0, 20)...)
	f.promoteAll()
	f.setRate(0, time.Hour)
	for _, c := range []struct {
		outcome schedule.Outcome
		signal  schedule.Signal
		want    int
	}{
		{schedule.Divert, schedule.NoSignal, 1}, {schedule.Divert, schedule.NoSignal, 1}, {schedule.Divert, schedule.Answered, 0},
		{schedule.Reschedule, schedule.NoSignal, 0}, {schedule.Ack, schedule.NoSignal, 0},
	} {
		got := f.take()
		if len(got) == 0 {
			f.pass(time.Hour)
			got = f.take()
		}
		if len(got) != 1 {
			f.Fatalf("a lane with a token gave %d", len(got))
		}
		s := settled(got[0], c.outcome)
		s.Signal, s.Due = c.signal, f.Now()+400*3600_000
		f.expectSettled(s, schedule.Applied)
		more := f.take()
		if len(more) != c.want {
			f.Fatalf("after outcome %d with signal %d another %d were given, want %d", c.outcome, c.signal, len(more), c.want)
		}
		f.ack(more, schedule.NoSignal)
		f.pass(time.Hour)
	}
	// What is forced took none, and gives none back.
	f.take()
	forced := f.press(0)
	f.ensure(forced)
	s := settled(f.takeOne(forced.ID), schedule.Divert)
	s.Due = f.Now() + 400*3600_000
	f.expectSettled(s, schedule.Applied)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("%d were given for a token that was never taken", len(got))
	}
	f.quiet()
}

func rateAndJumps(f *fixture) {
	f.quicken(0)
	f.ensure(f.items(0, 20)...)
	f.promoteAll()
	f.setRate(0, time.Minute)
	f.take()
	for _, d := range []time.Duration{-time.Hour, 2 * time.Hour} {
		f.jump(d)
		if c := f.claim(f.wide()); len(c.Leases) != 0 || c.Next == 0 || c.Next > c.Now+60_010 {
			f.Fatalf("after a jump of %s: %+v", d, c)
		}
		f.pass(55 * time.Second)
		if got := f.take(); len(got) != 0 {
			f.Fatalf("a token came early after a jump of %s", d)
		}
		f.pass(6 * time.Second)
		if got := f.take(); len(got) != 1 {
			f.Fatalf("%d came of the token after a jump of %s", len(got), d)
		}
	}
	f.quiet()
}

// rateOthers: whatever waits for tokens, others are claimed as if it were not there.
func rateOthers(f *fixture) {
	lanes := 300
	f.findLanes(lanes + 1)
	var items []schedule.Item
	var settings []schedule.LaneSetting
	for i := range lanes {
		items = append(items, f.items(i, 3)...)
		settings = append(settings, schedule.LaneSetting{Lane: f.lanes[i], Every: time.Hour, Version: 1})
	}
	f.no(f.Index.SetLanes(f.ctx, settings))
	f.ensure(items...)
	for given := 0; given < lanes; {
		leases := f.take()
		if len(leases) == 0 {
			f.Fatalf("%d of %d lanes gave one", given, lanes)
		}
		given += len(leases)
		f.ack(leases, schedule.Answered)
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
