package dispatch_test

import (
	"context"
	"testing"
	"time"

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

// A redrive that awaits its approval goes on waiting if the setting is turned off: it can be approved, and
// expires otherwise.
func TestApprovalsOutliveTheirSetting(t *testing.T) {
	with(always(500, ""), func(o *options) { o.ApprovalAbove = 1 }).run(t, func(b *fixture) {
		ids := b.bury(2)
		first, second := store.Actor{Name: "first", ID: "first"}, store.Actor{Name: "second", ID: "second"}
		request := func(b *fixture) string {
			r := must(b.engine.Redrive(b.Context(), project, control.RedriveRequest{
				Action: "retry", Filter: store.Filter{Topic: "payment"}, FilterText: `{"topic":"payment"}`,
			}, first))
			return r.ID
		}
		state := func(id string, want store.RedriveState, within time.Duration) {
			b.Helper()
			var is store.RedriveState
			for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(time.Second) {
				is = must(b.db.Redrive(b.Context(), project, id)).State
				if is == want {
					return
				}
			}
			b.Errorf("redrive %s is %s, want %s", id, is, want)
		}
		approved, forgotten := request(b), request(b)
		state(approved, store.RedriveAwaiting, time.Minute)
		state(forgotten, store.RedriveAwaiting, time.Minute)
		b = b.restart(nil)
		free := request(b)
		state(free, store.RedriveDone, time.Minute)
		b.ends("succeeded", time.Minute, ids...)
		_, err := b.engine.SetRedrive(b.Context(), project, approved, store.RedriveApproved, first)
		b.fails("its own request", err, store.ErrSecondPerson)
		_, err = b.engine.SetRedrive(b.Context(), project, approved, store.RedriveApproved, second)
		b.ok(err)
		state(approved, store.RedriveDone, time.Minute)
		state(forgotten, store.RedriveAwaiting, time.Minute) // the store tests when it expires
	})
}
