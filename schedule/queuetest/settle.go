package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var settleChecks = []check{
	{"EndsTheLease", settleEnds},
	{"NeedsTheLeasesToken", settleToken},
	{"OfWhatIsNotLeased", settleNotLeased},
	{"WonPutsWhatSQLSays", settleWon},
	{"WonLeavesAnothersLease", settleWonLeased},
	{"TwiceIsLikeOnce", settleTwice},
	{"DivertsAreCounted", diverts},
	{"ExpiredButNotReaped", settleExpired},
}

// settleEnds: what each outcome leaves behind.
func settleEnds(f *fixture) {
	for _, o := range []schedule.Outcome{schedule.Ack, schedule.Reschedule, schedule.Divert, schedule.Bury} {
		l := f.one()
		s := settled(l, o)
		s.Due, s.Retry = f.Now()+3600_000, true
		f.expectSettled(s, schedule.Applied)
		if o == schedule.Ack || o == schedule.Bury {
			f.expectPlace(l.Ref(), schedule.Absent)
			continue
		}
		f.expectAt(l.Ref(), s.Due)
		if !f.find(l.Ref()).Retry {
			f.Fatalf("outcome %d lost that it is a retry", o)
		}
		if got := f.take(); len(got) != 0 {
			f.Fatalf("outcome %d: %v was claimed early", o, idsOf(got))
		}
		f.pass(time.Hour)
		if got := f.takeOne(l.ID); !got.Retry || got.Due != s.Due {
			f.Fatalf("outcome %d came back as %+v", o, got)
		}
		f.reset()
	}
	f.quiet()
}

func settleToken(f *fixture) {
	l := f.one()
	for _, o := range []schedule.Outcome{schedule.Ack, schedule.Reschedule, schedule.Divert, schedule.Bury} {
		s := settled(l, o)
		s.Token, s.Due, s.Signal, s.HoldUntil = "other", 0, schedule.TimedOut, f.Now()+3600_000
		f.expectSettled(s, schedule.Stale)
		f.expectPlace(l.Ref(), schedule.Leased)
	}
	f.expectSettled(settled(l, schedule.Ack), schedule.Applied)
	// The stale ones held nothing and taught the lane nothing.
	if next := f.one(); next.Health != schedule.Unproven {
		f.Fatalf("stale settlements changed the lane's health to %d", next.Health)
	}
}

func settleNotLeased(f *fixture) {
	delayed := f.item(0, time.Hour)
	f.ensure(delayed)
	f.expectSettled(schedule.Settlement{Item: delayed, Token: "any", Outcome: schedule.Ack}, schedule.Stale)
	f.expectAt(delayed.Ref(), delayed.Due)
	absent := f.item(0, 0)
	for _, o := range []schedule.Outcome{schedule.Ack, schedule.Reschedule, schedule.Divert, schedule.Bury} {
		f.expectSettled(schedule.Settlement{Item: absent, Token: "any", Outcome: o}, schedule.Gone)
	}
	f.expectPlace(absent.Ref(), schedule.Absent)
}

func settleWon(f *fixture) {
	due := f.Now() + 2*3600_000
	for _, o := range []schedule.Outcome{schedule.Ack, schedule.Reschedule, schedule.Divert, schedule.Bury} {
		absent, delayed := f.item(0, 0), f.item(0, time.Hour)
		ready := f.items(1, 6)
		f.ensure(delayed)
		f.ensure(ready...)
		leases := f.take()
		for _, item := range []schedule.Item{absent, delayed, ready[5]} {
			item.Due, item.Retry = due, true
			f.expectSettled(schedule.Settlement{Item: item, Token: "lost", Outcome: o, Won: true}, schedule.Applied)
			if o == schedule.Ack || o == schedule.Bury {
				f.expectPlace(item.Ref(), schedule.Absent)
				continue
			}
			f.expectAt(item.Ref(), due)
			if found := f.find(item.Ref()); !found.Retry {
				f.Fatalf("outcome %d: the winner's item is not a retry", o)
			}
		}
		f.ack(leases, schedule.NoSignal)
		f.quiet()
	}
}

func settleWonLeased(f *fixture) {
	l := f.one()
	s := settled(l, schedule.Reschedule)
	s.Token, s.Won, s.Due = "earlier", true, f.Now()+3600_000
	f.expectSettled(s, schedule.Stale)
	f.expectPlace(l.Ref(), schedule.Leased)
	s.Token = l.Token
	f.expectSettled(s, schedule.Applied)
	f.expectAt(l.Ref(), s.Due)
}

// settleTwice: the reply to a settlement may be lost, and the settlement repeated.
func settleTwice(f *fixture) {
	for _, won := range []bool{false, true} {
		for _, o := range []schedule.Outcome{schedule.Ack, schedule.Reschedule, schedule.Divert, schedule.Bury} {
			l := f.one()
			s := settled(l, o)
			s.Won, s.Due, s.Signal = won, f.Now()+3600_000, schedule.Answered
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
			f.pass(time.Hour)
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

func diverts(f *fixture) {
	l := f.one()
	for n := 1; n <= 3; n++ {
		f.expectSettled(settled(l, schedule.Divert), schedule.Applied)
		if l = f.takeOne(l.ID); l.Diverts != n {
			f.Fatalf("%d diverts are counted, want %d", l.Diverts, n)
		}
	}
	f.pass(31 * time.Second)
	req := f.wide()
	req.Max = 0
	f.claim(req)
	f.pass(time.Second)
	if l = f.takeOne(l.ID); l.Diverts != 3 {
		f.Fatalf("after a reap %d diverts are counted, want 3", l.Diverts)
	}
	f.expectSettled(settled(l, schedule.Reschedule), schedule.Applied)
	if l = f.takeOne(l.ID); l.Diverts != 0 {
		f.Fatalf("after a reschedule %d diverts are counted, want none", l.Diverts)
	}
}

// settleExpired: a lease that has ended but that nobody has reaped is still its holder's.
func settleExpired(f *fixture) {
	l := f.one()
	f.pass(time.Minute)
	f.expectSettled(settled(l, schedule.Ack), schedule.Applied)
	if c := f.claim(f.wide()); c.Reaped != 0 || len(c.Leases) != 0 {
		f.Fatalf("after the settlement %+v", c)
	}
}
