package dispatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Two rebuilds of one process at a time are made one after the other, each with a generation of its own.
func TestRebuildsDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		time.Sleep(time.Second)
		generations := make(chan int64, 2)
		for range 2 {
			go func() {
				r, err := b.engine.Rebuild(t.Context(), false, store.Actor{})
				if err != nil {
					t.Error(err)
				}
				generations <- r.Generation
			}()
		}
		if one, other := <-generations, <-generations; one == other {
			t.Errorf("both rebuilds made generation %d", one)
		}
		id := b.accept(dispatch.Submission{}).ID
		b.await(id, 10*time.Second)
	})
}

// A rebuild by hand whose caller hangs up in the middle of it leaves nothing half filled.
func TestARebuildWhoseCallerHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newFixture(t, always(200, ""), faultyIndex(index))
		later := time.Hour
		for range 20 {
			b.accept(dispatch.Submission{Delay: &later})
		}
		time.Sleep(time.Second)
		index.set(fail(errBroken), "Ensure")
		if _, err := b.engine.Rebuild(t.Context(), false, store.Actor{Name: "test"}); err == nil {
			t.Error("rebuilt an index that takes nothing")
		}
		index.set(nil, "Ensure")
		time.Sleep(15 * time.Second)
		drift, err := b.engine.Verify(t.Context())
		if err != nil || !drift.Clean() {
			t.Errorf("verify: %+v, %v", drift, err)
		}
	})
}
