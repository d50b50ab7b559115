package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Callbacks that were in flight at two crashes in a row are attempted one after the other, so that the next crash says which
// of them it was; what was in flight at none is not held up by them.
func TestSuspectsAreAttemptedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 6
		path := databasePath(t)
		first := startFixture(t, path, always(200, ""), func(o *dispatch.Options) { o.Hold = true })
		var ids []string
		var claims []store.StampClaim
		for i := range n {
			id := first.accept(accept.Submission{URL: fmt.Sprintf("https://suspect-%d.example/", i)}).ID
			ids = append(ids, id)
			claims = append(claims, store.StampClaim{ID: id})
		}
		for crash := range 2 {
			stamped, _, err := first.db.Stamp(t.Context(), store.Stamp{Token: fmt.Sprint("dead-", crash), Now: first.engine.Now(), Margin: 15_000, Claims: claims})
			if err != nil || len(stamped) != n {
				t.Fatalf("stamped %d: %v", len(stamped), err)
			}
			time.Sleep(time.Minute) // the claims run out
		}
		first.stop()

		var mu sync.Mutex
		now, most := 0, 0
		var freshAt time.Time
		second := startFixture(t, path, func(_ context.Context, h hit, _ int) (*http.Response, error) {
			mu.Lock()
			if !strings.Contains(h.url, "suspect") {
				freshAt = time.Now()
				mu.Unlock()
				return answer(200, ""), nil
			}
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(3 * time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return answer(200, ""), nil
		})
		time.Sleep(time.Second)
		accepted := time.Now()
		c := second.accept(accept.Submission{})
		second.await(c.ID, time.Minute)
		for _, id := range ids {
			if c := second.await(id, 5*time.Minute); c.State != store.Succeeded {
				t.Errorf("%s ended %s %s", id, c.State, c.Reason)
			}
			if rows := second.attempts(id); len(rows) != 3 {
				t.Errorf("%s has %d attempts, want two that crashed and one", id, len(rows))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if most != 1 {
			t.Errorf("%d suspects were attempted at once, want 1", most)
		}
		if waited := freshAt.Sub(accepted); freshAt.IsZero() || waited > time.Second {
			t.Errorf("a fresh callback waited %s for them", waited)
		}
	})
}
