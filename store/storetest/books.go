package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) books(q store.BooksQuery) []store.Books {
	f.Helper()
	books := must(f.Books(f.ctx(), project, q))
	for i := range books {
		if !books[i].Balanced() {
			f.Errorf("not balanced: %+v", books[i])
		}
	}
	return books
}

func testBooks(f *fixture) {
	from := f.now
	draft := func(change func(*store.Callback)) func(*store.Draft) {
		return func(d *store.Draft) { change(&d.Callback) }
	}
	f.win(f.succeeded(f.claim(f.accept(draft(func(c *store.Callback) {
		c.Topic, c.Lane, c.Labels = "a", "l1", map[string]string{"shop": "7", "x": "y"}
	})).ID)))
	f.now += 5
	f.dead(draft(func(c *store.Callback) { c.Topic, c.Lane, c.Labels = "a", "l2", map[string]string{"shop": "7"} }))
	f.cancel(f.accept(draft(func(c *store.Callback) { c.Topic, c.EndpointID = "b", "01K00000000000000000000000" })).ID)
	f.claim(f.accept(draft(func(c *store.Callback) { c.Topic = "b" })).ID)
	for range 5 {
		f.accept(draft(func(c *store.Callback) { c.Topic, c.Lane = "c", "l1" }))
	}
	f.accept(func(d *store.Draft) { d.Callback.Project = "other" })
	f.now += 5
	to := f.now
	f.accept(draft(func(c *store.Callback) { c.Topic = "later" }))
	for by, want := range map[string][]store.Books{
		"":         {{Accepted: 9, Succeeded: 1, Dead: 1, Canceled: 1, Open: 6}},
		"topic":    {{Group: "a", Accepted: 2, Succeeded: 1, Dead: 1}, {Group: "b", Accepted: 2, Canceled: 1, Open: 1}, {Group: "c", Accepted: 5, Open: 5}},
		"endpoint": {{Accepted: 8, Succeeded: 1, Dead: 1, Open: 6}, {Group: "01K00000000000000000000000", Accepted: 1, Canceled: 1}},
		"lane": {
			{Group: "default+https+shop.example+443", Accepted: 2, Canceled: 1, Open: 1}, {Group: "l1", Accepted: 6, Succeeded: 1, Open: 5},
			{Group: "l2", Accepted: 1, Dead: 1},
		},
		"label:shop": {{Accepted: 7, Canceled: 1, Open: 6}, {Group: "7", Accepted: 2, Succeeded: 1, Dead: 1}},
	} {
		same(f, "by "+by, want, f.books(store.BooksQuery{From: from, To: to, GroupBy: by}))
	}
	same(f, "to the second time", []store.Books{{Accepted: 1, Succeeded: 1}}, f.books(store.BooksQuery{From: from, To: from + 5}))
	same(f, "a time without callbacks", []store.Books{{}}, f.books(store.BooksQuery{From: to + 1, To: to + 100}))
	var many *store.InvalidError
	if _, err := f.Books(f.ctx(), project, store.BooksQuery{From: from, To: to, GroupBy: "topic", MaxGroups: 2}); !errors.As(err, &many) {
		f.Errorf("three groups where two are allowed: %v", err)
	}
	f.books(store.BooksQuery{From: from, To: to, GroupBy: "topic", MaxGroups: 3})
	for _, by := range []string{"ref", "label:", "lane; DROP TABLE callbacks"} {
		var invalid *store.InvalidError
		if _, err := f.Books(f.ctx(), project, store.BooksQuery{From: from, To: to, GroupBy: by}); !errors.As(err, &invalid) {
			f.Errorf("by %q: %v", by, err)
		}
	}
}

// testBooksDays counts around midnight of a zone, also where the clocks are changed.
func testBooksDays(f *fixture) {
	zone, err := time.LoadLocation("Europe/Berlin")
	f.ok(err)
	at := func(day, hour int) int64 { return time.Date(2026, time.March, day, hour, 0, 0, 0, zone).UnixMilli() }
	for _, when := range []int64{at(28, 0), at(28, 23), at(29, 0) - 1, at(29, 0), at(29, 23), at(31, 0)} {
		f.now = when
		f.accept(nil)
	}
	day := func(name string, n int64) store.Books { return store.Books{Group: name, Accepted: n, Open: n} }
	got := f.books(store.BooksQuery{From: at(28, 0), To: at(31, 1), GroupBy: "day", Zone: zone})
	same(f, "by day", []store.Books{day("2026-03-28", 3), day("2026-03-29", 2), day("2026-03-30", 0), day("2026-03-31", 1)}, got)
	got = f.books(store.BooksQuery{From: at(28, 0), To: at(31, 1), GroupBy: "day"})
	same(f, "by day of UTC", []store.Books{day("2026-03-27", 1), day("2026-03-28", 3), day("2026-03-29", 1), day("2026-03-30", 1)}, got)
}

func testCompare(f *fixture) {
	from := f.now
	ref := func(ref string) {
		f.accept(func(d *store.Draft) { d.Callback.Ref = ref })
	}
	for _, name := range []string{"a", "b", "b", "", "x2", "x1", "x3", "x1"} {
		ref(name)
	}
	f.accept(func(d *store.Draft) { d.Callback.Ref, d.Callback.Project = "theirs", "other" })
	f.now += 5
	to := f.now
	ref("later")
	compare := func(refs []string, most int) store.Comparison {
		return must(f.Compare(f.ctx(), project, from, to, refs, most))
	}
	got := compare([]string{"later", "b", "a", "theirs", "b", "none"}, 10)
	want := store.Comparison{Matched: 2, Missing: []string{"later", "theirs", "none"}, Extra: []string{"x1", "x2", "x3"}}
	same(f, "compared", want, got)
	if got := compare([]string{"a", "b"}, 2); !got.More || len(got.Extra) != 2 {
		f.Errorf("no more than two: %+v", got)
	}
	if got := compare([]string{"a", "b", "x1", "x2", "x3"}, 0); got.More || len(got.Extra) != 0 || got.Matched != 5 {
		f.Errorf("all: %+v", got)
	}
	many := make([]string, 2500)
	for i := range many {
		many[i] = fmt.Sprint("many-", i)
	}
	many[2400] = "a"
	if got := compare(many, 0); got.Matched != 1 || len(got.Missing) != 2499 || slices.Contains(got.Missing, "a") || !got.More {
		f.Errorf("of many %d matched, %d are missing", got.Matched, len(got.Missing))
	}
}
