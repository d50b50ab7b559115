package dispatch

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
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

// A result that finds no room when the time of a drain is up does not keep the process from ending.
func TestADrainDoesNotWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &settler{e: &Engine{log: slog.New(slog.DiscardHandler)}, results: make(chan ended)}
		sending, stop := context.WithCancel(t.Context())
		committed := make(chan struct{})
		began := time.Now()
		go s.add(sending, ended{committed: committed})
		time.Sleep(time.Minute)
		select {
		case <-committed:
			t.Fatal("given up though there was time")
		default:
		}
		stop()
		<-committed
		if took := time.Since(began); took > time.Minute+2*lastWait {
			t.Errorf("given up after %v", took)
		}
	})
}
