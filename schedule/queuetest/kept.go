package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Keeps are the ways in which Keep keeps lanes back.
func Keeps() []string { return []string{"held", "paused", "without a token", "open"} }

// Keep gives the lanes from first on, so many, something ready that they keep back: because they are held or paused, have no token, or
// their breaker is open. The latter is so for 15 s of the index's clock. What others the index has must be left alone by its caller.
func Keep(tb testing.TB, h Harness, how string, first int64, lanes int) {
	tb.Helper()
	f := &fixture{tb: tb, Harness: h, ctx: context.Background(), ids: 1 << 42, tokens: 1 << 42}
	for i := range lanes {
		f.lanes = append(f.lanes, first+int64(i))
	}
	before := f.stats().BlockedLanes
	switch how {
	case "held":
		f.keepHeld()
	case "paused":
		f.keepSet(schedule.LaneSetting{PausedUntil: f.Now() + 3600_000, Version: 1})
	case "without a token":
		f.keepSet(schedule.LaneSetting{Every: 24 * time.Hour, Version: 1})
		f.keepTaken()
	case "open":
		f.keepOpen()
	default:
		f.Fatalf("lanes cannot be kept %q", how)
	}
	f.keepReady()
	if s := f.stats(); s.BlockedLanes != before+int64(lanes) {
		f.Fatalf("%d lanes are blocked, want %d more than %d", s.BlockedLanes, lanes, before)
	}
}

// inPages calls do with a full batch of lanes at a time.
func (f *fixture) inPages(do func(lanes []int64)) {
	for lanes := f.lanes; len(lanes) > 0; {
		page := lanes[:min(len(lanes), schedule.MaxBatch)]
		do(page)
		lanes = lanes[len(page):]
	}
}

func (f *fixture) keepSet(s schedule.LaneSetting) {
	f.inPages(func(lanes []int64) {
		var settings []schedule.LaneSetting
		for _, lane := range lanes {
			s.Lane = lane
			settings = append(settings, s)
		}
		f.no(f.Index.SetLanes(f.ctx, settings))
	})
}

func (f *fixture) keepHeld() {
	f.inPages(func(lanes []int64) {
		var settlements []schedule.Settlement
		for _, lane := range lanes {
			settlements = append(settlements, schedule.Settlement{
				Item: schedule.Item{ID: f.id(), Lane: lane, Due: f.Now()}, Token: "t", Outcome: schedule.Ack, Won: true, HoldUntil: f.Now() + 3600_000,
			})
		}
		f.settle(settlements...)
	})
}

// keepTaken takes the one token that every lane has.
func (f *fixture) keepTaken() {
	f.keepReady()
	for taken := 0; taken < len(f.lanes); {
		leases := f.take()
		if len(leases) == 0 {
			f.Fatalf("%d of %d lanes gave their token", taken, len(f.lanes))
		}
		f.ack(leases, schedule.Answered)
		taken += len(leases)
	}
}

// keepOpen opens every lane's breaker.
func (f *fixture) keepOpen() {
	for round := range schedule.BreakerAttempts {
		if round == schedule.BreakerAttempts-1 {
			f.pass(schedule.BreakerSpan)
		}
		f.inPages(func(lanes []int64) {
			var adoptions []schedule.Adoption
			var settlements []schedule.Settlement
			for _, lane := range lanes {
				item := schedule.Item{ID: f.id(), Lane: lane, Due: f.Now()}
				adoptions = append(adoptions, schedule.Adoption{Item: item, Token: "t", Until: f.Now() + 60_000})
				settlements = append(settlements, schedule.Settlement{Item: item, Token: "t", Outcome: schedule.Ack, Signal: schedule.Unanswered})
			}
			f.no(f.Index.Adopt(f.ctx, adoptions))
			f.settle(settlements...)
		})
	}
}

// keepReady puts one item into each lane, and makes all of them ready.
func (f *fixture) keepReady() {
	f.inPages(func(lanes []int64) {
		var items []schedule.Item
		for _, lane := range lanes {
			items = append(items, schedule.Item{ID: f.id(), Lane: lane, Due: f.Now()})
		}
		f.ensure(items...)
	})
	f.promoteAll()
}
