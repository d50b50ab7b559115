package dispatch_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
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

// With approvals, the deletion of an endpoint with more open callbacks than the limit waits for a second
// person. One that is small, or has no open callback, does not.
func TestDeletionAwaitsApproval(t *testing.T) {
	with(always(500, ""), func(o *options) { o.ApprovalAbove = 2 }).run(t, func(b *fixture) {
		first, second := store.Actor{Name: "first", ID: "first"}, store.Actor{Name: "second", ID: "second"}
		open := func(n int) (endpoint string, ids []string) {
			ep := b.endpoint(control.EndpointChange{})
			for range n {
				ids = append(ids, b.accept(accept.Submission{
					Endpoint: store.EndpointPrefix + ep.ID, Delay: new(time.Hour),
				}).ID)
			}
			return ep.ID, ids
		}
		remove := func(id string) string {
			b.Helper()
			return must(b.engine.DeleteEndpoint(b.Context(), project, id, first)).ID
		}
		exists := func(id string) bool {
			_, err := b.db.Endpoint(b.Context(), project, id)
			return err == nil
		}
		none, _ := open(0)
		b.is("redrive for no callback", remove(none), "")
		b.is("endpoint without callbacks exists", exists(none), false)
		_, err := b.engine.DeleteEndpoint(b.Context(), project, none, first)
		b.fails("of a deleted endpoint", err, store.ErrNotFound)

		many, ids := open(3)
		job := remove(many)
		b.redriveIs(job, store.RedriveAwaiting)
		b.is("endpoint exists before the approval", exists(many), true)
		_, err = b.engine.SetRedrive(b.Context(), project, job, store.RedriveApproved, first)
		b.fails("its own request", err, store.ErrSecondPerson)
		must(b.engine.SetRedrive(b.Context(), project, job, store.RedriveApproved, second))
		b.redriveIs(job, store.RedriveDone)
		b.is("endpoint exists after the approval", exists(many), false)
		b.ends("canceled endpoint_deleted", time.Minute, ids...)

		few, ids := open(2)
		b.redriveIs(remove(few), store.RedriveDone)
		b.is("endpoint with few callbacks exists", exists(few), false)
		b.ends("canceled endpoint_deleted", time.Minute, ids...)
		another, _ := open(1)
		b.redriveIs(remove(another), store.RedriveAwaiting) // three within an hour
	})
}

// With approvals, one call cancels no more callbacks of a reference than the limit. A redrive cancels more,
// and asks.
func TestCancelOfAReferenceAboveTheLimit(t *testing.T) {
	with(nil, func(o *options) { o.ApprovalAbove = 2 }).run(t, func(b *fixture) {
		cancel := func(ref, topic string) error {
			_, err := b.engine.CancelRef(b.Context(), project,
				control.CancelRefRequest{Ref: ref, Topic: topic}, operator)
			return err
		}
		for _, topic := range []string{"paid", "paid", "refunded"} {
			b.accept(accept.Submission{Ref: "r", Topic: topic, Delay: new(time.Hour)})
		}
		b.is("three", b.wrongFields(cancel("r", "")), []string{"ref"})
		b.ok(cancel("r", "paid"))
		b.ok(cancel("r", ""))
		b.ok(cancel("unknown", ""))
	})
}

// redriveIs waits up to a minute for the state of a redrive.
func (b *fixture) redriveIs(id string, want store.RedriveState) {
	b.Helper()
	var is store.RedriveState
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		is = must(b.db.Redrive(b.Context(), project, id)).State
		if is == want {
			return
		}
	}
	b.Errorf("redrive %s is %s, want %s", id, is, want)
}

// One request by reference cancels no more callbacks than a redrive may without an approval, and repeated
// requests do not either.
func TestCancelByReferenceIsBounded(t *testing.T) {
	const limit = control.MaxCancelRef + 10
	with(nil, func(o *options) { o.ApprovalAbove = limit }).run(t, func(b *fixture) {
		open := func(ref string, n int) {
			list := make([]accept.Submission, n)
			for i := range list {
				list[i] = accept.Submission{Ref: ref, Delay: new(time.Hour)}
			}
			for part := range slices.Chunk(completed(list), 500) {
				for _, a := range must(b.engine.Accept(b.Context(), project, part)) {
					b.ok(a.Err)
				}
			}
		}
		open("many", limit+1)
		_, err := b.engine.CancelRef(b.Context(), project, control.CancelRefRequest{Ref: "many"}, operator)
		b.is("many open callbacks", b.wrongFields(err), []string{"ref"})
		open("few", 2)
		list := must(b.engine.CancelRef(b.Context(), project, control.CancelRefRequest{Ref: "few"}, operator))
		b.is("canceled", len(list), 2)
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
		approved, forgotten := request(b), request(b)
		b.redriveIs(approved, store.RedriveAwaiting)
		b.redriveIs(forgotten, store.RedriveAwaiting)
		b = b.restart(nil)
		free := request(b)
		b.redriveIs(free, store.RedriveDone)
		b.ends("succeeded", time.Minute, ids...)
		_, err := b.engine.SetRedrive(b.Context(), project, approved, store.RedriveApproved, first)
		b.fails("its own request", err, store.ErrSecondPerson)
		_, err = b.engine.SetRedrive(b.Context(), project, approved, store.RedriveApproved, second)
		b.ok(err)
		b.redriveIs(approved, store.RedriveDone)
		b.redriveIs(forgotten, store.RedriveAwaiting) // the store tests when it expires
	})
}
