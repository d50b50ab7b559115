package control

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A lane with ready callbacks is held by its concurrency also at a moment in which some of its attempts have
// just ended. A lane with room is not, because its callbacks wait for a slot of a process.
func TestLanesNearTheirConcurrencyAreHeld(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state schedule.LaneState
		want  string
	}{
		{schedule.LaneState{Fresh: 1, InFlight: 32, Concurrency: 32}, BlockConcurrency},
		{schedule.LaneState{Retries: 1, InFlight: 24, Concurrency: 32}, BlockConcurrency},
		{schedule.LaneState{Fresh: 1, InFlight: 23, Concurrency: 32}, ""},
		{schedule.LaneState{Fresh: 0, InFlight: 32, Concurrency: 32}, ""},
		{schedule.LaneState{Fresh: 1}, ""}, // no claim has brought its limit yet
		{schedule.LaneState{Fresh: 1, Concurrency: 4, Health: schedule.TimingOut}, BlockConcurrency},
		{schedule.LaneState{Fresh: 1, Concurrency: 4, Health: schedule.Answering}, ""},
		{schedule.LaneState{Fresh: 1, Concurrency: 4, HeldUntil: 2}, BlockRetryAfter},
	} {
		v := LaneView{State: &c.state}
		if got := v.whyHeld(1); got != c.want {
			t.Errorf("%+v is held by %q, want %q", c.state, got, c.want)
		}
	}
}
