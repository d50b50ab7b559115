package sqlstore

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What a purge has passed because it is still needed is in no process a row that should be gone, nor is it
// looked through by each process that takes the purge over.
func TestPlacesOfAPurgeAreShared(t *testing.T) {
	needsPostgres(t)
	url := postgresURL(t)
	db, other := openSlow(t, url), openSlow(t, url)
	now := testNow
	d := newDrafts(1, now)[0]
	d.Idempotency = &store.Idempotency{Route: "POST /v1/callbacks", Key: "key", Fingerprint: []byte("one")}
	must(db.Accept(t.Context(), []store.Draft{d}))
	overstays := func(db *DB, want map[string]int64) {
		t.Helper()
		got, err := db.Overstays(t.Context(), store.Retention{Now: now})
		if err != nil || len(got) != len(want) || got["key"] != want["key"] {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	overstays(db, nil)
	overstays(other, nil)
	now += store.IdempotencyAge.Milliseconds() + saveEvery
	overstays(other, map[string]int64{"key": testNow})
	for range 2 {
		if _, _, err := db.PurgeKeys(t.Context(), now, 100); err != nil {
			t.Fatal(err)
		}
		now += saveEvery
	}
	overstays(db, nil)
	overstays(other, nil)
}
