package dispatch_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An index that knows what SQL does not is left alone while sending is held, whatever generation it has, so that an operator can
// read it; a rebuild, or a start without the hold, then makes it what SQL says.
func TestHeldProcessKeepsWhatOnlyTheIndexKnows(t *testing.T) {
	// The same generation, which SQL says was never filled, would have been rebuilt too.
	for name, generation := range map[string]int64{"newer": 7, "the same": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := databasePath(t)
				index := sharedIndex(t, generation, strangers...)
				held := startFixture(t, path, always(200, ""), on(index, true))
				c := held.accept(accept.Submission{})
				time.Sleep(2 * time.Minute) // sweeps, audits, the keeper's looks
				synctest.Wait()
				drift, err := held.engine.Verify(t.Context())
				if err != nil || drift.Clean() || drift.Unknown != 3 || drift.Extra != 3 || drift.Ended != 0 || drift.Missing != 0 {
					t.Fatalf("verify: %+v, %v", drift, err)
				}
				if !slices.Equal(drift.UnknownIDs, public(strangers)) {
					t.Errorf("unknown: %v", drift.UnknownIDs)
				}
				if drift.Generation != 1 || drift.IndexGeneration != generation {
					t.Errorf("generations: %+v", drift)
				}
				if h := held.engine.Health(t.Context()); !h.Ready || !slices.Contains(h.Degraded, "held") || !slices.Contains(h.Degraded, "redis") {
					t.Errorf("health: %+v", h)
				}
				if len(held.receiver.seen()) != 0 || held.get(c.ID).State != store.Scheduled {
					t.Error("something was sent")
				}
				if generation == 7 {
					held.stop()
					after := startFixture(t, path, always(200, ""), on(index, false))
					after.await(c.ID, time.Minute)
					held = after
				} else if _, err := held.engine.Rebuild(t.Context(), false, store.Actor{Name: "test"}); err != nil {
					t.Fatal(err)
				}
				if drift, err := held.engine.Verify(t.Context()); err != nil || !drift.Clean() {
					t.Errorf("verify at the end: %+v, %v", drift, err)
				}
			})
		})
	}
}

// An index that holds nothing is filled although sending is held: there is nothing to lose.
func TestHeldProcessFillsAnEmptyIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""), on(memq.New(memq.Options{}), true))
		b.accept(accept.Submission{})
		time.Sleep(2 * time.Second) // What is accepted while the index is being filled is told to it a second later.
		drift, err := b.engine.Verify(t.Context())
		if err != nil || !drift.Clean() || drift.Rows != 1 || drift.Items != 1 {
			t.Errorf("verify: %+v, %v", drift, err)
		}
		if h := b.engine.Health(t.Context()); !slices.Equal(h.Degraded, []string{"held"}) {
			t.Errorf("health: %+v", h)
		}
	})
}

// Verify tells what SQL does not know from what it has ended, and names all of it when it is asked to.
func TestVerifyTellsUnknownFromEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""), func(o *dispatch.Options) { o.Hold = true })
		var ended []string
		for range 120 {
			ended = append(ended, b.accept(accept.Submission{}).ID)
		}
		synctest.Wait() // until the index has been told
		for _, id := range ended {
			// Behind the engine's back, which would tell the index.
			b.must(b.db.Cancel(t.Context(), store.DefaultProject, id, time.Now().UnixMilli(), store.Actor{Name: "test"}))
		}
		var items []schedule.Item
		for _, id := range strangers {
			items = append(items, schedule.Item{ID: id, Lane: 1, Due: time.Now().Add(time.Hour).UnixMilli()})
		}
		b.must(b.index.Ensure(t.Context(), items))
		d, err := b.engine.Verify(t.Context())
		if err != nil || d.Extra != 123 || d.Unknown != 3 || d.Ended != 120 || len(d.ExtraIDs) != 100 || len(d.EndedIDs) != 100 {
			t.Errorf("verify: %d extra, %d unknown, %d ended, %d and %d named, %v", d.Extra, d.Unknown, d.Ended, len(d.ExtraIDs), len(d.EndedIDs), err)
		}
		all, err := b.engine.VerifyAll(t.Context())
		slices.Sort(ended)
		if err != nil || !slices.Equal(all.UnknownIDs, public(strangers)) || !slices.Equal(all.EndedIDs, public(ended)) || len(all.ExtraIDs) != 123 {
			t.Errorf("verify all: %v, %d ended, %d extra, %v", all.UnknownIDs, len(all.EndedIDs), len(all.ExtraIDs), err)
		}
	})
}
