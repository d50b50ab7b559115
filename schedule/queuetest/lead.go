package queuetest

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// led is a claim with the longest lead.
func (f *fixture) led() schedule.ClaimRequest {
	req := f.wide()
	req.Lead = schedule.MaxLead
	return req
}

func earlyByTheLead(f *fixture) {
	near, far := f.item(0, time.Minute), f.item(0, 75*time.Second)
	f.ensure(near, far)
	if c := f.claim(f.led()); len(c.Leases) != 0 || c.More {
		f.Fatalf("something was claimed a minute early: %+v", c)
	}
	f.pass(55 * time.Second)
	if got := f.claim(f.wide()).Leases; len(got) != 0 {
		f.Fatalf("a claim without a lead has %v before they are due", idsOf(got))
	}
	c := f.claim(f.led())
	if len(c.Leases) != 1 || c.Leases[0].ID != near.ID || c.More || c.Waiting {
		f.Fatalf("a claim with a lead of %s has %+v, want %s alone", schedule.MaxLead, c, near.ID)
	}
	if l := c.Leases[0]; l.Due != near.Due || l.Until != c.Now+30_000 {
		f.Fatalf("a lease from before its due time is %+v; it is due at %d, and the claim was at %d", l, near.Due, c.Now)
	}
	if want := far.Due - schedule.MaxLead.Milliseconds()/2; c.Next != want {
		f.Fatalf("next is %d, want %d, half the lead before what is left is due", c.Next, want)
	}
}

// leadInOrder: what is not due yet does not overtake what is, also where an earlier claim promoted it.
func leadInOrder(f *fixture) {
	early := f.item(0, time.Minute)
	f.ensure(early)
	f.pass(55 * time.Second)
	promote := f.led()
	promote.Max = 0
	if c := f.claim(promote); !c.More {
		f.Fatalf("more is false while %s could be leased: %+v", early.ID, c)
	}
	due := f.item(0, 0)
	f.ensure(due)
	one := f.led()
	one.Max = 1
	c := f.claim(one)
	if len(c.Leases) != 1 || c.Leases[0].ID != due.ID || !c.More {
		f.Fatalf("claimed %+v, want %s, which is due, and more to be left", c, due.ID)
	}
	if got := f.claim(f.led()).Leases; len(got) != 1 || got[0].ID != early.ID {
		f.Fatalf("claimed %v, want %s", idsOf(got), early.ID)
	}
}

// leadAcrossKinds: nor does what is not due overtake what is of the other kind, whose turn it may be.
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

func leadNext(f *fixture) {
	item := f.item(0, time.Hour)
	f.ensure(item)
	if c := f.claim(f.led()); c.Next != item.Due-schedule.MaxLead.Milliseconds()/2 {
		f.Fatalf("next is %d, want half the lead before %d", c.Next, item.Due)
	}
	if c := f.claim(f.wide()); c.Next != item.Due {
		f.Fatalf("next of a claim without a lead is %d, want %d", c.Next, item.Due)
	}
}

// leadOfEnds: a claim that is made too early for the end of a lease would find nothing.
func leadOfEnds(f *fixture) {
	lease := f.one()
	if c := f.claim(f.led()); c.Next != lease.Until {
		f.Fatalf("next is %d, want the end of the lease, %d", c.Next, lease.Until)
	}
}
