package dispatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
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
		id := b.accept(accept.Submission{}).ID
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
			b.accept(accept.Submission{Delay: &later})
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

// A rebuild that meets a failure while it fills the index goes on where it was, whether the index or SQL
// failed.
func TestARebuildGoesOnAfterAFailure(t *testing.T) {
	for _, failing := range []string{"the index", "SQL"} {
		t.Run(failing, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				index, sql := new(faults), new(faults)
				b := newFixture(t, always(200, ""), faultyIndex(index), faultySQL(sql))
				synctest.Wait() // what is accepted before the index is filled is given to it a second later
				b.acceptMany(5000)
				time.Sleep(time.Second)
				resets, pages, read := index.count("Reset"), index.count("Ensure"), 0
				if failing == "SQL" {
					sql.set(func(_ context.Context, c *call) error {
						if read++; read == 4 || read == 5 {
							return errDown
						}
						return c.do()
					}, "Open")
				} else {
					index.set(func(_ context.Context, c *call) error {
						if read++; read == 4 || read == 5 {
							return errBroken
						}
						return c.do()
					}, "Ensure")
				}
				report, err := b.engine.Rebuild(t.Context(), false, store.Actor{Name: "test"})
				if err != nil || report.Open != 5000 {
					t.Errorf("%+v, %v", report, err)
				}
				if n := index.count("Reset") - resets; n != 1 {
					t.Errorf("the index was emptied %d times", n)
				}
				if n := index.count("Ensure") - pages; n > 7 {
					t.Errorf("%d calls to fill five pages", n)
				}
				if drift := b.drift(); !drift.Clean() || drift.Items != 5000 {
					t.Errorf("afterwards: %+v", drift)
				}
			})
		})
	}
}
