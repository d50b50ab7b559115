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

func testBooks(f *fixture) {
	const endpoint = "01K00000000000000000000000"
	from := f.now
	topic := func(topic, lane string, labels map[string]string) option {
		return with(func(c *store.Callback) { c.Topic, c.Lane, c.Labels = topic, lane, labels })
	}
	f.succeed(f.accept(topic("a", "l1", map[string]string{"shop": "7", "x": "y"})).ID)
	f.now += 5
	f.dead(topic("a", "l2", map[string]string{"shop": "7"}))
	f.cancel(f.accept(topic("b", "l3", nil), with(func(c *store.Callback) { c.EndpointID = endpoint })).ID)
	f.claim(f.accept(topic("b", "l3", nil)).ID)
	f.acceptEach(5, topic("c", "l1", nil))
	f.accept(inProject("other"))
	f.now += 5
	to := f.now
	f.accept(withTopic("later"))
	for by, want := range map[string][]store.Books{
		"": {{Accepted: 9, Succeeded: 1, Dead: 1, Canceled: 1, Open: 6}},
		"topic": {
			{Group: "a", Accepted: 2, Succeeded: 1, Dead: 1}, {Group: "b", Accepted: 2, Canceled: 1, Open: 1},
			{Group: "c", Accepted: 5, Open: 5},
		},
		"endpoint": {
			{Accepted: 8, Succeeded: 1, Dead: 1, Open: 6}, {Group: endpoint, Accepted: 1, Canceled: 1},
		},
		"lane": {
			{Group: "l1", Accepted: 6, Succeeded: 1, Open: 5}, {Group: "l2", Accepted: 1, Dead: 1},
			{Group: "l3", Accepted: 2, Canceled: 1, Open: 1},
		},
		"label:shop": {{Accepted: 7, Canceled: 1, Open: 6}, {Group: "7", Accepted: 2, Succeeded: 1, Dead: 1}},
	} {
		q := store.BooksQuery{From: from, To: to, GroupBy: by}
		f.wantBooks("by "+by, q, want...)
		if q.MaxGroups = len(want); by == "topic" {
			f.wantBooks("as many groups as are allowed", q, want...)
			q.MaxGroups--
			f.invalid("more groups than are allowed", errOf(f.Books(f.ctx(), project, q)))
		}
	}
	f.wantBooks("to the second time", store.BooksQuery{From: from, To: from + 5},
		store.Books{Accepted: 1, Succeeded: 1})
	f.wantBooks("a time without callbacks", store.BooksQuery{From: to + 1, To: to + 100}, store.Books{})
	for _, by := range []string{"ref", "label:", "lane; DROP TABLE callbacks"} {
		f.invalid("by "+by, errOf(f.Books(f.ctx(), project, store.BooksQuery{From: from, To: to, GroupBy: by})))
	}
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
