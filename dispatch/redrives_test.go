package dispatch_test

import (
	"context"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A dry run counts no further than asked, and reports whether more match.
func TestDryRunCountsUpToMost(t *testing.T) {
	with(always(500, "")).run(t, func(b *fixture) {
		const n = 600
		b.bury(n)
		rows := int64(0)
		b.set(func(_ context.Context, c *call) error {
			err := c.do()
			rows += int64(len(c.got.(store.Page).Callbacks))
			return err
		}, "List")
		for _, c := range []struct {
			most, matched, read int64
			more                bool
		}{{0, n, n, false}, {520, 520, 521, true}, {n - 1, n - 1, n, true}, {n, n, n, false},
			{5000, n, n, false}, {1, 1, 2, true}} {
			r := control.RedriveRequest{
				Action: "retry", Filter: store.Filter{Topic: "payment"}, FilterText: `{"topic":"payment"}`,
				DryRun: true, Most: c.most,
			}
			rows = 0
			matched, more, err := b.engine.CountRedrive(b.Context(), project, r)
			b.check(err == nil && matched == c.matched && more == c.more && rows == c.read,
				"at most %d: %d, more %t, %d rows read, %v; want %+v", c.most, matched, more, rows, err, c)
			dry := must(b.engine.Redrive(b.Context(), project, r, operator))
			b.check(dry.Matched == c.matched && dry.ID == "", "a dry run of at most %d: %+v", c.most, dry)
		}
		_, _, err := b.engine.CountRedrive(b.Context(), project, control.RedriveRequest{Action: "retry"})
		b.is("without a filter", b.wrongFields(err), []string{"filter"})
	})
}
