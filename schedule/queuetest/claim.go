package queuetest

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var claimChecks = []check{
	{"NeverEarly", neverEarly},
	{"EarlyByTheLead", earlyByTheLead},
	{"WithALeadWhatIsDueIsFirst", leadInOrder},
	{"WithALeadWhatIsDueIsFirstOfBothKinds", leadAcrossKinds},
	{"NextIsHalfTheLeadAhead", leadNext},
	{"WithALeadAnEndIsNotAwaitedEarlier", leadOfEnds},
	{"ZeroAndThePastAreNow", zeroIsNow},
	{"InOrderOfDue", inOrder},
	{"RepeatedTokenReturnsTheSameBatch", repeatedToken},
	{"OwnersDoNotShare", ownersDoNotShare},
	{"WithNoRoomOnlyPromotesAndReaps", noRoom},
	{"MoreWhileSomethingIsLeft", moreIsLeft},
	{"LeaseEndsByItself", leaseEnds},
	{"TokensAreTheClaims", tokensDiffer},
	{"ReapsManyInSteps", reapsMany},
}

func neverEarly(f *fixture) {
	item := f.item(0, time.Hour)
	f.ensure(item)
	for range 3 {
		c := f.claim(f.wide())
		if len(c.Leases) != 0 || c.More {
			f.Fatalf("something was claimed an hour early: %+v", c)
		}
		if c.Next == 0 || c.Next > item.Due {
			f.Fatalf("next is %d, later than the item's due time %d", c.Next, item.Due)
		}
		f.pass(15 * time.Minute)
	}
	f.pass(15*time.Minute - 5*time.Second)
	if got := f.take(); len(got) != 0 {
		f.Fatalf("claimed %v seconds early", idsOf(got))
	}
	f.pass(5 * time.Second)
	f.takeOne(item.ID)
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

func inOrder(f *fixture) {
	f.answer(0, 4, schedule.Answered)
	due := f.Now() - 60_000
	var want []string
	var items []schedule.Item
	for i := range 12 {
		items = append(items, schedule.Item{ID: f.id(), Lane: f.lanes[0], Due: due + int64(i/3)*1000})
		want = append(want, items[i].ID)
	}
	slices.Reverse(items)
	f.ensure(items[:5]...)
	f.ensure(items[5:]...)
	if diff := cmp.Diff(want, idsOf(f.take())); diff != "" {
		f.Fatalf("order of claims (-want +got):\n%s", diff)
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
		first.Leases[i].Ahead = true // nobody knows any more which of them were
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
	leases = slices.Clone(leases)
	slices.SortFunc(leases, func(a, b schedule.Lease) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return leases
}

func ownersDoNotShare(f *fixture) {
	f.answer(0, 3, schedule.Answered)
	f.ensure(f.items(0, 10)...)
	seen := make(map[string]bool)
	for i, owner := range []string{"one", "two", "one"} {
		req := f.wide()
		req.Owner, req.Max = owner, 4
		for _, l := range f.claim(req).Leases {
			if seen[l.ID] {
				f.Fatalf("claim %d, of %s, returned %s, which is leased already", i, owner, l.ID)
			}
			seen[l.ID] = true
		}
	}
	if len(seen) != 10 {
		f.Fatalf("three claims of four leased %d of 10", len(seen))
	}
}

func noRoom(f *fixture) {
	f.ensure(f.items(0, 2)...)
	req := f.wide()
	req.Max = 0
	if c := f.claim(req); len(c.Leases) != 0 || !c.More {
		f.Fatalf("a claim without room answered %+v, want nothing and more", c)
	}
	if s := f.stats(); s.Delayed != 0 || s.Ready != 2 || s.RunnableLanes != 1 {
		f.Fatalf("a claim without room did not promote: %+v", s)
	}
	if got := f.take(); len(got) != 2 {
		f.Fatalf("then %d of 2 were claimed", len(got))
	}
}

func moreIsLeft(f *fixture) {
	f.answer(0, 6, schedule.Answered)
	f.ensure(f.items(0, 10)...)
	req := f.wide()
	req.Max = 6
	if c := f.claim(req); len(c.Leases) != 6 || !c.More {
		f.Fatalf("claimed %d, more %t; want 6 and true", len(c.Leases), c.More)
	}
	if c := f.claim(f.wide()); len(c.Leases) != 4 || c.More {
		f.Fatalf("claimed %d, more %t; want 4 and false", len(c.Leases), c.More)
	}
	// More than one claim promotes: none may be forgotten.
	f.reset()
	f.ensure(f.items(0, 2500)...)
	left := 2500
	for range 2500 {
		c := f.claim(f.wide())
		left -= len(c.Leases)
		f.ack(c.Leases, schedule.Answered)
		if left == 0 {
			return
		}
		if len(c.Leases) == 0 && !c.More {
			break
		}
	}
	f.Fatalf("%d of 2500 were never claimed", left)
}

func leaseEnds(f *fixture) {
	l := f.one()
	c := f.claim(f.wide())
	if c.Next == 0 || c.Next > l.Until {
		f.Fatalf("next is %d, later than the lease's end %d", c.Next, l.Until)
	}
	f.pass(29 * time.Second)
	if c := f.claim(f.wide()); c.Reaped != 0 || len(c.Leases) != 0 {
		f.Fatalf("the lease ended early: %+v", c)
	}
	f.pass(2 * time.Second)
	c = f.claim(f.wide())
	if c.Reaped != 1 {
		f.Fatalf("reaped %d, want 1", c.Reaped)
	}
	if len(c.Leases) == 0 {
		if c.Next == 0 || c.Next > c.Now+100 {
			f.Fatalf("a reaped item comes back at %d; now is %d", c.Next, c.Now)
		}
		f.pass(100 * time.Millisecond)
		c = f.claim(f.wide())
	}
	if len(c.Leases) != 1 || c.Leases[0].ID != l.ID || c.Leases[0].Token == l.Token || c.Leases[0].Retry != l.Retry {
		f.Fatalf("after the lease's end %+v was claimed, want %s", c.Leases, l.ID)
	}
	f.expectSettled(settled(l, schedule.Ack), schedule.Stale)
	f.expectSettled(settled(c.Leases[0], schedule.Ack), schedule.Applied)
}

func tokensDiffer(f *fixture) {
	f.ensure(f.items(0, 3)...)
	one := f.wide()
	one.Max = 1
	a := f.claim(one).Leases
	b := f.take()
	if len(a) != 1 || len(b) != 2 || a[0].Token == b[0].Token || b[0].Token != b[1].Token {
		f.Fatalf("leases %+v and %+v", a, b)
	}
	if a[0].Until < f.Now()+28_000 || a[0].Until > f.Now()+30_000 {
		f.Fatalf("a lease of 30 s from %d ends at %d", f.Now(), a[0].Until)
	}
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
		req := f.wide()
		req.Max = 0
		c := f.claim(req)
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
