package queuetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var stateChecks = []check{
	{"CountsLeasesAndReadyItems", stateCounts},
	{"AnswersEachInItsPlace", statePlaces},
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
