package storetest

import (
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

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
