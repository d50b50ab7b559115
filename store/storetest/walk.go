package storetest

import (
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func ids(rows []store.OpenRow) []string {
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids
}

// pages follows a walk to its end.
func (f *fixture) pages(
	limit int, after store.Cursor, read func(after store.Cursor) ([]store.OpenRow, error),
) []string {
	f.Helper()
	var all []string
	for {
		rows := must(read(after))
		if len(rows) > limit {
			f.Fatalf("a page has %d rows, the limit is %d", len(rows), limit)
		}
		all = append(all, ids(rows)...)
		if len(rows) < limit {
			return all
		}
		last := rows[len(rows)-1]
		after = store.Cursor{DueAt: last.DueAt, ID: last.ID}
	}
}

func testWalks(f *fixture) {
	// Twelve rows of two projects, three due at each time, accepted in no order of due time.
	var want []string
	byDue := make([][]string, 4)
	for i := range 12 {
		n := (i * 5) % 4
		c := f.accept(func(d *store.Draft) {
			d.Callback.DueAt += int64(n) * 100
			d.Callback.LockKey = "lock"
			if i%2 == 0 {
				d.Callback.Project = "other"
			}
		})
		byDue[n] = append(byDue[n], c.ID)
	}
	for _, same := range byDue {
		want = append(want, same...)
	}
	ended := f.dead(func(d *store.Draft) { d.Callback.DueAt = f.now - 1 })
	open := f.pages(5, store.Cursor{}, func(after store.Cursor) ([]store.OpenRow, error) {
		return f.Open(f.ctx(), after, 5)
	})
	if !slices.Equal(open, want) {
		f.Errorf("open rows: %v, want %v", open, want)
	}
	claimed := f.claim(want[1])
	overdue := func(before, claimedBefore int64) []string {
		return f.pages(2, store.Cursor{}, func(after store.Cursor) ([]store.OpenRow, error) {
			return f.Overdue(f.ctx(), after, before, claimedBefore, 2)
		})
	}
	if got := overdue(f.now+200, f.now); !slices.Equal(got, append([]string{want[0]}, want[2:6]...)) {
		f.Errorf("overdue rows: %v", got)
	}
	if got := overdue(f.now+200, claimed.ClaimUntil); !slices.Equal(got, want[:6]) {
		f.Errorf("overdue rows once the claim has ended: %v", got)
	}
	rows, err := f.ByID(f.ctx(), []string{want[4], ended.ID, want[1], f.id()})
	if err != nil || !slices.Equal(ids(rows), []string{want[1], want[4]}) {
		f.Errorf("rows by id: %v, %v", err, ids(rows))
	}
	r := rows[0]
	if r.LaneID <= 0 || r.LockKey != "lock" || r.Retry || r.ClaimToken != claimed.ClaimToken || r.ClaimUntil != claimed.ClaimUntil || r.Project == "" {
		f.Errorf("row: %+v", r)
	}
	none(f, "rows of no ids", must(f.ByID(f.ctx(), nil)))
	known, err := f.Known(f.ctx(), []string{want[4], ended.ID, f.id(), want[1]})
	slices.Sort(known)
	if has := []string{ended.ID, want[1], want[4]}; err != nil || !slices.Equal(known, slices.Sorted(slices.Values(has))) {
		f.Errorf("known ids: %v, %v, want %v", err, known, has)
	}
	none(f, "of no ids are known", must(f.Known(f.ctx(), nil)))
}

func testExpire(f *fixture) {
	expiring := func(d *store.Draft) { d.Callback.ExpiresAt = f.now + 1000 }
	a, b, busy, crashed := f.accept(expiring), f.accept(expiring), f.accept(expiring), f.accept(expiring)
	never := f.accept(nil)
	f.claim(crashed.ID)
	later := f.accept(func(d *store.Draft) { d.Callback.ExpiresAt = f.now + 60_000 })
	f.now += claimLasts
	s := f.claim(busy.ID)
	first, err := f.Expire(f.ctx(), f.now, 2)
	if err != nil || len(first) != 2 {
		f.Fatalf("expire: %v, %+v", err, first)
	}
	second, err := f.Expire(f.ctx(), f.now, 10)
	if err != nil || len(second) != 1 {
		f.Fatalf("expire the rest: %v, %+v", err, second)
	}
	for _, id := range []string{a.ID, b.ID, crashed.ID} {
		c := f.get(id)
		f.wantState(c, store.Dead, store.Expired)
		if c.FinishedAt != f.now || c.DueAt != 0 {
			f.Errorf("expired: %+v", c)
		}
	}
	if attempts := f.attempts(crashed.ID); len(attempts) != 1 || attempts[0].Class != store.ClassCrashed ||
		attempts[0].Fence != 1 {
		f.Errorf("the crash before the expiry left %+v", attempts)
	}
	for _, id := range []string{never.ID, later.ID, busy.ID} {
		if c := f.get(id); c.State != store.Scheduled {
			f.Errorf("%s has expired too: %+v", id, c)
		}
	}
	f.win(f.succeeded(s))
	if counts := f.counts(); counts.States[store.Dead] != 3 || counts.States[store.Scheduled] != 2 || counts.States[store.Succeeded] != 1 {
		f.Errorf("counts %+v", counts)
	}
}

func testDropClaims(f *fixture) {
	a, b := f.accept(nil), f.accept(nil)
	idle := f.accept(nil)
	f.stamp(f.token(), a.ID, b.ID)
	f.now += 100
	same(f, "dropped claims", 2, must(f.DropClaims(f.ctx(), f.now)))
	same(f, "dropped again", 0, must(f.DropClaims(f.ctx(), f.now)))
	for _, id := range []string{a.ID, b.ID} {
		if s := f.claim(id); s.CrashCount != 2 {
			f.Errorf("a dropped claim does not count as crashed: %d", s.CrashCount)
		}
		if attempts := f.attempts(id); len(attempts) != 1 || attempts[0].Class != store.ClassCrashed {
			f.Errorf("a dropped claim left %+v", attempts)
		}
	}
	if s := f.claim(idle.ID); s.CrashCount != 1 {
		f.Errorf("a callback without a claim counts as crashed: %d", s.CrashCount)
	}
}

// testMarks lets open rows come below the low-water marks in every way there is: all are walked, and expire.
func testMarks(f *fixture) {
	const hour = 3_600_000
	advance := func(full bool) {
		f.Helper()
		for range 2 { // the first call makes the marks
			f.ok(f.AdvanceMarks(f.ctx(), f.now, full))
		}
	}
	walked := func(what string, want ...string) {
		f.Helper()
		for name, read := range map[string]func(store.Cursor) ([]store.OpenRow, error){
			"open": func(c store.Cursor) ([]store.OpenRow, error) { return f.Open(f.ctx(), c, 100) },
			"overdue": func(c store.Cursor) ([]store.OpenRow, error) {
				return f.Overdue(f.ctx(), c, f.now+1, f.now, 100)
			},
			"until": func(c store.Cursor) ([]store.OpenRow, error) {
				return f.OpenUntil(f.ctx(), c, f.now, 100)
			},
		} {
			if got := ids(must(read(store.Cursor{}))); !slices.Equal(got, want) {
				f.Errorf("%s, %s rows: %v, want %v", what, name, got, want)
			}
		}
	}
	f.dead(nil)
	held := f.accept(nil)
	dead := f.dead(nil)
	f.now += hour
	advance(false)
	walked("one is held", held.ID)
	f.win(f.succeeded(f.claim(held.ID)))
	f.now += hour
	advance(false)
	walked("no row is open")

	// As a schedule that is late: due before the mark.
	late := f.accept(func(d *store.Draft) {
		d.Callback.DueAt, d.Callback.FirstDueAt = f.now-2*hour, f.now-2*hour
		d.Callback.ExpiresAt = f.now - hour
	})
	walked("accepted with an old time", late.ID)
	if got := ids(must(f.Expire(f.ctx(), f.now, 10))); !slices.Equal(got, []string{late.ID}) {
		f.Errorf("expired: %v", got)
	}
	revived := f.retry(dead.ID, store.Once)
	f.now += hour
	advance(false)
	walked("retried, and not yet attempted", revived.ID)
	far := f.accept(func(d *store.Draft) { d.Callback.DueAt = f.now + 24*hour })
	f.now += hour
	advance(true)
	must(f.Reschedule(f.ctx(), project, far.ID, f.now, f.now, actor))
	claimed := f.claim(revived.ID) // its claim ends without a result
	f.now += claimLasts
	advance(false)
	f.now += hour
	advance(false)
	walked("rescheduled to an earlier time", revived.ID, far.ID)
	f.win(f.failed(f.claim(far.ID)))
	f.commit(f.died(claimed))
	advance(false)
	f.now += hour
	advance(false)
	walked("one is put off, and one has ended", far.ID)
	// The clock is set back.
	f.now -= 5 * hour
	back := f.accept(nil)
	advance(false)
	if got := ids(must(f.Open(f.ctx(), store.Cursor{}, 100))); !slices.Contains(got, back.ID) {
		f.Errorf("the clock was set back, and %s is not among the open rows: %v", back.ID, got)
	}
}

// pastAll is above every id: a cursor with it begins after all rows of its time.
const pastAll = "~"

// testOpenUntil: the walk is of one span of due times, its end included, whatever else there is.
func testOpenUntil(f *fixture) {
	byDue := map[int64][]string{}
	base := f.now + 3600_000
	for i := range 15 {
		due := base + int64((i*7)%5)*100
		c := f.accept(func(d *store.Draft) {
			d.Callback.DueAt, d.Callback.LockKey = due, "lock"
			if i%2 == 0 {
				d.Callback.Project = "other"
			}
		})
		byDue[due] = append(byDue[due], c.ID)
	}
	f.cancel(f.accept(func(d *store.Draft) { d.Callback.DueAt = base }).ID)
	want := func(dues ...int64) (all []string) {
		for _, due := range dues {
			all = append(all, byDue[base+due]...)
		}
		return all
	}
	for _, limit := range []int{1, 2, 3, 100} {
		for what, c := range map[string]struct {
			after store.Cursor
			until int64
			want  []string
		}{
			"from the beginning to the end":  {store.Cursor{}, base + 10_000, want(0, 100, 200, 300, 400)},
			"to the end of time":             {store.Cursor{}, 1<<63 - 1, want(0, 100, 200, 300, 400)},
			"to a time that is in it":        {store.Cursor{}, base + 200, want(0, 100, 200)},
			"to just before it":              {store.Cursor{}, base + 199, want(0, 100)},
			"after a time":                   {store.Cursor{DueAt: base + 100, ID: pastAll}, base + 300, want(200, 300)},
			"after an id of that time":       {store.Cursor{DueAt: base + 100, ID: byDue[base+100][0]}, base + 100, byDue[base+100][1:]},
			"a span without rows":            {store.Cursor{DueAt: base + 100, ID: pastAll}, base + 199, nil},
			"a span that ends as it begins":  {store.Cursor{DueAt: base + 100, ID: pastAll}, base + 100, nil},
			"a span that ends before itself": {store.Cursor{DueAt: base + 300, ID: pastAll}, base + 100, nil},
		} {
			if got := f.pages(limit, c.after, func(after store.Cursor) ([]store.OpenRow, error) {
				return f.OpenUntil(f.ctx(), after, c.until, limit)
			}); !slices.Equal(got, c.want) {
				f.Errorf("%s, %d a page: %v, want %v", what, limit, got, c.want)
			}
		}
	}
	rows, err := f.OpenUntil(f.ctx(), store.Cursor{}, base, 1)
	if err != nil || len(rows) != 1 || rows[0].LaneID <= 0 || rows[0].LockKey != "lock" || rows[0].DueAt != base || rows[0].Project != "other" {
		f.Errorf("a row: %+v, %v", rows, err)
	}
}
