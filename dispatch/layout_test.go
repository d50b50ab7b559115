package dispatch_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// startOnForeign starts an engine on an index that is as another build has written it until it is reset.
func startOnForeign(t *testing.T, is error, hold bool) (*fixture, *faults) {
	t.Helper()
	calls := new(faults)
	calls.set(fail(is), "Generation")
	calls.set(func(_ context.Context, c *call) error {
		calls.set(nil, "Generation")
		return c.do()
	}, "Reset")
	return newFixture(t, always(200, ""), on(sharedIndex(t, 7, strangers...), hold), faultyIndex(calls)), calls
}

// The index of an older build is filled anew.
func TestOlderIndexIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, calls := startOnForeign(t, schedule.ErrOlder, false)
		c := b.accept(accept.Submission{})
		if c := b.await(c.ID, time.Minute); c.State != store.Succeeded {
			t.Errorf("ended %s %s", c.State, c.Reason)
		}
		if calls.count("Reset") != 1 {
			t.Errorf("the index was emptied %d times, want once", calls.count("Reset"))
		}
	})
}

// While sending is held it is left alone, until somebody asks.
func TestOlderIndexIsKeptWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, calls := startOnForeign(t, schedule.ErrOlder, true)
		b.accept(accept.Submission{})
		time.Sleep(2 * time.Minute) // sweeps, audits, the keeper's looks
		synctest.Wait()
		if calls.count("Reset") != 0 {
			t.Error("the index was emptied")
		}
		if h := b.engine.Health(t.Context()); !h.Ready || !slices.Contains(h.Degraded, "redis") {
			t.Errorf("health: %+v", h)
		}
		_, err := b.engine.Rebuild(t.Context(), false, store.Actor{Name: "test"})
		if err != nil || calls.count("Reset") != 1 {
			t.Errorf("rebuild by hand: %v, emptied %d times", err, calls.count("Reset"))
		}
	})
}

// That of a newer build is never emptied: what is accepted meanwhile is in SQL.
func TestNewerIndexIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, calls := startOnForeign(t, schedule.ErrNewer, false)
		c := b.accept(accept.Submission{})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, err := b.engine.Rebuild(t.Context(), false, store.Actor{Name: "test"}); !errors.Is(err, schedule.ErrNewer) {
			t.Errorf("rebuild by hand: %v, want ErrNewer", err)
		}
		if calls.count("Reset") != 0 {
			t.Error("the index was emptied")
		}
		if h := b.engine.Health(t.Context()); !h.Ready || !slices.Contains(h.Degraded, "redis") {
			t.Errorf("health: %+v", h)
		}
		if c := b.get(c.ID); c.State != store.Scheduled || len(b.receiver.seen()) != 0 {
			t.Errorf("it is %s, and %d requests were made", c.State, len(b.receiver.seen()))
		}
	})
}
