package queuetest

import (
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var forcedChecks = []check{
	{"GoesFirst", forcedFirst},
	{"LeavesAHeldLaneWithoutATrace", forcedLeavesHeldLane},
}

// press returns a new forced item of the i-th lane that is due now.
func (f *fixture) press(i int) schedule.Item {
	item := f.item(i, 0)
	item.Forced = true
	return item
}

// expectIDs claims and wants exactly those items, in that order.
func (f *fixture) expectIDs(req schedule.ClaimRequest, want ...schedule.Item) []schedule.Lease {
	f.Helper()
	leases := f.claim(req).Leases
	got, ids := idsOf(leases), make([]string, len(want))
	for i, item := range want {
		ids[i] = item.ID
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		f.Fatalf("claimed %v, want %v", got, ids)
	}
	for i, l := range leases {
		if l.Item != want[i] {
			f.Fatalf("claimed %+v, want %+v", l.Item, want[i])
		}
	}
	return leases
}

// forcedFirst: what is forced goes before what has waited for longer, each kind in the order of due times,
// fresh ones first.
func forcedFirst(f *fixture) {
	waiting := f.items(0, 12)
	for i := range waiting[:6] {
		waiting[i].Retry = true
	}
	f.ensure(waiting...)
	f.claim(f.empty())
	first, second, third := f.press(0), f.press(0), f.press(0)
	first.Retry, third.Due = true, third.Due-1000
	f.ensure(first, second, third)
	req := f.wide()
	req.Max = 2
	leases := f.expectIDs(req, third, second)
	req = f.wide()
	req.Max = 1
	leases = append(leases, f.expectIDs(req, first)...)
	f.ack(leases, schedule.Answered)
	// The share of fresh ones and retries goes on as if they had not been.
	req = f.wide()
	req.Max = 4
	f.expectIDs(req, waiting[6], waiting[7], waiting[8], waiting[0])
	f.quiet()
}

// forcedLeavesHeldLane: when what is forced goes otherwise than by a claim, the lane is held as before.
func forcedLeavesHeldLane(f *fixture) {
	f.holdLane(0, time.Minute)
	forced := f.press(0)
	f.ensure(forced)
	if c := f.claim(f.empty()); !c.More {
		f.Fatalf("something forced is ready: %+v", c)
	}
	_, err := f.Index.Cancel(f.ctx, []schedule.Ref{forced.Ref()})
	f.no(err)
	if s := f.stats(); s.BlockedLanes != 1 || s.RunnableLanes != 0 {
		f.Fatalf("%d lanes are blocked and %d runnable, want 1 and 0", s.BlockedLanes, s.RunnableLanes)
	}
	if c := f.claim(f.wide()); len(c.Leases) != 0 || c.More {
		f.Fatalf("a held lane: %+v", c)
	}
	f.pass(61 * time.Second)
	if got := f.take(); len(got) != 1 {
		f.Fatalf("after the hold %v were claimed", idsOf(got))
	}
	f.quiet()
}
