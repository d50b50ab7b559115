package dispatch_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// acceptMany accepts n callbacks that are due in an hour.
func (b *fixture) acceptMany(n int) {
	b.t.Helper()
	hour := time.Hour
	for n > 0 {
		list := make([]accept.Submission, min(n, 1000))
		for i := range list {
			list[i] = accept.Submission{URL: "https://shop.example/later", Body: []byte(`{}`), Delay: &hour}
		}
		b.must(b.engine.Accept(b.t.Context(), store.DefaultProject, list))
		n -= len(list)
	}
}

// An index that answers again is used at once, though it takes long until it has heard of all that it missed.
func TestAnIndexThatCatchesUpIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newFixture(t, always(200, ""), faultyIndex(index))
		time.Sleep(time.Second)
		index.set(fail(errBroken), "Ensure", "Claim", "Stats")
		b.acceptMany(5000)
		time.Sleep(10 * time.Second)
		index.set(nil, "Claim", "Stats")
		index.set(slow(2*time.Second), "Ensure") // ten times, for all that it missed
		time.Sleep(4 * time.Second)              // a probe, and one part of what was missed
		if h := b.engine.Health(t.Context()); len(h.Degraded) != 0 {
			t.Errorf("four seconds after the index came back: %+v", h)
		}
		b.await(b.accept(accept.Submission{}).ID, 3*time.Second)
		time.Sleep(time.Minute)
		if drift := b.drift(); !drift.Clean() || drift.Items != 5000 {
			t.Errorf("afterwards: %+v", drift)
		}
	})
}

// A rolledIndex goes back in time when it is told to: the sequence of its claims then is lower than before.
type rolledIndex struct {
	dispatch.Schedule
	seq atomic.Int64
}

func (r *rolledIndex) Claim(
	ctx context.Context, shard int, q schedule.ClaimRequest,
) (schedule.Claimed, error) {
	c, err := r.Schedule.Claim(ctx, shard, q)
	c.Seq = r.seq.Load()
	return c, err
}

// The same holds where every open row is walked; and a walk that was interrupted goes on where it was.
func TestAWalkOfAllOpenRowsGoesOnBesideTheTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index, rolled := new(faults), new(rolledIndex)
		b := newFixture(t, always(200, ""), func(o *dispatch.Options) {
			rolled.Schedule, o.Schedule = o.Schedule, rolled
		}, faultyIndex(index))
		rolled.seq.Store(10)
		b.acceptMany(5000)
		time.Sleep(10 * time.Second)
		index.set(fail(errBroken), "Ensure", "Stats")
		rolled.seq.Store(5)
		time.Sleep(10 * time.Second)
		index.set(nil, "Stats")
		index.set(slow(2*time.Second), "Ensure")
		time.Sleep(4 * time.Second)
		b.await(b.accept(accept.Submission{}).ID, 3*time.Second)
		index.times(1, fail(errBroken), "Ensure")
		before := index.count("Ensure")
		time.Sleep(time.Minute)
		// Five pages and the end, of which one or two were given before, and one once more.
		if n := index.count("Ensure") - before; n > 5 {
			t.Errorf("%d calls to finish a walk of five pages that was interrupted once", n)
		}
		if drift := b.drift(); !drift.Clean() || drift.Items != 5000 {
			t.Errorf("afterwards: %+v", drift)
		}
	})
}

// drift compares SQL with the index.
func (b *fixture) drift() index.Drift {
	b.t.Helper()
	d, err := b.engine.Verify(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}
