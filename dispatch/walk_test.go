package dispatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A busyStore accepts callbacks when open rows are read: there is traffic between any two pages of a walk.
type busyStore struct {
	dispatch.Store
	*faults
	accept func()
}

func (s *busyStore) Open(ctx context.Context, after store.Cursor, limit int) ([]store.OpenRow, error) {
	if s.next("Open") != nil {
		s.accept()
	}
	return s.Store.Open(ctx, after, limit)
}

// A walk of all open rows ends although callbacks are accepted all the time. Those reach the index by
// themselves.
func TestAWalkOfAllOpenRowsEndsUnderTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index, rolled, busy := new(faults), new(rolledIndex), &busyStore{faults: new(faults)}
		b := newFixture(t, always(200, ""), func(o *dispatch.Options) {
			rolled.Schedule, o.Schedule = o.Schedule, rolled
			busy.Store, o.Store = o.Store, busy
		}, faultyIndex(index))
		rolled.seq.Store(10)
		b.acceptMany(1500)
		time.Sleep(10 * time.Second)
		later := 2 * time.Hour
		busy.accept = func() { b.accept(accept.Submission{Delay: &later}) }
		busy.times(100, fail(nil), "Open")
		before := busy.count("Open")
		rolled.seq.Store(5)
		time.Sleep(time.Minute)
		if n := busy.count("Open") - before; n > 5 {
			t.Errorf("%d pages of open rows were read; there were two", n)
		}
	})
}
