package ui

import (
	"slices"
	"strings"
	"testing"
)

// TestListsHaveAllPages follows the links to the next page. The pages must show each row once, in the list's
// order, and keep the filter.
func TestListsHaveAllPages(t *testing.T) {
	t.Parallel()
	const n = 120
	w := newWorld("callbacks 120", "endpoints 120", "lanes 120", "redrives 120", "schedules 120", "keys 120")
	for i := range w.has.Lanes {
		w.has.Lanes[i].Open = int64((i + 1) / 2) // each number twice
	}
	b := signedIn(t, w)
	for path, want := range map[string]struct {
		first, last string
		n           int
	}{
		"/ui/callbacks?topic=a.b&order=due": {"order-0120", "order-0001", n},
		"/ui/endpoints?topic=a.b&q=Mer":     {"Merchant 0120", "Merchant 0001", n},
		"/ui/lanes?q=shop":                  {"shop-0001", "shop-0120", n},
		"/ui/lanes?sort=backlog":            {"shop-0120", "shop-0020", 100},
		"/ui/redrives?":                     {"", "", n},
		"/ui/schedules?search=settle":       {"settlement-120", "settlement-001", n},
		"/ui/system/keys?":                  {"checkout 120", "checkout 1", n},
	} {
		var seen []string
		next := path
		for pages := 0; next != ""; pages++ {
			if pages > n {
				t.Fatalf("%s: the pages do not end", path)
			}
			for part := range strings.SplitSeq(path[strings.IndexByte(path, '?')+1:], "&") {
				if !strings.Contains(next, part) {
					t.Errorf("%s: a next page loses %s: %s", path, part, next)
				}
			}
			res := b.get(next).ok()
			for _, row := range find(res.doc, "tbody tr") {
				links := find(row, "[href]")
				seen = append(seen, textOf(row)+attr(links[0], "href"))
			}
			next = ""
			if more := find(res.doc, ".pager a"); len(more) > 0 {
				next = attr(more[len(more)-1], "href")
			}
		}
		all := len(seen)
		if all == 0 || !strings.Contains(seen[0], want.first) || !strings.Contains(seen[all-1], want.last) {
			t.Errorf("%s: the rows are from %q to %q", path, seen[0], seen[all-1])
		}
		slices.Sort(seen)
		if all != want.n || len(slices.Compact(seen)) != want.n {
			t.Errorf("%s: %d rows, %d distinct, want %d", path, all, len(slices.Compact(seen)), want.n)
		}
	}
	if rows := b.get("/ui/lanes?sort=backlog&cursor=gone").ok().count("tbody tr"); rows != pageSize {
		t.Errorf("after a lane that is not in the list: %d rows, want %d", rows, pageSize)
	}
}
