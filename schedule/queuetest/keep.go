package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Keeps are the ways in which Keep keeps lanes back.
func Keeps() []string { return []string{"held", "paused", "without a token", "open"} }

// Keep gives the lanes from first on, at most schedule.MaxBatch, one ready item each that they keep back:
// because they are held or paused, have no token, or their breaker is open, which is so for 15 s of the
// index's clock. The index may hold nothing else that is due.
func Keep(tb testing.TB, h Harness, how string, first int64, lanes int) {
	tb.Helper()
	f := &fixture{tb: tb, Harness: h, ctx: context.Background(), ids: 1 << 42, tokens: 1 << 42}
	for i := range lanes {
		f.lanes = append(f.lanes, first+int64(i))
	}
	switch how {
	case "held":
		var settlements []schedule.Settlement
		for _, item := range f.oneEach() {
			settlements = append(settlements, schedule.Settlement{
				Item: item, Token: "t", Outcome: schedule.Ack, Won: true, HoldUntil: f.Now() + 3600_000,
			})
		}
		f.settle(settlements...)
	case "paused":
		f.setAll(schedule.LaneSetting{PausedUntil: f.Now() + 3600_000, Version: 1})
	case "without a token":
		f.setAll(schedule.LaneSetting{Every: 24 * time.Hour, Version: 1})
		f.ensure(f.oneEach()...)
		for taken := 0; taken < lanes; {
			leases := f.take()
			if len(leases) == 0 {
				f.Fatalf("%d of %d lanes gave their token", taken, lanes)
			}
			f.ack(leases, schedule.Answered)
			taken += len(leases)
		}
	case "open":
		f.openAll()
	default:
		f.Fatalf("lanes cannot be kept %q", how)
	}
	f.ensure(f.oneEach()...)
	f.promoteAll()
	if s := f.stats(); s.BlockedLanes != int64(lanes) {
		f.Fatalf("%d lanes are blocked, want %d", s.BlockedLanes, lanes)
	}
}

// oneEach returns an item of each lane that is due now.
func (f *fixture) oneEach() []schedule.Item {
	var items []schedule.Item
	for i := range f.lanes {
		items = append(items, f.item(i, 0))
	}
	return items
}

// setAll makes the setting for every lane.
func (f *fixture) setAll(s schedule.LaneSetting) {
	f.Helper()
	var settings []schedule.LaneSetting
	for _, lane := range f.lanes {
		s.Lane = lane
		settings = append(settings, s)
	}
	f.no(f.Index.SetLanes(f.ctx, settings))
}

// openAll opens every lane's breaker in the same moment.
func (f *fixture) openAll() {
	f.Helper()
	for round := range schedule.BreakerAttempts {
		if round == schedule.BreakerAttempts-1 {
			f.pass(schedule.BreakerSpan)
		}
		var adoptions []schedule.Lease
		var settlements []schedule.Settlement
		for _, item := range f.oneEach() {
			adoptions = append(adoptions, schedule.Lease{Item: item, Token: "t", Until: f.Now() + 60_000})
			settlements = append(settlements, schedule.Settlement{
				Item: item, Token: "t", Outcome: schedule.Ack, Signal: schedule.Unanswered,
			})
		}
		f.no(f.Index.Adopt(f.ctx, adoptions))
		f.settle(settlements...)
	}
	for _, s := range f.states(f.lanes...) {
		if s.Breaker != schedule.BreakerOpen {
			f.Fatalf("a lane of which nothing was answered is %+v", s)
		}
	}
}
