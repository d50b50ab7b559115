package dispatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An attempt that is asked for while the index does not answer is made as soon as it does, though the index holds the
// callback for a later time.
func TestRetryWhileTheIndexIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newBench(t, always(200, ""), faultyIndex(index))
		time.Sleep(time.Second)
		delay := time.Hour
		id := b.accept(dispatch.Submission{Delay: &delay}).ID
		time.Sleep(time.Second)
		index.set(fail(errBroken), "Ensure")
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, id, dispatch.RetryRequest{}, store.Actor{}))
		time.Sleep(500 * time.Millisecond)
		index.set(nil, "Ensure")
		time.Sleep(2 * time.Second)
		if c := b.get(id); c.State != store.Succeeded {
			t.Errorf("still %s two seconds after the index came back", c.State)
		}
	})
}

// While results cannot be recorded nothing more is sent, even if all else in SQL works: what was sent would be sent again.
func TestNothingIsSentWhileResultsCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newBench(t, always(200, ""), faultySQL(sql))
		time.Sleep(time.Second)
		sql.set(fail(errDown), "Commit")
		var ids []string
		for range 90 {
			ids = append(ids, b.accept(dispatch.Submission{}).ID)
			time.Sleep(time.Second)
		}
		if n := len(b.receiver.seen()); n > 5 {
			t.Errorf("%d requests while no result could be recorded", n)
		}
		sql.set(nil, "Commit")
		for _, id := range ids {
			if c := b.await(id, time.Minute); c.State != store.Succeeded || c.AttemptCount != 1 {
				t.Errorf("got %s after %d attempts", c.State, c.AttemptCount)
			}
		}
		if n := len(b.receiver.seen()); n != len(ids) {
			t.Errorf("%d requests for %d callbacks", n, len(ids))
		}
	})
}

// What ended while the index did not answer is told afterwards: neither its leases keep their lane full, nor do their locks
// keep the next one waiting, until they run out.
func TestLeasesThatEndUnheardBlockNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newBench(t, always(200, ""), faultyIndex(index), func(o *dispatch.Options) { o.LaneConcurrency = 4 })
		time.Sleep(time.Second)
		index.set(fail(errBroken), "Settle", "Release")
		lock := "order-1"
		b.accept(dispatch.Submission{LockKey: lock})
		for range 8 {
			b.accept(dispatch.Submission{})
		}
		time.Sleep(5 * time.Second)
		index.set(nil, "Settle", "Release")
		next, locked := b.accept(dispatch.Submission{}), b.accept(dispatch.Submission{LockKey: lock})
		for _, id := range []string{next.ID, locked.ID} {
			if c := b.await(id, 5*time.Second); c.State != store.Succeeded {
				t.Errorf("still %s five seconds after the index came back", c.State)
			}
		}
		if n := len(b.receiver.seen()); n != 11 {
			t.Errorf("%d requests for 11 callbacks", n)
		}
	})
}
