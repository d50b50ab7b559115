package dispatch_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A database that fails and answers probes all the same neither fills the log nor is probed without end, and loses nothing.
func TestSQLHalfDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		sql := new(faults)
		b := newFixture(t, func(context.Context, hit, int) (*http.Response, error) {
			time.Sleep(time.Second)
			return answer(200, ""), nil
		}, faultySQL(sql), func(o *dispatch.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		var flying []string
		for range 20 {
			flying = append(flying, b.accept(accept.Submission{}).ID)
		}
		time.Sleep(500 * time.Millisecond)
		sql.set(fail(errDown), "Accept", "Commit")
		before, pings := log.n.Load(), sql.count("Ping")
		for range 60 * 100 {
			time.Sleep(10 * time.Millisecond)
			if _, err := b.engine.Accept(t.Context(), store.DefaultProject, []accept.Submission{{URL: "https://shop.example/", Body: []byte(`{}`)}}); err == nil {
				t.Fatal("accepted without room")
			}
		}
		if n := log.n.Load() - before; n == 0 || n > 20 {
			t.Errorf("%d lines in a minute", n)
		}
		if n := sql.count("Ping") - pings; n > 60*5 {
			t.Errorf("%d probes in a minute", n)
		}
		sql.set(nil, "Accept", "Commit")
		for _, id := range flying {
			if c := b.await(id, 10*time.Second); c.State != store.Succeeded || c.AttemptCount != 1 {
				t.Errorf("got %s after %d attempts", c.State, c.AttemptCount)
			}
		}
		b.await(b.accept(accept.Submission{}).ID, 10*time.Second)
	})
}

// An index that fails one operation and answers all others is not driven in a circle.
func TestAnIndexThatFailsToClaimAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newFixture(t, always(200, ""), faultyIndex(index))
		index.set(fail(errBroken), "Claim")
		id := b.accept(accept.Submission{}).ID
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
		b := newFixture(t, always(200, ""), faultyIndex(index))
		index.set(fail(errBroken), "Ensure", "Settle", "Claim")
		soon := 10 * time.Second
		for range 5 {
			b.accept(accept.Submission{})
		}
		id := b.accept(accept.Submission{ExpiresIn: &soon}).ID
		if c := b.await(id, 2*time.Minute); c.State != store.Dead || c.Reason != store.Expired {
			t.Errorf("got %s %s", c.State, c.Reason)
		}
	})
}

// damagedStore has a row, by its id, that no stamp can be written to.
type damagedStore struct {
	dispatch.Store
	damaged atomic.Value
}

func (d *damagedStore) Stamp(ctx context.Context, s store.Stamp) ([]*store.Stamped, []store.Refusal, error) {
	if id, _ := d.damaged.Load().(string); slices.ContainsFunc(s.Claims, func(c store.StampClaim) bool { return c.ID == id }) {
		return nil, nil, errors.New("stamp: invalid page in a block")
	}
	return d.Store.Stamp(ctx, s)
}

// A stamp that can never be taken back does not keep the others from being sent after SQL was away.
func TestADoubtThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		damaged, sql := new(damagedStore), new(faults)
		b := newFixture(t, always(200, ""), func(o *dispatch.Options) {
			damaged.Store, o.Store = o.Store, damaged
		}, faultySQL(sql))
		later := 5 * time.Second
		bad := b.accept(accept.Submission{Delay: &later}).ID
		damaged.damaged.Store(bad)
		afterwards := 8500 * time.Millisecond
		good := b.accept(accept.Submission{Delay: &afterwards}).ID
		time.Sleep(6 * time.Second) // a stamp has failed
		sql.set(fail(errDown), "Accept")
		if _, err := b.engine.Accept(t.Context(), store.DefaultProject, []accept.Submission{{URL: "https://shop.example/", Body: []byte(`{}`)}}); err == nil {
			t.Fatal("accepted")
		}
		sql.set(nil, "Accept")
		if c := b.await(good, 2*time.Minute); c.State != store.Succeeded {
			t.Errorf("the other one: %s", c.State)
		}
		damaged.damaged.Store("")
		if c := b.await(bad, 2*time.Minute); c.State != store.Succeeded {
			t.Errorf("got %s", c.State)
		}
	})
}
