package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var settleChecks = []check{
	{"WonPutsWhatSQLSays", settleWon},
	{"TwiceIsLikeOnce", settleTwice},
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
