package sqlstore

import (
	"slices"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Claims that are alive are found and ended wherever they lie among many more rows that are due and not claimed.
func TestClaimsAreFoundAmongManyDueRows(t *testing.T) {
	onBoth(t, claimsAmongMany)
}

func claimsAmongMany(t *testing.T, db *DB) {
	const now, n = int64(1_790_000_000_000), 50
	ctx := t.Context()
	db.window = 7
	drafts := newDrafts(n, now)
	stamp := store.Stamp{Token: "token", Now: now, Margin: 15_000}
	var want []string
	for i := range drafts {
		c := &drafts[i].Callback
		c.DueAt = now - int64(i%5) // the order of due times is another than that of ids
		// The first and the last of a window, whole windows without any, and two in a row.
		if slices.Contains([]int{0, 6, 7, 13, 14, 30, 49}, i) {
			stamp.Claims = append(stamp.Claims, store.StampClaim{ID: c.ID})
			want = append(want, c.ID)
		}
	}
	accepted, err := db.Accept(ctx, drafts)
	if err != nil || accepted[0].Err != nil {
		t.Fatalf("accept: %v, %+v", err, accepted[0])
	}
	if stamped, _, err := db.Stamp(ctx, stamp); err != nil || len(stamped) != len(want) {
		t.Fatalf("stamp: %v, %d rows", err, len(stamped))
	}
	for _, limit := range []int{1, 2, n} {
		var got []string
		for after := (store.Cursor{}); ; {
			rows, err := db.Claimed(ctx, after, now+1, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				got = append(got, r.ID)
				after = store.Cursor{DueAt: r.DueAt, ID: r.ID}
			}
			if len(rows) < limit {
				break
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: claimed are %v, want %v", limit, got, want)
		}
	}
	ends := now + drafts[0].Callback.Policy.Timeout.Milliseconds() + stamp.Margin
	for at, n := range map[int64]int{ends - 1: len(want), ends: 0} {
		if rows, err := db.Claimed(ctx, store.Cursor{}, at, len(drafts)); err != nil || len(rows) != n {
			t.Errorf("%d are claimed until %d, want %d: %v", len(rows), at-now, n, err)
		}
	}
	if n, err := db.DropClaims(ctx, now+1); err != nil || n != len(want) {
		t.Errorf("drop claims: %d, %v; want %d", n, err, len(want))
	}
	if rows, err := db.Claimed(ctx, store.Cursor{}, now+1, n); err != nil || len(rows) > 0 {
		t.Errorf("after all claims were dropped: %v, %v", rows, err)
	}
}
