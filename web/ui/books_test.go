package ui

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// bookRows has books that were counted.
type bookRows struct {
	all      []store.Books
	compared store.Comparison
	err      error
	// late: the count ends when its context does. asked and refs are what was asked for last.
	late  bool
	asked *store.BooksQuery
	refs  *[]string
}

func (b bookRows) Books(ctx context.Context, _ string, q store.BooksQuery) ([]store.Books, error) {
	if b.asked != nil {
		*b.asked = q
	}
	if b.late {
		<-ctx.Done()
		return nil, fmt.Errorf("count: %w", ctx.Err())
	}
	return b.all, b.err
}

func (b bookRows) Compare(ctx context.Context, _ string, _, _ int64, refs []string, _ int) (store.Comparison, error) {
	if b.refs != nil {
		*b.refs = refs
	}
	if b.late {
		<-ctx.Done()
		return store.Comparison{}, fmt.Errorf("compare: %w", ctx.Err())
	}
	return b.compared, b.err
}

func someBooks(group string, accepted, dead, open int64) store.Books {
	return store.Books{Group: group, Accepted: accepted, Succeeded: accepted - dead - open - 1, Dead: dead, Canceled: 1, Open: open}
}

func bookCases() []pageCase {
	give := func(rows bookRows) func(o *fakes) {
		return func(o *fakes) {
			o.bookRows = rows
			o.endpointRows = endpointRows{all: []store.Endpoint{{ID: testID(7), Name: "shop of Li"}}}
		}
	}
	one := bookRows{all: []store.Books{someBooks("", 1_234_567, 3, 30)}}
	off := bookRows{all: []store.Books{{Accepted: 10, Succeeded: 8}}}
	var many, days, endpoints bookRows
	for n := range 120 {
		many.all = append(many.all, someBooks(fmt.Sprintf("payment.succeeded.%03d", n), 1000+int64(n), int64(n%7), int64(n%3)))
	}
	for n := range 30 {
		days.all = append(days.all, someBooks(time.UnixMilli(testNow).UTC().AddDate(0, 0, n-29).Format(time.DateOnly), 1000+int64(n), int64(n%7), int64(n%3)))
	}
	endpoints.all = []store.Books{someBooks("", 10, 0, 1), someBooks(testID(7), 90, 2, 5), {Group: testID(8), Accepted: 5, Succeeded: 3}}
	evil := bookRows{all: []store.Books{someBooks(hostile, 10, 2, 1)}}
	const span = "/ui/books?from=2026-11-01T00:00:00&to=2026-11-07T00:00:00"
	return []pageCase{
		{name: "books/notyet", set: give(bookRows{err: errBroken}), want: wants{{".empty", "Nothing was counted yet"}, {".chips a", "Yesterday"}}, unwanted: []string{"table"}},
		{name: "books/empty", path: span, set: give(bookRows{all: []store.Books{{}}}), want: wants{{".empty", "Nothing was accepted in this span"}}},
		{name: "books/one", path: span, set: give(one), want: wants{{".badge.good", "balanced"}, {".kpi .value a", "1,234,567"}, {".kpi.bad .value", "3"}, {"main", "99.9 %"}}, unwanted: []string{"table"}},
		{name: "books/off", path: span, set: give(off), want: wants{{".badge.bad", "does not balance"}, {".banner.bad", "differ by 2"}}},
		{name: "books/many", path: span + "&group_by=topic", set: give(many), want: wants{{".bulk", "90 more groups"}, {"td a", "payment.succeeded.118"}, {"th", "topic"}}},
		{name: "books/many-days", path: "/ui/books?from=2026-10-01T00:00:00&group_by=day", set: give(days), want: wants{{"td a", time.UnixMilli(testNow).UTC().Format(time.DateOnly)}}},
		{name: "books/many-endpoints", path: span + "&group_by=endpoint", set: give(endpoints), want: wants{{"td a", "shop of Li"}, {"td", "none"}, {"td .badge.bad", "2"}}},
		{name: "books/hostile", path: span + "&group_by=label&label=" + queryEscape(hostile), set: give(evil)},
		{name: "books/hostile-topic", path: span + "&group_by=topic", set: give(evil)},
		{name: "books/wrong", path: "/ui/books?from=" + queryEscape(hostile) + "&to=tomorrow&group_by=label", set: give(bookRows{err: errBroken}), want: wants{{".banner.bad", "Accepted before"}, {".banner.bad", "Name of the label: is needed"}}},
		{name: "books/error", path: span, set: give(bookRows{err: errBroken})},
		{name: "form-compare/one", path: "/ui/books/compare?from=2026-11-01T00:00:00", set: give(one), want: wants{{"h1", "Compare"}, {"label", "References"}}},
		{name: "form-compare/hostile", path: "/ui/books/compare?from=" + queryEscape(hostile) + "&to=" + queryEscape(hostile), set: give(one)},
		{name: "form-compare/error", path: "/ui/books/compare", set: func(o *fakes) { o.projectRows = projectRows{err: errBroken} }},
	}
}

func TestBooksAreCountedOnlyWhenAskedFor(t *testing.T) {
	t.Parallel()
	var asked store.BooksQuery
	o := parts()
	o.bookRows = bookRows{all: []store.Books{someBooks("a", 10, 2, 1)}, asked: &asked}
	b := signedIn(t, o)
	b.cookies[zoneCookie] = "Asia%2FShanghai"
	b.get("/ui/books").ok()
	if asked.To != 0 {
		t.Fatalf("it was counted: %+v", asked)
	}
	res := b.get("/ui/books?from=2026-11-01T00:00&group_by=label&label=channel").ok()
	from := time.Date(2026, 10, 31, 16, 0, 0, 0, time.UTC).UnixMilli()
	if asked.From != from || asked.To <= testNow || asked.To > testNow+1000 || asked.GroupBy != "label:channel" || asked.Zone.String() != "Asia/Shanghai" {
		t.Errorf("asked for %+v", asked)
	}
	dead := attr(find(res.doc, "td a.deadly")[0], "href")
	for _, part := range []string{"from=2026-11-01T00%3A00%3A00", "label.channel=a", "state=dead"} {
		if !strings.Contains(dead, part) {
			t.Errorf("the way to the dead ones lacks %s: %s", part, dead)
		}
	}
	// The way leads to a list that understands it.
	b.fakes.callbackRows = callbackRows{}
	b.get(dead).ok().lacks(".banner.bad")
	b.get("/ui/books?from=2026-11-01&group_by=day").ok()
	b.get("/ui/books?from=2020-11-01&group_by=day").ok().has(".banner.bad", "at most 1,000 days")
	b.get("/ui/books?from=2026-11-03&to=2026-11-01").ok().has(".banner.bad", "later than the end")
	b.get("/ui/books?from=").ok().has(".banner.bad", "is needed")
}

func TestBooksOfADay(t *testing.T) {
	t.Parallel()
	o := parts()
	o.bookRows = bookRows{all: []store.Books{someBooks("2026-11-01", 10, 2, 1), someBooks("2026-11-02", 10, 2, 1)}}
	b := signedIn(t, o)
	res := b.get("/ui/books?from=2026-11-01T08:00:00&to=2026-11-02T09:00:00&group_by=day").ok()
	var ways []string
	for _, a := range find(res.doc, "tbody a.deadly") {
		ways = append(ways, attr(a, "href"))
	}
	want := []string{
		"/ui/callbacks?from=2026-11-02T00%3A00%3A00&state=dead&to=2026-11-02T09%3A00%3A00",
		"/ui/callbacks?from=2026-11-01T08%3A00%3A00&state=dead&to=2026-11-02T00%3A00%3A00",
	}
	if strings.Join(ways, "\n") != strings.Join(want, "\n") {
		t.Errorf("the ways are %q, want %q", ways, want)
	}
}

func TestBooksAsAFile(t *testing.T) {
	t.Parallel()
	o := parts()
	o.bookRows = bookRows{all: []store.Books{someBooks("=1+1", 10, 2, 1), someBooks(`a "b"`, 10, 2, 1)}}
	res := signedIn(t, o).get("/ui/books?from=2026-11-01&group_by=topic&as=csv").ok()
	if want := "group,accepted,succeeded,dead,canceled,open\n'=1+1,10,6,2,1,1\n\"a \"\"b\"\"\",10,6,2,1,1\n"; res.body != want {
		t.Errorf("the file is %q", res.body)
	}
	if kind := res.header.Get("Content-Type"); kind != "text/plain; charset=utf-8" {
		t.Errorf("it is a %s", kind)
	}
}

func TestBooksSayWhatTheStoreRefuses(t *testing.T) {
	t.Parallel()
	o := parts()
	o.bookRows = bookRows{err: invalid("group_by", "makes more than 10000 groups: choose a shorter span")}
	signedIn(t, o).get("/ui/books?from=2026-11-01&group_by=lane").ok().has(".banner.bad", "Group by: makes more than")
}

func TestCompare(t *testing.T) {
	t.Parallel()
	var refs []string
	o := parts()
	c := store.Comparison{Matched: 2, Extra: []string{"extra " + hostile}, More: true}
	for n := range 250 {
		c.Missing = append(c.Missing, fmt.Sprintf("order-%d", n))
	}
	o.bookRows = bookRows{compared: c, refs: &refs}
	o.keyRing = holders()
	b := open(t, o)
	b.signIn("reader")
	res := b.post("/ui/books/compare", "from", "2026-11-01T00:00:00", "refs", " order-1 \r\n\r\norder-2\r\n").ok()
	if strings.Join(refs, "|") != "order-1|order-2" {
		t.Errorf("compared %q", refs)
	}
	checkPage(t, res)
	res.has("h2", "250 references of your list were never accepted")
	res.has(".facts dd", "252")
	res.has("#missing", "order-199")
	res.has("li a", "extra")
	if strings.Contains(textOf(find(res.doc, "#missing")[0]), "order-200") {
		t.Error("more are shown than the page says")
	}
	all := b.post("/ui/books/compare", "from", "2026-11-01", "refs", "x", "preview", "true").ok()
	if got := strings.Count(all.body, "\n"); got != 250 {
		t.Errorf("the file has %d lines", got)
	}
	for _, wrong := range []struct{ name, value, says string }{
		{"from", "soon", "is not a time"}, {"from", "", "is needed"}, {"to", "x", "is not a time"}, {"to", "2026-10-01", "later than the end"},
		{"refs", " \r\n", "at least one"}, {"refs", strings.Repeat("x", 257), "line 1 has more"}, {"refs", strings.Repeat("x\n", 10_001), "more than 10,000"},
	} {
		pairs := map[string]string{"from": "2026-11-01", "to": "2026-11-02", "refs": "a"}
		pairs[wrong.name] = wrong.value
		res := b.post("/ui/books/compare", "from", pairs["from"], "to", pairs["to"], "refs", pairs["refs"])
		if res.status != http.StatusUnprocessableEntity {
			t.Errorf("%s %.20q: status %d", wrong.name, wrong.value, res.status)
		}
		res.has(".field .error", wrong.says)
	}
	if res := b.post("/ui/books/compare", "refs", strings.Repeat("x", maxForm)); res.status != http.StatusRequestEntityTooLarge {
		t.Errorf("too large a list: status %d", res.status)
	}
	c.Missing, c.Extra, c.More = nil, nil, false
	b.fakes.bookRows = bookRows{compared: c}
	b.post("/ui/books/compare", "from", "2026-11-01", "refs", "a").ok().has(".good h2", "Both sides")
	b.fakes.bookRows = bookRows{err: errBroken}
	if res := b.post("/ui/books/compare", "from", "2026-11-01", "refs", "a"); res.status != http.StatusInternalServerError || strings.Contains(res.body, "hunter2") {
		t.Errorf("status %d", res.status)
	}
}
