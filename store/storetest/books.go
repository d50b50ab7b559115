package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) wantBooks(what string, q store.BooksQuery, want ...store.Books) {
	got := must(f.Books(f.ctx(), project, q))
	for i := range got {
		f.check(got[i].Balanced(), "not balanced: %+v", got[i])
	}
	same(f, what, want, got)
}

// testBooksDays counts around midnight of a zone, also where the clocks are changed.
func testBooksDays(f *fixture) {
	zone := must(time.LoadLocation("Europe/Berlin"))
	at := func(day, hour int) int64 { return time.Date(2026, time.March, day, hour, 0, 0, 0, zone).UnixMilli() }
	for _, f.now = range []int64{at(28, 0), at(28, 23), at(29, 0) - 1, at(29, 0), at(29, 23), at(31, 0)} {
		f.accept()
	}
	day := func(name string, n int64) store.Books { return store.Books{Group: name, Accepted: n, Open: n} }
	q := store.BooksQuery{From: at(28, 0), To: at(31, 1), GroupBy: "day", Zone: zone}
	f.wantBooks("by day", q, day("2026-03-28", 3), day("2026-03-29", 2), day("2026-03-30", 0),
		day("2026-03-31", 1))
	q.Zone = nil
	f.wantBooks("by day of UTC", q,
		day("2026-03-27", 1), day("2026-03-28", 3), day("2026-03-29", 1), day("2026-03-30", 1))
}

func testCompare(f *fixture) {
	from := f.now
	for _, ref := range []string{"a", "b", "b", "", "x2", "x1", "x3", "x1"} {
		f.accept(withRef(ref))
	}
	f.accept(withRef("theirs"), inProject("other"))
	f.now += 5
	to := f.now
	f.accept(withRef("later"))
	compare := func(most int, refs ...string) store.Comparison {
		return must(f.Compare(f.ctx(), project, from, to, refs, most))
	}
	same(f, "compared", store.Comparison{
		Matched: 2, Missing: []string{"later", "theirs", "none"}, Extra: []string{"x1", "x2", "x3"},
	}, compare(10, "later", "b", "a", "theirs", "b", "none"))
	got := compare(2, "a", "b")
	f.check(got.More && len(got.Extra) == 2, "no more than two: %+v", got)
	got = compare(0, "a", "b", "x1", "x2", "x3")
	f.check(!got.More && len(got.Extra) == 0 && got.Matched == 5, "all: %+v", got)
	many := make([]string, 2500)
	for i := range many {
		many[i] = fmt.Sprint("many-", i)
	}
	many[2400] = "a"
	got = compare(0, many...)
	f.check(got.Matched == 1 && len(got.Missing) == 2499 && !slices.Contains(got.Missing, "a") && got.More,
		"of many %d matched, %d are missing", got.Matched, len(got.Missing))
}
