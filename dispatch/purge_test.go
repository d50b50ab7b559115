package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The metrics say for how long the oldest row of each kind has been kept too long.
func TestOverstaysAreMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	with(nil, func(o *options) { o.Registerer = registry }, struck(func(_ context.Context, c *call) error {
		c.got = map[string]int64{"callback": c.args[0].(store.Retention).Callbacks -
			(90 * time.Minute).Milliseconds()}
		return nil
	}, "Overstays")).run(t, func(b *fixture) {
		time.Sleep(61 * time.Second)
		const name = "dispatcher_retention_overdue_seconds"
		b.ok(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP `+name+` How long retention has been late to remove the oldest row, by kind. 0: nothing is overdue.
# TYPE `+name+` gauge
`+name+`{what="callback"} 5400
`+name+`{what="key"} 0
`+name+`{what="outcome"} 0
`+name+`{what="payload"} 0
`+name+`{what="version"} 0
`), name))
	})
}

// What is no longer kept goes within one run, in small batches, and the next run is seconds later:
// however much falls due, it is removed at the rate at which it comes. A failure of one kind keeps no other.
func TestPurgeKeepsUp(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		activity, sessions, largest := 500_000, 1001, 0
		// takes removes at most so many rows as are asked for of what is left.
		takes := func(left *int) way {
			return func(_ context.Context, c *call) error {
				if now, limit := c.args[0].(int64), c.args[1].(int); now == soon(0) {
					largest = max(largest, limit)
					n := min(*left, limit)
					*left -= n
					c.got = n
					return nil
				}
				return errors.New("by another clock")
			}
		}
		b.set(takes(&activity), "PurgeActivity")
		b.set(fail(errors.New("no room on the disk")), "PurgeSessions")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		b.is("left after the first run", []int{activity, sessions}, []int{0, 1001})
		between(b, "the most that was removed at once", largest, 1, 5000)
		activity = 100_000
		b.set(takes(&sessions), "PurgeSessions")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		b.is("left after the second run", []int{activity, sessions}, []int{0, 0})
	})
}
