package storetest

import (
	"fmt"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// diesOf accepts a callback and ends it as dead of a cause.
func (f *fixture) diesOf(reason store.Reason, class store.Class, status int) store.Callback {
	f.Helper()
	f.now++
	r := f.died(f.claim(f.accept(nil).ID))
	r.Reason, r.Attempt.Class, r.Attempt.Status = reason, class, status
	f.win(r)
	return f.get(r.ID)
}

func (f *fixture) wantGroups(what string, want ...store.DeadGroup) {
	f.Helper()
	same(f, what, want, must(f.DeadGroups(f.ctx(), project)))
}

// groupOf is the group of callbacks that died alike, the oldest first.
func groupOf(all ...store.Callback) store.DeadGroup {
	first, last := &all[0], &all[len(all)-1]
	return store.DeadGroup{
		Reason: last.Reason, Class: last.LastClass, Status: last.LastStatus, Count: len(all),
		OldestAt: first.CreatedAt, NewestAt: last.CreatedAt, NewestID: last.ID,
	}
}

func testDeadGroups(f *fixture) {
	f.wantGroups("none")
	f.accept(nil)
	f.win(f.succeeded(f.claim(f.accept(nil).ID)))
	f.cancel(f.accept(nil).ID)
	f.wantGroups("none dead")
	a1 := f.diesOf(store.Exhausted, store.ClassHTTP5xx, 500)
	b1 := f.diesOf(store.Exhausted, store.ClassHTTP5xx, 503)
	c1 := f.diesOf(store.Rejected, store.ClassHTTP4xx, 404)
	b2 := f.diesOf(store.Exhausted, store.ClassHTTP5xx, 503)
	d1 := f.diesOf(store.Exhausted, store.ClassTimeoutHeaders, 0)
	b3 := f.diesOf(store.Exhausted, store.ClassHTTP5xx, 503)
	a2 := f.diesOf(store.Exhausted, store.ClassHTTP5xx, 500)
	without := f.accept(func(d *store.Draft) { d.Callback.ExpiresAt = f.now + 1 })
	f.now += 2
	must(f.Expire(f.ctx(), f.now, 10))
	e1 := f.get(without.ID)
	f.wantGroups("five", groupOf(b1, b2, b3), groupOf(a1, a2), groupOf(e1), groupOf(d1), groupOf(c1))
	f.retry(b2.ID, store.Restart)
	f.retry(b3.ID, store.Restart)
	f.retry(d1.ID, store.Once)
	f.wantGroups("three are alive again", groupOf(a1, a2), groupOf(e1), groupOf(c1), groupOf(b1))
	none(f, "of another project", must(f.DeadGroups(f.ctx(), "other")))
}

// testDeadGroupsMany: no more groups are listed, and no more callbacks counted, than may be.
func testDeadGroupsMany(f *fixture) {
	const large = 1001
	groups := 230
	if testing.Short() { // the race detector makes of two hundred looks into the index more than a read may take
		groups = 30
	}
	drafts := make([]store.Draft, large+groups)
	for i := range drafts {
		drafts[i] = f.draft(nil)
	}
	f.acceptAll(drafts...)
	for i := 0; i < len(drafts); i += 100 {
		var ids []string
		for _, d := range drafts[i:min(i+100, len(drafts))] {
			ids = append(ids, d.Callback.ID)
		}
		stamped, _ := f.stamp(f.token(), ids...)
		var results []store.Result
		for n, s := range stamped {
			r := f.died(s)
			if r.Reason = store.Poison; i+n >= large {
				r.Reason, r.Attempt.Class, r.Attempt.Status = store.Exhausted, store.Class(fmt.Sprint("class-", n%7)), i+n
			}
			results = append(results, r)
		}
		must(f.Commit(f.ctx(), results, f.now))
	}
	got := must(f.DeadGroups(f.ctx(), project))
	same(f, "groups", min(groups+1, 200), len(got))
	for _, g := range got {
		if g.Reason == store.Poison && groups < 200 {
			continue
		}
		if g.Count != 1 || g.More || g.Reason != store.Exhausted {
			f.Errorf("%+v", g)
		}
	}
	// Once there are fewer groups, the large one is among them, before all others.
	for _, d := range drafts[large+20:] {
		f.retry(d.Callback.ID, store.Restart)
	}
	got = must(f.DeadGroups(f.ctx(), project))
	same(f, "fewer groups", 21, len(got))
	// It may have been counted less far, if the others have taken long.
	if g := got[0]; g.Reason != store.Poison || !g.More || g.Count != 1000 && g.Count != 10 || g.NewestID != drafts[large-1].Callback.ID {
		f.Errorf("the largest: %+v", g)
	}
}
