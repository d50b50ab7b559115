package dispatch_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
)

// An unsafeIndex is on a server that evicts.
type unsafeIndex struct{ *memq.Index }

func (unsafeIndex) Warnings() []string { return []string{"maxmemory-policy is allkeys-lru"} }

// A server that may drop parts of the index degrades the process; it goes on working.
func TestIndexOnAnUnsafeServerDegrades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""), func(o *dispatch.Options) {
			o.Schedule = unsafeIndex{memq.New(memq.Options{})}
		})
		b.await(b.accept(accept.Submission{}).ID, 0)
		h := b.engine.Health(t.Context())
		if !h.Ready || !slices.Contains(h.Degraded, "redis_unsafe") {
			t.Errorf("health is %+v, want ready and degraded by redis_unsafe", h)
		}
		b.stop()
	})
}

// A probe that hangs up must not make the next one believe that SQL is down.
func TestHealthOutlivesAProbeThatHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		time.Sleep(2 * time.Second)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		b.engine.Health(gone)
		if h := b.engine.Health(t.Context()); !h.Ready {
			t.Errorf("health: %+v", h)
		}
	})
}
