package redisq_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// A build that does not keep since when lanes are held may share the index: what it holds is held since a
// time that is not known, and what it holds for longer is held since it was first. An audit forgets holds
// that are over.
func TestHoldsOfAnotherBuild(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	ensure(t, ix, schedule.Item{ID: id(1), Lane: 1}, schedule.Item{ID: id(2), Lane: 1})
	token := 0
	leases := claim(t, ix, &token, 2).Leases
	hold := func(l schedule.Lease, d time.Duration) {
		t.Helper()
		s := schedule.Settlement{
			Item: l.Item, Token: l.Token, Outcome: schedule.Divert, Signal: schedule.Answered,
			HoldUntil: now(t, ix) + d.Milliseconds(),
		}
		got, err := ix.Settle(context.Background(), []schedule.Settlement{s})
		if err != nil || got[0] != schedule.Applied {
			t.Fatalf("settle: %v, %v", got, err)
		}
	}
	state := func() schedule.LaneState { return laneState(t, ix) }
	hold(leases[0], time.Minute)
	first := state()
	if first.HeldSince == 0 || first.HeldUntil <= first.HeldSince {
		t.Fatalf("held: %+v", first)
	}
	// The other build lengthens the hold, and writes the record of the lane alone.
	record, _ := do(t, ix, "HGET", ix.Key(0, "LANES"), "11").(string)
	do(t, ix, "HSET", ix.Key(0, "HOLDS"), "11", "1 2")
	if got := state(); got.HeldSince != 0 || got.HeldUntil != first.HeldUntil || record == "" {
		t.Errorf("held by another build, record %q: %+v", record, got)
	}
	do(t, ix, "DEL", ix.Key(0, "HOLDS"))
	if got := state(); got.HeldSince != 0 || got.HeldUntil != first.HeldUntil {
		t.Errorf("held by a build that keeps no holds: %+v", got)
	}
	hold(leases[1], 2*time.Minute)
	if got := state(); got.HeldSince < first.HeldSince || got.HeldUntil <= first.HeldUntil {
		t.Errorf("held for longer by this build: %+v", got)
	}
	audit(t, ix, 0)
	if got := state(); got.HeldSince == 0 {
		t.Errorf("an audit forgot a hold that lasts: %+v", got)
	}
	pass(t, ix, 3*time.Minute)
	audit(t, ix, 0)
	if left := do(t, ix, "HLEN", ix.Key(0, "HOLDS")); left != int64(0) {
		t.Errorf("%v holds are kept that are over", left)
	}
}

func laneState(t *testing.T, ix *redisq.Index) schedule.LaneState {
	t.Helper()
	states, err := ix.LaneStates(context.Background(), []int64{1})
	if err != nil {
		t.Fatal(err)
	}
	return states[0]
}
