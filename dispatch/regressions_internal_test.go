package dispatch

import (
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A callback whose last wait was cut short by its expiry is due at the expiry: claimed then, it ends and is not sent, though
// this process's clock be a little behind the index's.
func TestDueAtItsExpiryIsExpired(t *testing.T) {
	var e Engine
	at := time.Now().Add(5 * time.Millisecond).UnixMilli()
	w := &store.Stamped{Callback: store.Callback{ID: "x", DueAt: at, ExpiresAt: at, CrashCount: 1}}
	got := e.try(t.Context(), w, &schedule.Lease{}, time.Now()).result
	if got.State != store.Dead || got.Reason != store.Expired || got.Attempt != nil {
		t.Errorf("got %s/%s, attempt %v", got.State, got.Reason, got.Attempt)
	}
}
