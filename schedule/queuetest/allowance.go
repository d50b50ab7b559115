package queuetest

import "github.com/seed-ff5a32d8/dispatcher/schedule"

var allowanceChecks = []check{
	{"CreditMakesRoom", credit},
	{"AheadIsBeyondTheConcurrency", ahead},
	{"AllowanceIsForItsLane", allowanceOfAnother},
}

// allowing is a claim with an allowance for lane i and a limit for all.
func (f *fixture) allowing(i, limit, credit, ahead int) schedule.ClaimRequest {
	req := f.wide()
	req.LaneLimit = limit
	req.Allowances = []schedule.Allowance{{Lane: f.lanes[i], Credit: credit, Ahead: ahead}}
	return req
}

// expectClaim claims and wants so many leases, the last of which, so many, to be ahead.
func (f *fixture) expectClaim(req schedule.ClaimRequest, want, aheads int) []schedule.Lease {
	f.Helper()
	c := f.claim(req)
	if len(c.Leases) != want {
		f.Fatalf("leased %d, want %d: %+v", len(c.Leases), want, req.Allowances)
	}
	for i, l := range c.Leases {
		if l.Ahead != (i >= want-aheads) {
			f.Fatalf("lease %d of %d says ahead %t, want the last %d to", i, want, l.Ahead, aheads)
		}
	}
	return c.Leases
}

func credit(f *fixture) {
	f.ensure(f.items(0, 20)...)
	first := f.expectClaim(f.allowing(0, 3, 0, 0), 3, 0)
	f.expectClaim(f.allowing(0, 3, 0, 0), 0, 0)
	f.expectClaim(f.allowing(0, 3, 2, 0), 2, 0)
	f.expectClaim(f.allowing(0, 3, 2, 0), 0, 0)
	f.ack(first[:1], schedule.NoSignal)
	f.expectClaim(f.allowing(0, 3, 2, 0), 1, 0)
}

func ahead(f *fixture) {
	f.answer(0, 1, schedule.Answered)
	f.ensure(f.items(0, 40)...)
	f.expectClaim(f.allowing(0, 3, 0, 2), 5, 2)
	f.expectClaim(f.allowing(0, 3, 0, 2), 0, 0)
	// Two are held back: they do not count, and two more may be held back beside them.
	f.expectClaim(f.allowing(0, 3, 2, 2), 2, 2)
	// Three of seven have ended, two of those held back began in their place.
	got := f.expectClaim(f.allowing(0, 3, 5, 1), 2, 1)
	f.ack(got, schedule.NoSignal)
}

func allowanceOfAnother(f *fixture) {
	f.answer(0, 1, schedule.Answered)
	f.answer(1, 1, schedule.Answered)
	f.ensure(append(f.items(0, 9), f.items(1, 9)...)...)
	got := f.claim(f.allowing(1, 2, 0, 3)).Leases
	n := map[int64]int{}
	for _, l := range got {
		n[l.Lane]++
	}
	if n[f.lanes[0]] != 2 || n[f.lanes[1]] != 5 {
		f.Fatalf("leased %d and %d, want 2 and 5", n[f.lanes[0]], n[f.lanes[1]])
	}
	// A lane that the index does not know is nobody's.
	req := f.wide()
	req.LaneLimit = 2
	req.Allowances = []schedule.Allowance{{Lane: f.lanes[7], Credit: 3, Ahead: 3}}
	f.expectClaim(req, 0, 0)
}
