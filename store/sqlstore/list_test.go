package sqlstore

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestListsAreScannedInWindows: whatever the budget of a page is, all pages of a list together have every
// match once, in order.
func TestListsAreScannedInWindows(t *testing.T) {
	onBoth(t, listsInWindows)
}

// listed accepts callbacks in every state and with every value that filters name, some of them rare.
func listed(t *testing.T, db *DB) []store.Callback {
	t.Helper()
	const n = 200
	ctx := t.Context()
	drafts := newDrafts(n, testNow)
	var claimed []string
	for i := range drafts {
		c := &drafts[i].Callback
		c.CreatedAt = time.Now().UnixMilli() + int64(i) // after all other ids, and ascending
		c.ID = fmt.Sprintf("%s%016d", idsFrom(c.CreatedAt), i)
		c.DueAt = testNow - int64(i*7%40)
		c.Lane, c.Topic = fmt.Sprint("lane-", i%7), "often"
		if i%9 == 4 {
			c.EndpointID = "endpoint"
		}
		if i%13 == 5 || i == 25 {
			c.LockKey = "lock"
		}
		if i%11 == 6 || i == 53 {
			c.Kind, drafts[i].Poll = store.Poll, new(store.PollDetail)
		}
		if i == 60 {
			c.Labels = map[string]string{"shop": oddLabel, "a": "", "": "x"}
		}
		switch {
		case i%50 == 3:
			c.Topic, c.Labels = "rare", map[string]string{"shop": "7"}
		case i%3 == 0:
			c.DueAt = testNow + int64(i*7%40)
		}
		c.FirstDueAt = c.DueAt
		if i%4 == 1 || i == 90 || i == 91 {
			claimed = append(claimed, c.ID)
		}
	}
	if accepted := must(db.Accept(ctx, drafts)); accepted[0].Err != nil {
		t.Fatalf("accept: %+v", accepted[0])
	}
	stamped := stampAll(t, db, claimed...)
	var results []store.Result
	for i, s := range stamped[:len(stamped)-1] { // the last one stays claimed
		r := succeeded(s)
		if i%6 == 0 || s.Kind == store.Poll {
			r.State, r.Reason, r.Attempt.Class, r.Attempt.Status = store.Dead, store.Exhausted,
				store.ClassHTTP5xx, 500+i%2
			if i%18 == 0 {
				r.Reason, r.Attempt.Class, r.Attempt.Status = store.Expired, store.ClassTimeoutHeaders, 0
			}
		}
		results = append(results, r)
	}
	must(db.Commit(ctx, results, testNow))
	must(db.Cancel(ctx, store.DefaultProject, drafts[20].Callback.ID, testNow, store.Actor{Name: "test"}))
	page := must(db.List(ctx, store.DefaultProject, store.Filter{Now: testNow, Limit: 500}))
	if len(page.Callbacks) != n || page.Next != nil {
		t.Fatalf("the whole list: %d callbacks, next %v", len(page.Callbacks), page.Next)
	}
	return page.Callbacks
}

// setPageBudget sets the budgets of lists and counts: the first window, all windows, and how many open
// callbacks may be sorted. Their time never runs out.
func setPageBudget(db *DB, first, rows, sortable int) {
	db.listBudget = pageBudget{first: first, rows: rows, time: time.Hour, sortable: sortable}
	db.countBudget = db.listBudget
}

// listsInWindows reads every list of testdata/lists.json with windows, and with all open callbacks sorted.
func listsInWindows(t *testing.T, db *DB) {
	all := listed(t, db)
	for _, sortable := range []int{0, 1000} { // open callbacks are scanned, or sorted at once
		setPageBudget(db, 4, 30, sortable)
		for name, l := range testJSON[map[string]listCase](t, "lists") {
			filter := l.Filter
			if filter.To != 0 {
				filter.From, filter.To = all[filter.From].CreatedAt, all[filter.To].CreatedAt
			}
			for _, filter.ByDue = range []bool{false, true} {
				if sortable > 0 && (filter.ByDue || !filter.Overdue && filter.FinishedFrom == 0 &&
					!slices.Contains(filter.States, store.Scheduled)) {
					continue
				}
				pages := checkList(t, db, filter, all,
					fmt.Sprintf("%s, by due time %t, sortable %d", name, filter.ByDue, sortable))
				if name == "no topic" && pages < 3 {
					t.Errorf("%s: %d pages: one page scanned more than its budget", name, pages)
				}
			}
		}
	}
}

// checkList reads all pages of a list and returns their number. If few callbacks match among many, some pages
// have none.
func checkList(t *testing.T, db *DB, f store.Filter, all []store.Callback, name string) (pages int) {
	t.Helper()
	var want, got []string
	picked := slices.Clone(all)
	if f.ByDue {
		slices.SortStableFunc(picked, func(a, b store.Callback) int {
			return 2*int(a.DueAt-b.DueAt) + strings.Compare(a.ID, b.ID)
		})
	}
	for i := range picked {
		if isPicked(&f, &picked[i]) {
			want = append(want, picked[i].ID)
		}
	}
	f.Now, f.Limit = testNow, 5
	for pages = 1; ; pages++ {
		page, err := db.List(t.Context(), store.DefaultProject, f)
		if err != nil || len(page.Callbacks) > f.Limit || pages > len(all) {
			t.Fatalf("%s: page %d: %v, %d callbacks", name, pages, err, len(page.Callbacks))
		}
		for _, found := range page.Callbacks {
			got = append(got, found.ID)
		}
		f.After = page.Next
		if page.Next == nil {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %d callbacks in %d pages, want %d:\n%v\n%v", name, len(got), pages, len(want), got,
			want)
	}
	return pages
}

// TestWindowsGrowAsTimeAllows: the next window has as many rows as fit into the rest of the time.
func TestWindowsGrowAsTimeAllows(t *testing.T) {
	bounds := pageBudget{first: 100, rows: 10_000, time: 20 * time.Millisecond}
	for _, c := range []struct {
		last, looked int
		took         time.Duration
		want         int
	}{
		{100, 100, 0, 200}, {100, 100, time.Millisecond, 200}, {1600, 3100, 10 * time.Millisecond, 3100},
		{800, 1500, 18 * time.Millisecond, 166}, {800, 1500, 19500 * time.Microsecond, 0},
		{100, 100, 20 * time.Millisecond, 0},
		{100, 100, time.Second, 0}, {6400, 9000, time.Millisecond, 1000}, {6400, 10_000, time.Millisecond, 0},
	} {
		if got := nextWindow(c.last, c.looked, c.took, bounds); got != c.want {
			t.Errorf("after a window of %d, %d in %s: %d, want %d", c.last, c.looked, c.took, got, c.want)
		}
	}
}

// listStatements returns the statements that a page of the list may run.
func listStatements(db *DB, project string, f store.Filter) []*query {
	l := newListing(db, project, f, f.Limit)
	var queries []*query
	if l.by == byGroup { // all have one status
		queries = append(queries, &query{groupStatus, []any{project, string(f.Reason), string(f.Class), -1}})
	}
	list := selecting(callbackColumns, "FROM ")
	place := "SELECT " + l.placeColumns(new(store.Cursor)).List() + " "
	whole := func(columns string, q *query) *query {
		q.text = columns + q.text
		return q
	}
	queries = append(queries, whole(list, l.readQuery(nil)))
	if !l.direct() {
		queries = append(queries, whole(place, l.endQuery(100)),
			whole(list, l.readQuery(&store.Cursor{DueAt: 1, ID: "0"})))
	}
	if l.isOpen() || l.isDied() {
		queries = append(queries, l.tooManyQuery(), whole(list, l.sortedQuery()))
	}
	return queries
}

// TestListsFollowIndexesOnSQLite: no list may sort what it reads, or read a table from its beginning.
// Exceptions are the few open callbacks that are sorted, and the callbacks of one reference. The plans of
// SQLite do not depend on the rows.
func TestListsFollowIndexesOnSQLite(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	for name, l := range testJSON[map[string]listCase](t, "lists") {
		f := l.Filter
		for _, byDue := range []bool{false, true} {
			// The primary key of requests serves the list of a whole project.
			index := strings.Replace(l.Index, "requests_pkey", "sqlite_autoindex_requests_1 (project=? AND ",
				1)
			switch {
			case byDue && f.Ref != "":
				index = "" // any
			case byDue:
				index = "callbacks_due"
			}
			for _, after := range []*store.Cursor{nil, {DueAt: 7, ID: "x"}} {
				f.ByDue, f.After, f.Now, f.Limit = byDue, after, testNow, 50
				for _, q := range listStatements(db, store.DefaultProject, f) {
					text := q.text
					plan := litePlan(t, db, text, q.args...)
					// The outer query of sortedQuery sorts and scans what the inner one finds.
					sorted := strings.Contains(text, "FROM (SELECT *")
					unwanted := regexp.MustCompile(`TEMP B-TREE|SCAN (callbacks|requests)($|;)`)
					bad := unwanted.MatchString(plan) && !(byDue && f.Ref != "")
					if sorted {
						bad = !regexp.MustCompile(`^CO-ROUTINE callbacks; (SEARCH|SCAN) callbacks ` +
							`USING INDEX callbacks_(due|died)`).MatchString(plan)
					}
					// SQLite would use only the first of two bounds on one side.
					bad = bad || !sorted && !byDue &&
						(strings.Count(text, "s.id < ") > 1 || strings.Count(text, "s.id >= ") > 1)
					if bad {
						t.Errorf("%s, by due time %t: %s\n%s", name, byDue, plan, text)
					}
					limited := strings.Contains(text, "LIMIT 1 OFFSET 2000")
					if !sorted && !limited && !strings.Contains(plan, index) {
						t.Errorf("%s, by due time %t, is not read by %s: %s\n%s", name, byDue, index, plan,
							text)
					}
					if strings.Contains(text, "OFFSET $") && !strings.Contains(plan, "COVERING") {
						t.Errorf("%s reads the table for the end of a window: %s\n%s", name, plan, text)
					}
				}
			}
		}
	}
}

// TestFeedReadersFollowTheirIndex: the index endpoints_alerts finds each project's subscribers to operational
// events.
func TestFeedReadersFollowTheirIndex(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	q := must(readersQuery("alerts.", []string{"dispatcher.callback.dead"}, "", 10))
	plan := litePlan(t, db, q.text, q.args...)
	for _, want := range []string{"endpoints_alerts (project=?)", "cursors USING INDEX"} {
		if !strings.Contains(plan, want) {
			t.Errorf("the plan is %s; want %s", plan, want)
		}
	}
}

// A listCase is a filter of a list with the index that must serve it. In testdata/lists.json From and To are
// indexes into the callbacks of listed.
type listCase struct {
	Index string
	store.Filter
}

// testJSON reads a file of test data.
func testJSON[V any](t *testing.T, name string) (v V) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// oddLabel is a label's value with characters that JSON escapes.
const oddLabel = `"7", \ {x}`

// isPicked is the filter in plain Go: it decides which callbacks a list must have.
func isPicked(f *store.Filter, c *store.Callback) bool {
	state := c.StateAt(testNow)
	if f.ByDue && c.State != store.Scheduled ||
		f.Overdue && (state != store.Scheduled || c.DueAt >= testNow) || f.Begun && !c.Begun(testNow) {
		return false
	}
	for key, value := range f.Labels {
		if got, ok := c.Labels[key]; !ok || got != value {
			return false
		}
	}
	is := func(want, got string) bool { return want == "" || want == got }
	return (len(f.States) == 0 || slices.Contains(f.States, state)) &&
		is(string(f.Kind), string(c.Kind)) && is(f.Topic, c.Topic) && is(f.Ref, c.Ref) &&
		is(f.Lane, c.Lane) &&
		is(f.EndpointID, c.EndpointID) && is(f.LockKey, c.LockKey) &&
		is(string(f.Reason), string(c.Reason)) &&
		is(string(f.Class), string(c.LastClass)) && (f.Status == 0 || f.Status == c.LastStatus) &&
		c.AttemptCount >= f.MinAttempts && c.CreatedAt >= f.From && (f.To == 0 || c.CreatedAt < f.To) &&
		c.FinishedAt >= f.FinishedFrom &&
		(f.FinishedTo == 0 || state.Terminal() && c.FinishedAt < f.FinishedTo)
}
