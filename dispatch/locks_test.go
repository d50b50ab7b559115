package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// One lock key: never two at once, no attempt charged for waiting, and no gap while others wait.
func TestOneLockKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		b := newFixture(t, func(context.Context, hit, int) (*http.Response, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(20 * time.Millisecond)
			now.Add(-1)
			return answer(200, ""), nil
		})
		const n = 40
		ids := make([]string, n)
		start := time.Now()
		for i := range ids {
			ids[i] = b.accept(accept.Submission{LockKey: "order-1"}).ID
		}
		diverts := 0
		for _, id := range ids {
			c := b.await(id, time.Minute)
			if c.State != store.Succeeded || c.AttemptCount != 1 {
				t.Errorf("got %s after %d attempts", c.State, c.AttemptCount)
			}
			diverts += c.DivertCount
		}
		hits := b.receiver.seen()
		if most.Load() != 1 || len(hits) != n {
			t.Errorf("%d at once, %d requests; want 1 and %d", most.Load(), len(hits), n)
		}
		if diverts == 0 {
			t.Error("no diverts were counted")
		}
		if took := hits[n-1].at.Sub(start); took > n*20*time.Millisecond+200*time.Millisecond {
			t.Errorf("%d attempts of 20 ms took %v: waiters were not woken", n, took)
		}
	})
}

// slowStamp holds back the first stamp of a callback.
type slowStamp struct {
	dispatch.Store
	id   atomic.Value
	once sync.Once
	wait time.Duration
}

func (s *slowStamp) Stamp(ctx context.Context, st store.Stamp) ([]*store.Stamped, []store.Refusal, error) {
	for i := range st.Claims {
		if s.id.Load() == st.Claims[i].ID {
			s.once.Do(func() { time.Sleep(s.wait) })
		}
	}
	return s.Store.Stamp(ctx, st)
}

// An index that is emptied between a callback's lock and its stamp forgets the lock: the attempt must not start on it.
func TestALockThatWasForgottenBeforeTheStamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow *slowStamp
		var atOnce, most atomic.Int32
		b := newFixture(t, func(context.Context, hit, int) (*http.Response, error) {
			most.Store(max(most.Load(), atOnce.Add(1)))
			time.Sleep(3 * time.Second)
			atOnce.Add(-1)
			return answer(200, ""), nil
		}, func(o *dispatch.Options) {
			slow = &slowStamp{Store: o.Store, wait: 3 * time.Second}
			o.Store = slow
		})
		time.Sleep(time.Second)
		delay := 500 * time.Millisecond
		// The first one's lane is the older one, so that a new index serves it first.
		first := b.accept(accept.Submission{URL: "https://a.example/", LockKey: "k", Delay: &delay})
		delay = 400 * time.Millisecond
		second := b.accept(accept.Submission{URL: "https://b.example/", LockKey: "k", Delay: &delay})
		slow.id.Store(second.ID)
		time.Sleep(600 * time.Millisecond) // The second one has the lock and waits for its stamp; the first one is refused.
		b.ok(b.index.Reset(t.Context(), 0, 0))
		for _, c := range []store.Callback{first, second} {
			if got := b.await(c.ID, time.Minute); got.State != store.Succeeded || got.AttemptCount != 1 {
				t.Errorf("got %s after %d attempts", got.State, got.AttemptCount)
			}
		}
		if n := most.Load(); n != 1 {
			t.Errorf("%d attempts of one lock key at once", n)
		}
		if n := len(b.receiver.seen()); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

// A rebuild that finds the claim of an attempt that has just ended takes its lock again. It is released with the result, and not
// only when the claim runs out.
func TestALockThatARebuildTookAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, always(200, ""), faultySQL(sql))
		time.Sleep(time.Second)
		sql.set(slow(3*time.Second), "Commit")
		first := b.accept(accept.Submission{LockKey: "k"}).ID
		time.Sleep(time.Second) // It has ended; its result is on the way.
		b.ok(b.index.Reset(t.Context(), 0, 0))
		time.Sleep(500 * time.Millisecond)
		sql.set(nil, "Commit")
		second := b.accept(accept.Submission{LockKey: "k"})
		b.await(first, 10*time.Second)
		if c := b.await(second.ID, time.Minute); c.FinishedAt-second.DueAt > 8000 {
			t.Errorf("the next one waited %d ms for a free lock", c.FinishedAt-second.DueAt)
		}
	})
}

// What SQL refuses does not keep what was claimed with it waiting: its locks are released together.
func TestRefusedLocksDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newFixture(t, always(200, ""), faultyIndex(index))
		time.Sleep(time.Second)
		minute := time.Minute
		index.set(fail(errBroken), "IndexCancel") // so that the index still has what SQL has canceled
		for i := range 60 {
			c := b.accept(accept.Submission{
				LockKey: fmt.Sprint("order-", i), Delay: &minute, URL: fmt.Sprintf("https://s%d.example/", i),
			})
			b.must(b.engine.Cancel(t.Context(), store.DefaultProject, c.ID, store.Actor{}))
		}
		healthy := b.accept(accept.Submission{Delay: &minute, URL: "https://healthy.example/"})
		time.Sleep(50 * time.Second)
		index.set(slow(8*time.Millisecond), "Release")
		if c := b.await(healthy.ID, time.Minute); c.State != store.Succeeded {
			t.Fatalf("it is %s", c.State)
		}
		if late := b.attempts(healthy.ID)[0].Lateness; late > 100 {
			t.Errorf("attempted %g ms after its due time", late)
		}
		if n := index.count("Release"); n == 0 {
			t.Error("no lock was released: nothing was refused")
		}
	})
}
