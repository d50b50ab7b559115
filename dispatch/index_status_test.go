package dispatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
)

// Who looks at the index sees which one it is, since when, and whether it is the one that SQL wants.
func TestIndexStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := new(faults)
		b := newFixture(t, always(200, ""), faultyIndex(broken))
		status := func() index.Status {
			t.Helper()
			s, err := b.engine.IndexStatus(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		synctest.Wait()
		first := status()
		want := index.Status{
			Prefix: "dispatcher", Shards: 1, Embedded: true, Generation: first.Generation, Present: first.Generation, BuiltAt: time.Now().UnixMilli(),
		}
		if first.Generation == 0 || first != want {
			t.Errorf("got %+v, want %+v", first, want)
		}
		time.Sleep(time.Hour)
		b.must(b.engine.Rebuild(t.Context(), false, operator))
		want.Generation, want.Present, want.BuiltAt = first.Generation+1, first.Generation+1, time.Now().UnixMilli()
		if s := status(); s != want {
			t.Errorf("after a rebuild: %+v, want %+v", s, want)
		}
		broken.set(fail(errBroken), "Generation")
		want.Present, want.Down = 0, true
		if s := status(); s != want {
			t.Errorf("an index that does not answer: %+v, want %+v", s, want)
		}
		broken.set(nil, "Generation")
		// Another process has begun to rebuild, and has died: nothing looks after an index that is this process's own.
		b.must(b.db.NextGeneration(t.Context(), want.Generation, time.Now().UnixMilli(), nil))
		want.Present, want.Down, want.Rebuilding, want.Generation = want.Generation, false, true, want.Generation+1
		if s := status(); s != want {
			t.Errorf("half-way through a rebuild: %+v, want %+v", s, want)
		}
	})
}
