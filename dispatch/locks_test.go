package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Locks on business keys, and strict order.

// An index that is emptied between a callback's lock and its stamp forgets the lock: the attempt must not
// start on it.
func TestALockThatWasForgottenBeforeTheStamp(t *testing.T) {
	var wire gauge
	with(wire.around(takes(3*time.Second))).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		// The first one's lane is the older one, so that a new index serves it first.
		first := b.accept(accept.Submission{URL: "https://a.example/", LockKey: "k",
			Delay: new(500 * time.Millisecond)}).ID
		second := b.accept(accept.Submission{URL: "https://b.example/", LockKey: "k",
			Delay: new(400 * time.Millisecond)}).ID
		late := false
		b.set(func(_ context.Context, c *call) error {
			if claims := c.args[0].(store.Stamp).Claims; !late && len(claims) > 0 && claims[0].ID == second {
				late = true
				time.Sleep(3 * time.Second)
			}
			return c.do()
		}, "Stamp")
		time.Sleep(600 * time.Millisecond) // The second one has the lock and waits for its stamp; the first one is refused.
		b.ok(b.index.Reset(b.Context(), 0, 0))
		b.ends("succeeded 1", time.Minute, first, second)
		b.check(late, "the stamp of the second one was not late")
		b.is("attempts of one lock key at once", wire.peak(), 1)
		b.sent(2, "in all")
	})
}
