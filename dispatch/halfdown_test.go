package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// fullStore is a database with a full disk: what needs room fails, and a probe that needs none does not.
type fullStore struct {
	dispatch.Store
	full  atomic.Bool
	pings atomic.Int32
}

func (f *fullStore) Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	if f.full.Load() {
		return nil, fmt.Errorf("accept: disk full: %w", store.ErrUnavailable)
	}
	return f.Store.Accept(ctx, drafts)
}

// Commit finds room for none of the results, or for every second one.
func (f *fullStore) Commit(ctx context.Context, results []store.Result, now int64) ([]store.Committed, error) {
	if !f.full.Load() {
		return f.Store.Commit(ctx, results, now)
	}
	committed, err := f.Store.Commit(ctx, results[:len(results)/2], now)
	for len(committed) < len(results) {
		committed = append(committed, store.Committed{Err: fmt.Errorf("commit: disk full: %w", store.ErrUnavailable)})
	}
	return committed, err
}

func (f *fullStore) Ping(ctx context.Context) error {
	f.pings.Add(1)
	return f.Store.Ping(ctx)
}

// A database that fails and answers probes all the same neither fills the log nor is probed without end, and loses nothing.
func TestSQLHalfDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		var half *fullStore
		b := newBench(t, func(context.Context, hit, int) (*http.Response, error) {
			time.Sleep(time.Second)
			return answer(200, ""), nil
		}, func(o *dispatch.Options) {
			half = &fullStore{Store: o.Store}
			o.Store = half
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		var flying []string
		for range 20 {
			flying = append(flying, b.accept(dispatch.Submission{}).ID)
		}
		time.Sleep(500 * time.Millisecond)
		half.full.Store(true)
		before, pings := log.n.Load(), half.pings.Load()
		for range 60 * 100 {
			time.Sleep(10 * time.Millisecond)
			if _, err := b.engine.Accept(t.Context(), store.DefaultProject, []dispatch.Submission{{URL: "https://shop.example/", Body: []byte(`{}`)}}); err == nil {
				t.Fatal("accepted without room")
			}
		}
		if n := log.n.Load() - before; n == 0 || n > 20 {
			t.Errorf("%d lines in a minute", n)
		}
		if n := half.pings.Load() - pings; n > 60*5 {
			t.Errorf("%d probes in a minute", n)
		}
		half.full.Store(false)
		for _, id := range flying {
			if c := b.await(id, 10*time.Second); c.State != store.Succeeded || c.AttemptCount != 1 {
				t.Errorf("got %s after %d attempts", c.State, c.AttemptCount)
			}
		}
		b.await(b.accept(dispatch.Submission{}).ID, 10*time.Second)
	})
}

// An index that fails one operation and answers all others is not driven in a circle.
func TestAnIndexThatFailsToClaimAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newBench(t, always(200, ""), faultyIndex(index))
		index.set(fail(errBroken), "Claim")
		id := b.accept(dispatch.Submission{}).ID
		before := index.count("Claim")
		time.Sleep(time.Minute)
		if n := index.count("Claim") - before; n == 0 || n > 60*20 {
			t.Errorf("%d claims in a minute", n)
		}
		index.set(nil, "Claim")
		b.await(id, 10*time.Second)
	})
}

// What expires does so while the index is away, too.
func TestExpiryWithoutAnIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newBench(t, always(200, ""), faultyIndex(index))
		index.set(fail(errBroken), "Ensure", "Settle", "Claim")
		soon := 10 * time.Second
		for range 5 {
			b.accept(dispatch.Submission{})
		}
		id := b.accept(dispatch.Submission{ExpiresIn: &soon}).ID
		if c := b.await(id, 2*time.Minute); c.State != store.Dead || c.Reason != store.Expired {
			t.Errorf("got %s %s", c.State, c.Reason)
		}
	})
}

// A rebuild by hand whose caller hangs up in the middle of it leaves nothing half filled.
func TestARebuildWhoseCallerHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newBench(t, always(200, ""), faultyIndex(index))
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

// damagedStore has a row, by its id, that no stamp can be written to.
type damagedStore struct {
	dispatch.Store
	damaged atomic.Value
	away    atomic.Bool
}

func (d *damagedStore) Stamp(ctx context.Context, s store.Stamp) ([]*store.Stamped, []store.Refusal, error) {
	if id, _ := d.damaged.Load().(string); slices.ContainsFunc(s.Claims, func(c store.StampClaim) bool { return c.ID == id }) {
		return nil, nil, errors.New("stamp: invalid page in a block")
	}
	return d.Store.Stamp(ctx, s)
}

func (d *damagedStore) Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	if d.away.Load() {
		return nil, fmt.Errorf("accept: %w", store.ErrUnavailable)
	}
	return d.Store.Accept(ctx, drafts)
}

// A stamp that can never be taken back does not keep the others from being sent after SQL was away.
func TestADoubtThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var damaged *damagedStore
		b := newBench(t, always(200, ""), func(o *dispatch.Options) {
			damaged = &damagedStore{Store: o.Store}
			o.Store = damaged
		})
		later := 5 * time.Second
		bad := b.accept(dispatch.Submission{Delay: &later}).ID
		damaged.damaged.Store(bad)
		afterwards := 8500 * time.Millisecond
		good := b.accept(dispatch.Submission{Delay: &afterwards}).ID
		time.Sleep(6 * time.Second) // a stamp has failed
		damaged.away.Store(true)
		if _, err := b.engine.Accept(t.Context(), store.DefaultProject, []dispatch.Submission{{URL: "https://shop.example/", Body: []byte(`{}`)}}); err == nil {
			t.Fatal("accepted")
		}
		damaged.away.Store(false)
		if c := b.await(good, 2*time.Minute); c.State != store.Succeeded {
			t.Errorf("the other one: %s", c.State)
		}
		damaged.damaged.Store("")
		if c := b.await(bad, 2*time.Minute); c.State != store.Succeeded {
			t.Errorf("got %s", c.State)
		}
	})
}
