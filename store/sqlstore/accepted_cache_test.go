package sqlstore

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestAcceptedCacheIsBounded: a full cache takes no row, until rows that were not claimed are too old.
func TestAcceptedCacheIsBounded(t *testing.T) {
	body := make([]byte, 1000)
	f := acceptedCache{max: 10 * (cacheRowBytes + len(body))}
	add := func(n int, at int64) string {
		id := fmt.Sprint("id-", n)
		c := &store.Callback{ID: id, State: store.Scheduled, CreatedAt: at, DueAt: at + cacheDueWithin}
		f.add(c, body)
		return id
	}
	for n := range 20 {
		if id := add(n, 1000); (f.get(id) != nil) != (n < 10) {
			t.Fatalf("callback %d is cached: %t", n, f.get(id) != nil)
		}
	}
	if f.get(add(20, 1000+cacheMaxAge)) != nil {
		t.Error("a full cache took another callback")
	}
	if id := add(21, 1001+cacheMaxAge); f.get(id) == nil || f.get("id-0") != nil || len(f.rows) != 1 ||
		f.bytes != cacheRowBytes+len(body) {
		t.Errorf("unclaimed callbacks were kept: %d rows, %d bytes", len(f.rows), f.bytes)
	}
	f.remove([]store.StampClaim{{ID: "id-21"}, {ID: "unknown"}})
	if len(f.rows) != 0 || f.bytes != 0 || len(f.order) != 0 {
		t.Errorf("after all were claimed: %d rows, %d bytes, %d in order", len(f.rows), f.bytes, len(f.order))
	}
	f.add(&store.Callback{ID: "later", State: store.Scheduled, CreatedAt: 1, DueAt: 2 + cacheDueWithin}, body)
	f.add(&store.Callback{ID: "ended", State: store.Canceled, CreatedAt: 1, DueAt: 1}, body)
	if len(f.rows) != 0 {
		t.Error("a callback that is due later, or has ended, was cached")
	}
}

// TestCachedRowIsStampedLikeAReadRow: a stamp returns the same for a row from the cache and for one from SQL.
func TestCachedRowIsStampedLikeAReadRow(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		drafts := newDrafts(2, testNow)
		for i := range drafts {
			c := &drafts[i].Callback
			c.Lane, c.Ref, c.LockKey, c.ExpiresAt = "lane", "order", "lock", testNow+1000
			c.Headers = []store.Header{{Name: "X-Shop", Value: "1"}}
		}
		cached, read := drafts[0].Callback.ID, drafts[1].Callback.ID
		accepted := must(db.Accept(t.Context(), drafts))
		db.accepted.remove([]store.StampClaim{{ID: read}})
		stamped := stampAll(t, db, cached, read)
		if len(stamped) != 2 {
			t.Fatalf("%d callbacks are stamped, want 2", len(stamped))
		}
		for i, a := range accepted {
			want := forAttempt(&store.Stamped{Callback: a.Callback, Body: drafts[i].Body})
			want.Fence, want.ClaimsWithoutResult = 1, 1
			want.ClaimToken, want.ClaimUntil = "token", testNow+30_000
			if diff := cmp.Diff(want, stamped[i], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("stamp %d (-want +got):\n%s", i, diff)
			}
		}
	})
}
