package storetest

import (
	"fmt"
	"slices"

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

func testExpire(f *fixture) {
	expiring := f.acceptEach(4, expiresAt(f.now+1000))
	busy, crashed := expiring[2], expiring[3]
	stay := []store.Callback{f.accept(), f.accept(expiresAt(f.now + 60_000)), busy}
	f.lose(crashed.ID)
	s := f.claim(busy.ID)
	same(f, "expired", 2, len(must(f.Expire(f.ctx(), f.now, 2))))
	same(f, "expired, the rest", 1, len(f.expire()))
	for _, c := range []store.Callback{expiring[0], expiring[1], crashed} {
		c = f.wantState(c.ID, store.Dead, store.Expired)
		f.check(c.FinishedAt == f.now && c.DueAt == 0, "expired: %+v", c)
	}
	same(f, "fence of the crash before the expiry", 1, f.wantAttempts(crashed.ID, store.ClassCrashed)[0].Fence)
	for _, c := range stay {
		f.wantState(c.ID, store.Scheduled, "")
	}
	f.win(f.succeeded(s))
	f.wantCounts(states{store.Dead: 3, store.Scheduled: 2, store.Succeeded: 1})
}

func testDropClaims(f *fixture) {
	claimed, idle := ids(f.acceptEach(2)...), f.accept()
	f.stamp(claimed...)
	f.now += 100
	same(f, "dropped claims", 2, must(f.DropClaims(f.ctx(), f.now)))
	same(f, "dropped again", 0, must(f.DropClaims(f.ctx(), f.now)))
	for _, id := range claimed {
		same(f, "crash count after a dropped claim", 2, f.claim(id).CrashCount)
		f.wantAttempts(id, store.ClassCrashed)
	}
	same(f, "crash count without a claim", 1, f.claim(idle.ID).CrashCount)
}

// testMarks lets open rows come below the low-water marks in every way there is: all are walked, and expire.
func testMarks(f *fixture) {
	advance := func(full bool) {
		for range 2 { // the first call makes the marks
			f.ok(f.AdvanceMarks(f.ctx(), f.now, full))
		}
	}
	walked := func(what string, want ...string) {
		for name, read := range map[string]walk{
			"open": func(c store.Cursor) ([]store.OpenRow, error) { return f.Open(f.ctx(), c, 100) },
			"overdue": func(c store.Cursor) ([]store.OpenRow, error) {
				return f.Overdue(f.ctx(), c, f.now+1, f.now, 100)
			},
			"until": func(c store.Cursor) ([]store.OpenRow, error) { return f.OpenUntil(f.ctx(), c, f.now, 100) },
		} {
			same(f, what+", rows: "+name, want, rowIDs(must(read(store.Cursor{}))))
		}
	}
	f.dead()
	held, dead := f.accept(), f.dead()
	f.now += hour
	advance(false)
	walked("one is held", held.ID)
	f.succeed(held.ID)
	f.now += hour
	advance(false)
	walked("no row is open")

	// As a schedule that is late: due before the mark.
	late := f.accept(dueIn(-2*hour), expiresAt(f.now-hour),
		with(func(c *store.Callback) { c.FirstDueAt -= 2 * hour }))
	walked("accepted with an old time", late.ID)
	same(f, "expired", []string{late.ID}, rowIDs(f.expire()))
	revived := f.retry(dead.ID, store.Once)
	f.now += hour
	advance(false)
	walked("retried, and not yet attempted", revived.ID)
	far := f.accept(dueIn(day))
	f.now += hour
	advance(true)
	f.reschedule(far.ID, f.now)
	claimed := f.claim(revived.ID) // its claim ends without a result
	f.now += claimLasts
	advance(false)
	f.now += hour
	advance(false)
	walked("rescheduled to an earlier time", revived.ID, far.ID)
	f.fail(far.ID)
	f.commit(f.died(claimed))
	advance(false)
	f.now += hour
	advance(false)
	walked("one is put off, and one has ended", far.ID)
	// The clock is set back.
	f.now -= 5 * hour
	back := f.accept()
	advance(false)
	open := rowIDs(must(f.Open(f.ctx(), store.Cursor{}, 100)))
	f.check(slices.Contains(open, back.ID), "the clock was set back, and %s is not open: %v", back.ID, open)
}
