package dispatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// hangs lets every address with "hang" in it run into its time-out, and answers the others with 200.
func hangs(ctx context.Context, h hit, _ int) (*http.Response, error) {
	if !strings.Contains(h.url, "hang") {
		return answer(200, ""), nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A callback that is retried at another address leaves the lane of the old one: what hangs there does not hold it up.
func TestRetryElsewhereLeavesTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, hangs)
		var last store.Callback
		for range 10 {
			s := tiers(time.Hour)
			s.URL = "https://hang.example/"
			last = b.accept(s)
		}
		time.Sleep(time.Second)
		if n := len(b.receiver.seen()); n >= 10 {
			t.Fatalf("%d requests: the lane was meant to be full", n)
		}
		_, err := b.engine.Retry(t.Context(), store.DefaultProject, last.ID, dispatch.RetryRequest{URL: "https://other.example/"}, store.Actor{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if c := b.get(last.ID); c.State != store.Succeeded {
			t.Errorf("still %s: it waits in the old address's lane", c.State)
		}
	})
}

// Where the slots that hanging destinations may share are used up, the claimer looks again now and then, and does not spin.
func TestClaimsDoNotSpinForLanesWithoutASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newBench(t, hangs, faultyIndex(index), func(o *dispatch.Options) { o.Workers = 16 })
		for i := range 200 {
			s := tiers(time.Hour)
			s.URL = fmt.Sprintf("https://hang-%d.example/", i)
			b.accept(s)
		}
		time.Sleep(time.Minute)
		before := index.count("Claim")
		time.Sleep(time.Minute)
		if n := index.count("Claim") - before; n > 4000 {
			t.Errorf("%d claims in a minute", n)
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
		b := newBench(t, func(context.Context, hit, int) (*http.Response, error) {
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
		first := b.accept(dispatch.Submission{URL: "https://a.example/", LockKey: "k", Delay: &delay})
		delay = 400 * time.Millisecond
		second := b.accept(dispatch.Submission{URL: "https://b.example/", LockKey: "k", Delay: &delay})
		slow.id.Store(second.ID)
		time.Sleep(600 * time.Millisecond) // The second one has the lock and waits for its stamp; the first one is refused.
		if err := b.index.Reset(t.Context(), 0, 0); err != nil {
			t.Fatal(err)
		}
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

// A probe that hangs up must not make the next one believe that SQL is down.
func TestHealthOutlivesAProbeThatHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, always(200, ""))
		time.Sleep(2 * time.Second)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		b.engine.Health(gone)
		if h := b.engine.Health(t.Context()); !h.Ready {
			t.Errorf("health: %+v", h)
		}
	})
}

// Two rebuilds of one process at a time are made one after the other, each with a generation of its own.
func TestRebuildsDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, always(200, ""))
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

// lines counts what is written.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(1)
	return len(p), nil
}

// An index that is away for long does not fill the log.
func TestAnIndexThatIsAwayIsLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		index := new(faults)
		index.set(fail(errBroken), "Generation")
		b := newBench(t, always(200, ""), faultyIndex(index), func(o *dispatch.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		time.Sleep(10 * time.Minute)
		if n := log.n.Load(); n == 0 || n > 30 {
			t.Errorf("%d lines in ten minutes", n)
		}
		index.set(nil, "Generation")
		b.await(b.accept(dispatch.Submission{}).ID, 10*time.Second)
	})
}
