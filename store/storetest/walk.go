package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// pastAll is above every id: a cursor with it begins after all rows of its time.
const pastAll = "~"

// A walk reads a page of open rows.
type walk func(after store.Cursor) ([]store.OpenRow, error)

// walked follows a walk to its end and returns the ids.
func (f *fixture) walked(limit int, after store.Cursor, read walk) []string {
	return rowIDs(pages(f, limit, func(last *store.OpenRow) ([]store.OpenRow, error) {
		if last != nil {
			after = store.Cursor{DueAt: last.DueAt, ID: last.ID}
		}
		return read(after)
	}))
}

// lockedByDue makes n callbacks of two projects with a lock key, due at each of some times from the first on,
// and accepted in no order of due time. It returns their ids by due time.
func (f *fixture) lockedByDue(n, times int, first int64) [][]string {
	byDue := make([][]string, times)
	for i := range n {
		due := i * 7 % times
		in := project
		if i%2 == 0 {
			in = "other"
		}
		c := f.accept(dueAt(first+int64(due)*100), withLock("lock"), inProject(in))
		byDue[due] = append(byDue[due], c.ID)
	}
	return byDue
}

func testWalks(f *fixture) {
	want := slices.Concat(f.lockedByDue(12, 4, f.now)...)
	ended := f.dead(dueIn(-1))
	same(f, "open rows", want, f.walked(5, store.Cursor{}, func(after store.Cursor) ([]store.OpenRow, error) {
		return f.Open(f.ctx(), after, 5)
	}))
	claimed := f.claim(want[1])
	overdue := func(claimedBefore int64) []string {
		return f.walked(2, store.Cursor{}, func(after store.Cursor) ([]store.OpenRow, error) {
			return f.Overdue(f.ctx(), after, f.now+200, claimedBefore, 2)
		})
	}
	same(f, "overdue rows", append([]string{want[0]}, want[2:6]...), overdue(f.now))
	same(f, "overdue rows once the claim has ended", want[:6], overdue(claimed.ClaimUntil))
	same(f, "claimed rows", want[1:2], f.walked(2, store.Cursor{},
		func(after store.Cursor) ([]store.OpenRow, error) {
			return f.Claimed(f.ctx(), after, f.now, 2)
		}))
	rows := f.rows(want[4], ended.ID, want[1], f.id())
	same(f, "rows by id", []string{want[1], want[4]}, rowIDs(rows))
	r := rows[0]
	f.check(r.LaneID > 0 && r.LockKey == "lock" && !r.Retry && r.ClaimToken == claimed.ClaimToken &&
		r.ClaimUntil == claimed.ClaimUntil && r.Project != "", "row: %+v", r)
	none(f, "rows of no ids", f.rows())
	has := []string{ended.ID, want[1], want[4]}
	same(f, "known ids", sorted(has), sorted(must(f.Known(f.ctx(), append(has, f.id())))))
	none(f, "of no ids are known", must(f.Known(f.ctx(), nil)))
}

// testOpenUntil: the walk is of one span of due times, its end included, whatever else there is.
func testOpenUntil(f *fixture) {
	base := f.now + hour
	byDue := f.lockedByDue(15, 5, base)
	f.cancel(f.accept(dueAt(base)).ID)
	at := func(due int64, id string) store.Cursor { return store.Cursor{DueAt: base + due, ID: id} }
	for what, c := range map[string]struct {
		after store.Cursor
		until int64
		want  []string
	}{
		"from the beginning to the end":  {store.Cursor{}, base + 10_000, slices.Concat(byDue...)},
		"to the end of time":             {store.Cursor{}, 1<<63 - 1, slices.Concat(byDue...)},
		"to a time that is in it":        {store.Cursor{}, base + 200, slices.Concat(byDue[:3]...)},
		"to just before it":              {store.Cursor{}, base + 199, slices.Concat(byDue[:2]...)},
		"after a time":                   {at(100, pastAll), base + 300, slices.Concat(byDue[2:4]...)},
		"after an id of that time":       {at(100, byDue[1][0]), base + 100, byDue[1][1:]},
		"a span without rows":            {at(100, pastAll), base + 199, nil},
		"a span that ends as it begins":  {at(100, pastAll), base + 100, nil},
		"a span that ends before itself": {at(300, pastAll), base + 100, nil},
	} {
		for _, limit := range []int{1, 2, 3, 100} {
			got := f.walked(limit, c.after, func(after store.Cursor) ([]store.OpenRow, error) {
				return f.OpenUntil(f.ctx(), after, c.until, limit)
			})
			same(f, fmt.Sprintf("%s, %d a page", what, limit), c.want, got)
		}
	}
	rows := must(f.OpenUntil(f.ctx(), store.Cursor{}, base, 1))
	f.check(len(rows) == 1 && rows[0].LaneID > 0 && rows[0].LockKey == "lock" && rows[0].DueAt == base &&
		rows[0].Project == "other", "a row: %+v", rows)
}

func testLease(f *fixture) {
	for i, step := range []struct {
		holder string
		after  int64
		want   bool
	}{
		{"a", 0, true}, {"b", 9_999, false}, {"a", 9_999, true}, {"b", 10_000, false}, {"b", 19_999, true},
		{"a", 20_000, false},
		// The holder dies, and the clock is set back: a little is waited for, an hour is not.
		{"c", 12_000, false}, {"c", 20_000 - hour, true}, {"a", 20_000 - hour, false},
	} {
		held := must(f.TryLease(f.ctx(), "leader", step.holder, f.now+step.after, 10*time.Second))
		same(f, fmt.Sprint("step ", i, ", ", step.holder), step.want, held)
	}
	holders := 0
	for _, held := range crowd(f, 8, func(i int) bool {
		return must(f.TryLease(f.ctx(), "contended", fmt.Sprint(i), f.now, time.Second))
	}) {
		if held {
			holders++
		}
	}
	same(f, "holders of one lease", 1, holders)
}
