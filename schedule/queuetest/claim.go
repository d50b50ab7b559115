package queuetest

import (
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var claimChecks = []check{
	{"WithALeadWhatIsDueIsFirstOfBothKinds", leadAcrossKinds},
	{"NextIsAsEarlyAsTheLeadAllows", leadNext},
	{"ZeroAndThePastAreNow", zeroIsNow},
	{"RepeatedTokenReturnsTheSameBatch", repeatedToken},
	{"ReapsManyInSteps", reapsMany},
	{"CountsDivertsInARow", divertsInARow},
}

func zeroIsNow(f *fixture) {
	before := f.Now()
	zero, past := f.item(0, 0), f.item(0, -24*time.Hour)
	zero.Due = 0
	f.ensure(zero, past)
	leases := f.take()
	if len(leases) != 2 || leases[0].ID != past.ID || leases[1].ID != zero.ID {
		f.Fatalf("claimed %v, want the one of the past and then the one of now", idsOf(leases))
	}
	if leases[1].Due < before || leases[1].Due > f.Now() {
		f.Fatalf("due zero became %d; now is %d", leases[1].Due, f.Now())
	}
}

func repeatedToken(f *fixture) {
	f.ensure(f.items(0, 3)...)
	req := f.wide()
	first := f.claim(req)
	if len(first.Leases) != 3 {
		f.Fatalf("claimed %d of 3", len(first.Leases))
	}
	f.ensure(f.items(1, 3)...)
	again := f.claim(req)
	for i := range first.Leases {
		first.Leases[i].Full = true // whether their lane is is not known any more
	}
	if diff := cmp.Diff(sorted(first.Leases), sorted(again.Leases)); diff != "" {
		f.Fatalf("the repeated claim differs (-first +again):\n%s", diff)
	}
	f.expectSettled(settled(first.Leases[1], schedule.Ack), schedule.Applied)
	rest := idsOf(sorted(f.claim(req).Leases))
	if want := []string{first.Leases[0].ID, first.Leases[2].ID}; !slices.Equal(rest, want) {
		f.Fatalf("after one was settled the repeated claim has %v, want %v", rest, want)
	}
	other := f.take()
	if len(other) != 3 || other[0].Lane != f.lanes[1] {
		f.Fatalf("the next token claimed %v, want the three new ones", idsOf(other))
	}
	if late := f.claim(req); len(late.Leases) != 0 {
		f.Fatalf("a token that is not the last one's returned %v", idsOf(late.Leases))
	}
}

// sorted returns the leases by id.
func sorted(leases []schedule.Lease) []schedule.Lease {
	return slices.SortedFunc(slices.Values(leases), func(a, b schedule.Lease) int { return strings.Compare(a.ID, b.ID) })
}

func reapsMany(f *fixture) {
	f.answer(0, 7, schedule.Answered)
	f.ensure(f.items(0, 250)...)
	if got := f.take(); len(got) != 250 {
		f.Fatalf("claimed %d of 250", len(got))
	}
	f.pass(time.Minute)
	reaped := 0
	for range 10 {
		c := f.claim(f.empty())
		if c.Reaped > 100 {
			f.Fatalf("one claim reaped %d", c.Reaped)
		}
		reaped += c.Reaped
	}
	if reaped != 250 {
		f.Fatalf("reaped %d of 250", reaped)
	}
	f.pass(time.Second)
	if got := f.take(); len(got) != 250 {
		f.Fatalf("%d of 250 came back", len(got))
	}
	f.quiet()
}

// led is a claim with the longest lead.
func (f *fixture) led() schedule.ClaimRequest {
	req := f.wide()
	req.Lead = schedule.MaxLead
	return req
}

// leadAcrossKinds: an item that is not due yet does not overtake one that is due, also where it is of the
// other kind and has its turn.
func leadAcrossKinds(f *fixture) {
	for _, retry := range []bool{true, false} {
		early := f.item(0, time.Minute)
		early.Retry = !retry
		f.ensure(early)
		f.pass(55 * time.Second)
		var due []schedule.Item
		for range 6 {
			item := f.item(0, 0)
			item.Retry = retry
			due = append(due, item)
		}
		f.ensure(due...)
		for _, want := range append(due, early) {
			one := f.led()
			one.Max = 1
			got := f.claim(one).Leases
			if len(got) != 1 || got[0].ID != want.ID {
				f.Fatalf("claimed %v, want %s; what is not due is a retry: %t", idsOf(got), want.ID, early.Retry)
			}
			f.ack(got, schedule.Answered)
		}
	}
}

// leadNext: half the lead before an item is due, and not before the end of a lease: a claim would find
// nothing.
func leadNext(f *fixture) {
	item := f.item(0, time.Hour)
	f.ensure(item)
	if c := f.claim(f.led()); c.Next != item.Due-schedule.MaxLead.Milliseconds()/2 {
		f.Fatalf("next is %d, want half the lead before %d", c.Next, item.Due)
	}
	if c := f.claim(f.wide()); c.Next != item.Due {
		f.Fatalf("next of a claim without a lead is %d, want %d", c.Next, item.Due)
	}
	lease := f.one()
	if c := f.claim(f.led()); c.Next != lease.Until {
		f.Fatalf("next is %d, want the end of the lease, %d", c.Next, lease.Until)
	}
}

// divertsInARow: a settlement that is repeated is no other divert, and an attempt ends the row.
func divertsInARow(f *fixture) {
	l := f.one()
	for _, c := range []struct {
		outcome schedule.Outcome
		want    int
	}{{schedule.Divert, 1}, {schedule.Divert, 2}, {schedule.Reschedule, 0}, {schedule.Divert, 1}} {
		s := settled(l, c.outcome)
		s.Won, s.Due = true, f.Now()
		f.expectSettled(s, schedule.Applied)
		if c.outcome == schedule.Divert {
			f.expectSettled(s, schedule.Applied)
		}
		if l = f.takeOne(l.ID); l.Diverts != c.want {
			f.Fatalf("after outcome %d it has %d diverts, want %d", c.outcome, l.Diverts, c.want)
		}
	}
}
