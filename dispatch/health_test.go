package dispatch_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
)

// An unsafeIndex is on a server that evicts.
type unsafeIndex struct{ *memq.Index }

func (unsafeIndex) Warnings() []string { return []string{"maxmemory-policy is allkeys-lru"} }

// A server that may drop parts of the index degrades the process; it goes on working.
func TestIndexOnAnUnsafeServerDegrades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, always(200, ""), func(o *dispatch.Options) { o.Schedule = unsafeIndex{memq.New(memq.Options{})} })
		b.await(b.accept(dispatch.Submission{}).ID, 0)
		h := b.engine.Health(t.Context())
		if !h.Ready || !slices.Contains(h.Degraded, "redis_unsafe") {
			t.Errorf("health is %+v, want ready and degraded by redis_unsafe", h)
		}
		b.stop()
	})
}
