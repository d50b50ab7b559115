package dispatch_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A foreignIndex is as another build has written it until it is reset.
type foreignIndex struct {
	*memq.Index
	is     error
	resets atomic.Int64
}

func (ix *foreignIndex) Generation(ctx context.Context, shard int) (int64, error) {
	if ix.resets.Load() == 0 {
		return 0, ix.is
	}
	return ix.Index.Generation(ctx, shard)
}

func (ix *foreignIndex) Reset(ctx context.Context, shard int, generation int64) error {
	ix.resets.Add(1)
	return ix.Index.Reset(ctx, shard, generation)
}

// startOnForeign starts an engine on what another build has written.
func startOnForeign(t *testing.T, is error, hold bool) (*bench, *foreignIndex) {
	t.Helper()
	index := &foreignIndex{Index: sharedIndex(t, 7, strangers...), is: is}
	return startBench(t, databasePath(t), always(200, ""), func(o *dispatch.Options) {
		o.Schedule, o.Alone, o.Hold = index, false, hold
	}), index
}

// The index of an older build is filled anew.
func TestOlderIndexIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, index := startOnForeign(t, schedule.ErrOlder, false)
		c := b.accept(dispatch.Submission{})
		if c := b.await(c.ID, time.Minute); c.State != store.Succeeded {
			t.Errorf("ended %s %s", c.State, c.Reason)
		}
		if index.resets.Load() != 1 {
			t.Errorf("the index was emptied %d times, want once", index.resets.Load())
		}
	})
}

// While sending is held it is left alone, until somebody asks.
func TestOlderIndexIsKeptWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, index := startOnForeign(t, schedule.ErrOlder, true)
		b.accept(dispatch.Submission{})
		time.Sleep(2 * time.Minute) // sweeps, audits, the keeper's looks
		synctest.Wait()
		if index.resets.Load() != 0 {
			t.Error("the index was emptied")
		}
		if h := b.engine.Health(t.Context()); !h.Ready || !slices.Contains(h.Degraded, "redis") {
			t.Errorf("health: %+v", h)
		}
		if _, err := b.engine.Rebuild(t.Context(), false, store.Actor{Name: "test"}); err != nil || index.resets.Load() != 1 {
			t.Errorf("rebuild by hand: %v, emptied %d times", err, index.resets.Load())
		}
	})
}

// That of a newer build is never emptied: what is accepted meanwhile is in SQL.
func TestNewerIndexIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, index := startOnForeign(t, schedule.ErrNewer, false)
		c := b.accept(dispatch.Submission{})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, err := b.engine.Rebuild(t.Context(), false, store.Actor{Name: "test"}); !errors.Is(err, schedule.ErrNewer) {
			t.Errorf("rebuild by hand: %v, want ErrNewer", err)
		}
		if index.resets.Load() != 0 {
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
