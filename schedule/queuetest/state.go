package queuetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var stateChecks = []check{
	{"CountsLeasesAndReadyItems", stateCounts},
	{"AnswersEachInItsPlace", statePlaces},
	{"SaysSinceWhenALaneIsHeld", stateHeldSince},
	{"SaysWhenABreakerOpened", stateOpenedAt},
}

// state returns how the i-th lane stands.
func (f *fixture) state(i int) schedule.LaneState {
	f.Helper()
	return f.states(f.lanes[i])[0]
}

func (f *fixture) states(lanes ...int64) []schedule.LaneState {
	f.Helper()
	states, err := f.Index.LaneStates(f.ctx, lanes)
	f.no(err)
	if len(states) != len(lanes) {
		f.Fatalf("%d states of %d lanes", len(states), len(lanes))
	}
	return states
}

func stateCounts(f *fixture) {
	items := f.items(0, 1500)
	for i := range items {
		items[i].Retry = i < 30
	}
	forced := []schedule.Item{f.press(0), f.press(0), f.press(0), f.press(0), f.press(0)}
	forced[4].Retry = true
	f.ensure(items...)
	f.ensure(append(forced, f.item(0, time.Hour))...)
	f.promoteAll()
	want := schedule.LaneState{
		Lane: f.lanes[0], Limit: 256, Concurrency: schedule.StartConcurrency, InFlight: 0, Fresh: 1000, Retries: 31,
	}
	if diff := cmp.Diff(want, f.state(0)); diff != "" {
		f.Fatalf("with a backlog (-want +got):\n%s", diff)
	}
	leases := f.take()
	want.InFlight = len(leases)
	if diff := cmp.Diff(want, f.state(0)); diff != "" {
		f.Fatalf("with attempts in flight (-want +got):\n%s", diff)
	}
	f.ack(leases[:1], schedule.Answered)
	want.InFlight, want.Health, want.Concurrency = 3, schedule.Answering, 8
	if diff := cmp.Diff(want, f.state(0)); diff != "" {
		f.Fatalf("after an answer (-want +got):\n%s", diff)
	}
	var refs []schedule.Ref
	for _, item := range items[30:1000] {
		refs = append(refs, item.Ref())
	}
	_, err := f.Index.Cancel(f.ctx, refs)
	f.no(err)
	want.Fresh = 500
	if diff := cmp.Diff(want, f.state(0)); diff != "" {
		f.Fatalf("after most were canceled (-want +got):\n%s", diff)
	}
}

// stateHeldSince: a hold that is lengthened goes on, and one after it begins anew.
func stateHeldSince(f *fixture) {
	within := func(what string, lo, hi int64) {
		f.Helper()
		if got := f.state(0); got.HeldSince < lo || got.HeldSince > hi {
			f.Fatalf("%s: held since %d until %d, want since %d to %d",
				what, got.HeldSince, got.HeldUntil, lo, hi)
		}
	}
	within("at first", 0, 0)
	first, second := f.item(0, 0), f.item(0, 0)
	f.ensure(first, second)
	leases := f.take()
	if len(leases) != 2 {
		f.Fatalf("%d leases, want 2", len(leases))
	}
	hold := func(l schedule.Lease, d time.Duration) (before, after int64) {
		f.Helper()
		s := settled(l, schedule.Divert)
		before = f.Now()
		s.HoldUntil = before + d.Milliseconds()
		f.expectSettled(s, schedule.Applied)
		return before, f.Now()
	}
	lo, hi := hold(leases[0], time.Minute)
	within("held", lo, hi)
	f.pass(30 * time.Second)
	hold(leases[1], time.Minute)
	within("held for longer", lo, hi)
	f.pass(50 * time.Second)
	within("past its first end", lo, hi)
	f.pass(11 * time.Second)
	within("over", 0, 0)
	lease := f.take()[0]
	lo, hi = hold(lease, time.Minute)
	within("held again", lo, hi)
	moved := f.jump(time.Hour)
	within("after a jump of the clock", lo+moved, hi+moved+5000) // what is left stays left
}

// stateOpenedAt: a breaker that goes on resting is open since it opened.
func stateOpenedAt(f *fixture) {
	if got := f.state(0); got.OpenedAt != 0 {
		f.Fatalf("a lane that never had anything: %+v", got)
	}
	fail := func() (before, after int64) {
		f.Helper()
		item := f.press(0)
		f.ensure(item)
		lease := f.takeOne(item.ID)
		before = f.Now()
		f.ack([]schedule.Lease{lease}, schedule.Unanswered)
		return before, f.Now()
	}
	for range schedule.BreakerAttempts - 1 {
		fail()
		f.pass(schedule.BreakerSpan / 10)
	}
	if got := f.state(0); got.Breaker != schedule.BreakerClosed || got.OpenedAt != 0 {
		f.Fatalf("before the last attempt: %+v", got)
	}
	lo, hi := fail()
	for _, what := range []string{"as it opened", "a failure later"} {
		got := f.state(0)
		if got.Breaker != schedule.BreakerOpen || got.OpenedAt < lo || got.OpenedAt > hi ||
			got.UnansweredSince >= lo {
			f.Fatalf("%s: %+v, want open since %d to %d", what, got, lo, hi)
		}
		f.pass(time.Second)
		fail()
	}
	item := f.press(0)
	f.ensure(item)
	f.ack([]schedule.Lease{f.takeOne(item.ID)}, schedule.Answered)
	if got := f.state(0); got.Breaker != schedule.BreakerClosed || got.OpenedAt != 0 {
		f.Fatalf("after an answer: %+v", got)
	}
}

func statePlaces(f *fixture) {
	lanes := make([]int64, schedule.MaxBatch)
	for i := range lanes {
		lanes[i] = int64(i%700 + 1)
		if i < 700 {
			f.set(schedule.LaneSetting{Lane: lanes[i], Limit: i + 1})
		}
	}
	for i, got := range f.states(lanes...) {
		if got.Lane != lanes[i] || got.Limit != int(lanes[i]) {
			f.Fatalf("place %d has %+v, want lane %d", i, got, lanes[i])
		}
	}
}
