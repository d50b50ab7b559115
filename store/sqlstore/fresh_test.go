package sqlstore

import (
	"fmt"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What waits for its first attempt is remembered within bounds, and what nobody claims here makes room.
func TestFreshIsBounded(t *testing.T) {
	body := make([]byte, 1000)
	f := fresh{max: 10 * (freshRow + len(body))}
	add := func(n int, at int64) string {
		id := fmt.Sprint("id-", n)
		f.add(&store.Callback{ID: id, State: store.Scheduled, CreatedAt: at, DueAt: at + freshWithin}, body)
		return id
	}
	for n := range 20 {
		if id := add(n, 1000); (f.get(id) != nil) != (n < 10) {
			t.Fatalf("callback %d is remembered: %t", n, f.get(id) != nil)
		}
	}
	if f.get(add(20, 1000+freshFor)) != nil {
		t.Error("a full one took another")
	}
	if id := add(21, 1001+freshFor); f.get(id) == nil || f.get("id-0") != nil || len(f.rows) != 1 || f.bytes != freshRow+len(body) {
		t.Errorf("what nobody claimed was kept: %d rows, %d bytes", len(f.rows), f.bytes)
	}
	f.remove([]store.StampClaim{{ID: "id-21"}, {ID: "unknown"}})
	if len(f.rows) != 0 || f.bytes != 0 || len(f.order) != 0 {
		t.Errorf("after all were claimed: %d rows, %d bytes, %d in order", len(f.rows), f.bytes, len(f.order))
	}
	f.add(&store.Callback{ID: "later", State: store.Scheduled, CreatedAt: 1, DueAt: 2 + freshWithin}, body)
	f.add(&store.Callback{ID: "ended", State: store.Canceled, CreatedAt: 1, DueAt: 1}, body)
	if len(f.rows) != 0 {
		t.Error("one that is not due soon, or has ended, was remembered")
	}
}
