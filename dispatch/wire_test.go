package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A lane that answers in 5 ms is kept full: results wait for their commit and callbacks are stamped ahead, and neither takes its
// place on the wire; yet there are never more than its concurrency.
func TestALaneIsKeptFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const concurrency, n, each = 8, 2000, 5 * time.Millisecond
		var present, most, answered atomic.Int64
		b := newFixture(t, func(ctx context.Context, _ hit, _ int) (*http.Response, error) {
			most.Store(max(most.Load(), present.Add(1)))
			defer present.Add(-1)
			time.Sleep(each)
			answered.Add(1)
			return answer(200, ""), nil
		}, func(o *dispatch.Options) { o.LaneConcurrency = concurrency })
		start := time.Now()
		b.backlog(n, accept.Submission{})
		for answered.Load() < n {
			if time.Since(start) > time.Minute {
				t.Fatalf("%d of %d after %s", answered.Load(), n, time.Since(start))
			}
			time.Sleep(each)
		}
		took, ideal := time.Since(start), n/concurrency*each
		t.Logf("%d at %d at once took %s; %s would be without any wait", n, concurrency, took, ideal)
		if most.Load() > concurrency {
			t.Errorf("%d were on the wire at once, and the lane's concurrency is %d", most.Load(), concurrency)
		}
		if took > ideal*5/4 {
			t.Errorf("it took %s, a quarter more than %s", took, ideal)
		}
	})
}

// A receiver that asks for a pause gets no more than what is on the wire already: what was stamped ahead goes back, uncharged,
// and is sent when the pause is over. So does what waits for a worker.
func TestWhatWaitsBehindAHoldGoesBack(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{32, 2} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { whatWaitsBehindAHold(t, workers) })
		})
	}
}

func whatWaitsBehindAHold(t *testing.T, workers int) {
	const concurrency, n, good = 8, 300, 100
	var arrived, busy atomic.Int64
	b := newFixture(t, func(context.Context, hit, int) (*http.Response, error) {
		time.Sleep(5 * time.Millisecond)
		if arrived.Add(1) > good && busy.Load() == 0 {
			return answer(429, "", "Retry-After", "30"), nil
		}
		return answer(200, ""), nil
	}, func(o *dispatch.Options) { o.LaneConcurrency, o.Workers = concurrency, workers })
	b.backlog(n, accept.Submission{})
	time.Sleep(20 * time.Second)
	if got, most := arrived.Load(), int64(min(concurrency, workers)); got > good+most {
		t.Errorf("%d requests came, %d of them after the first 429: at most %d were on the wire", got, got-good, most)
	}
	busy.Store(1)
	for range 120 {
		time.Sleep(time.Second)
		synctest.Wait()
		counts, err := b.db.Counts(t.Context(), store.DefaultProject)
		if err != nil {
			t.Fatal(err)
		}
		if counts.States[store.Succeeded] == n {
			if got := arrived.Load(); got > n+concurrency {
				t.Errorf("%d requests for %d callbacks", got, n)
			}
			return
		}
	}
	t.Error("not all were sent within two minutes of the pause")
}

// What waits for its place on the wire when the end comes is sent, if there is time, or handed back; nothing of it is lost.
func TestADrainEndsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 400
		path := databasePath(t)
		var arrived, takes atomic.Int64
		takes.Store(int64(20 * time.Millisecond))
		slow := func(ctx context.Context, _ hit, _ int) (*http.Response, error) {
			arrived.Add(1)
			select {
			case <-time.After(time.Duration(takes.Load())):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return answer(200, ""), nil
		}
		few := func(o *dispatch.Options) { o.LaneConcurrency, o.DrainTimeout = 4, 50*time.Millisecond }
		b := startFixture(t, path, slow, few)
		b.backlog(n, accept.Submission{})
		for arrived.Load() < 100 {
			time.Sleep(time.Millisecond)
		}
		takes.Store(int64(10 * time.Second))
		began := time.Now()
		b.stop()
		takes.Store(int64(20 * time.Millisecond))
		if took := time.Since(began); took > time.Second {
			t.Errorf("the drain took %s", took)
		}
		first := arrived.Load()
		if first == n {
			t.Fatal("all were sent before the end")
		}
		b = startFixture(t, path, slow, few)
		for range 60 {
			time.Sleep(time.Second)
			counts, err := b.db.Counts(t.Context(), store.DefaultProject)
			if err != nil {
				t.Fatal(err)
			}
			if counts.States[store.Succeeded] == n {
				if again := arrived.Load() - n; again > 8 {
					t.Errorf("%d were sent twice; 4 were on the wire at the end", again)
				}
				return
			}
		}
		t.Errorf("after a minute some are left; %d had arrived before the end, %d in all", first, arrived.Load())
	})
}
