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

// The metric shows how late retention is to remove the oldest row of each kind.
func TestOverdueRowsAreMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	oldest := func(_ context.Context, c *call) error {
		c.got = map[string]int64{"callback": c.args[0].(store.Retention).Callbacks -
			(90 * time.Minute).Milliseconds()}
		return nil
	}
	registered := func(o *options) { o.Registerer = registry }
	with(nil, registered, withEffect(oldest, "Overstays")).run(t, func(b *fixture) {
		time.Sleep(61 * time.Second)
		const name = "dispatcher_retention_overdue_seconds"
		b.ok(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP `+name+` How long retention has been late to remove the oldest row, by kind. 0: nothing is overdue.
# TYPE `+name+` gauge
`+name+`{kind="callback"} 5400
`+name+`{kind="key"} 0
`+name+`{kind="outcome"} 0
`+name+`{kind="payload"} 0
`+name+`{kind="version"} 0
`), name))
	})
}

// A run of the purge removes all expired rows in small batches, and the next run follows in seconds, so it
// keeps up with any rate. A failure of one kind does not stop the others.
func TestPurgeKeepsUp(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		activity, sessions, largest := 500_000, 1001, 0
		// takes removes at most limit rows of those that are left.
		takes := func(left *int) effect {
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
