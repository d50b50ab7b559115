package sqlstore

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// manyRows is the number of rows of each kind in testdata/many.sql.
const manyRows = 60_000

// idOf is the id of row i.
func idOf(i int) string { return fmt.Sprintf("01%09dABCDEFGHJKMNPQR", i) }

// fillMany inserts testdata/many.sql into a PostgreSQL database.
func fillMany(t *testing.T, db *DB) {
	t.Helper()
	many := must(os.ReadFile("testdata/many.sql"))
	for _, text := range []string{string(many), "VACUUM ANALYZE"} {
		must(db.sql.Pool.ExecContext(t.Context(), text))
	}
}

// A pageRead is a statement behind a page, with the index that must serve it. sorts allows it to sort,
// because it has found few rows by then.
type pageRead struct {
	name, text string
	args       []any
	index      string
	sorts      bool
	// planned: the statement is planned for its values each time that it runs.
	planned bool
}

// pageReads returns all statements behind the pages, and those that delete what the pages list.
func pageReads(t *testing.T, db *DB) []pageRead {
	t.Helper()
	var reads []pageRead
	add := func(name, index string, sorts bool, text string, args ...any) {
		reads = append(reads, pageRead{name, text, args, index, sorts, false})
	}
	project := store.DefaultProject
	for _, after := range []string{"", idOf(manyRows / 2), idOf(100)} {
		for name, f := range map[string]store.AuditFilter{
			"of an object":            {Object: "object-7"},
			"of an object, by action": {Object: "object-7", Action: "callback."},
			"by actor":                {Actor: "ops"}, "by time": {From: 5, To: 9},
			"by action": {Action: "lane."}, "": {},
		} {
			f.After = after
			l := auditListing{project: project, AuditFilter: f, actors: []string{"key_ops"}, left: 50}
			index := "audit_(project|pkey)" // the project has half of all entries, so both serve it
			if f.Object != "" {
				index = "audit_object"
			}
			end, window, page := l.endQuery(200), l.readQuery(200), l.readQuery(0)
			actors := l.actorsQuery(200)
			add("the actors of a window of the audit "+name, index, true, actors.text,
				actors.args...)
			add("the end of a window of the audit "+name, index, false, end.text, end.args...)
			add("a window of the audit "+name, index, true, selecting(auditColumns, window.text),
				window.args...)
			add("a page of the audit "+name, index, false, selecting(auditColumns, page.text), page.args...)
		}
	}
	for i := range reads {
		reads[i].planned = true
	}
	add("a page of the audit's chain", "audit_chained", false, selecting(auditColumns, chainPage), 100,
		manyRows, 500)
	add("a dead group", "callbacks_dead", false, selecting(deadGroupColumns, nextDeadGroup), project,
		maxCount+1, "exhausted", "class-2", 501)
	add("the first dead group", "callbacks_dead", false, selecting(deadGroupColumns, nextDeadGroup), project,
		maxCount+1, "", "", -1)
	add("died lately", "callbacks_died", true, diedSince, project, testNow, maxDied+1)
	add("states of a reference", "requests_ref", true, statesOfRef, project, "order-7", maxOfRef+1, testNow)
	add("callbacks of a reference", "requests_ref", true, firstOfRef, project, "order-7", maxOfRef+1, testNow,
		50)
	add("held lanes", "counters_lanes", true, heldLanes, project, maxBusyLanes, testNow, 200,
		sqldb.Ints("id", []int64{3, 4}))
	add("a status", "callbacks_dead", false, groupStatus, project, "exhausted", "class-2", -1)
	add("end of a window of due ones", "callbacks_due", false, selecting(cursorColumns, windowOfDue), 1, "",
		testNow, 200)
	add("due ones", "callbacks_due", false, dueNow, 1, "", testNow, "01", testNow, project)
	add("due hours", "counters_pkey", false, dueHours, project, hourOf(testNow),
		hourOf(testNow+store.Hour.Milliseconds()))
	add("past hours", "counters_due", false, pastHour+"1", pastBefore(testNow))
	add("dispatchers", "dispatchers_seen", true, selecting(dispatcherColumns, lastDispatchers), manyRows-10,
		maxDispatchers)
	add("the next schedules", "schedules_next", true, selecting(dueSchedule, nextSchedules), 0, 100)
	for _, before := range []int{2*manyRows + 1, manyRows / 2, 3} {
		add(fmt.Sprint("attempts before ", before), "attempts_pkey", false,
			selecting(attemptColumns, lastAttempts),
			"often", project, before, 51)
	}
	add("an attempt", "attempts_pkey", false, selecting(attemptColumns, oneAttempt), "often", project, 8)
	add("a session", "sessions_pkey", false, selecting(sessionColumns, oneSession), "7", 1)
	add("a span", "activity_pkey", false, selecting(activityColumns,
		"FROM activity WHERE "+ofSpan+activityOrder), project, 0, store.Minute.Milliseconds(),
		testNow-10_000_000, testNow)
	add("lanes", "activity_pkey", true, selecting(activityColumns,
		"FROM activity WHERE "+ofLanes+activityOrder),
		project, store.Hour.Milliseconds(), testNow-100_000_000,
		sqldb.Ints("lane", []int64{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}))
	for _, old := range agedActivity(testNow) {
		index := "activity_age"
		if old.which == "lane > 0" {
			index = "activity_lanes_age"
		}
		add("old activity", index, false, oldActivity(old.which), old.before-1_000_000_000, 1000)
	}
	add("lock holder", "callbacks_lock", true, findLockHolder, project, "k", lockedRows, manyRows)
	add("old dispatchers", "dispatchers_seen", false, oldDispatchers, 100, 1000)
	add("old sessions", "sessions_expiry", false, oldSessions, 100, 1000)
	for name, l := range testJSON[map[string]listCase](t, "pages") {
		f := l.Filter
		f.Now, f.Limit = testNow, 50
		// A statement for polls may be planned once for all values. An index must still find the few polls
		// among many callbacks.
		planned := f.Kind != store.Poll
		if planned {
			// Begin near the end: the rest of the list is short.
			f.After = &store.Cursor{ID: idOf(1000)}
		}
		for _, q := range listStatements(db, project, f) {
			add("list of "+name, l.Index, true, q.text, q.args...)
			reads[len(reads)-1].planned = planned
		}
	}
	return reads
}

// TestPagesFollowIndexes: no page may sort what it reads, or read a table from its beginning, however many
// rows there are.
func TestPagesFollowIndexes(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		reads := pageReads(t, db)
		if db.sql.Embedded() {
			for _, r := range reads {
				checkLitePlan(t, db, r) // the plans do not depend on the rows
			}
			return
		}
		fillMany(t, db)
		// PostgreSQL plans a statement for its values at first, and for all values once it has run often.
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			for _, r := range reads {
				if mode == "force_custom_plan" || !r.planned {
					checkPostgresPlan(t, db, r, mode)
				}
			}
		}
	})
}

// checkLitePlan checks the plan of one statement on SQLite.
func checkLitePlan(t *testing.T, db *DB, r pageRead) {
	t.Helper()
	plan := litePlan(t, db, r.text, r.args...)
	index := strings.Replace(r.index, "(project|pkey)", "project", 1)
	if table, primary := strings.CutSuffix(index, "_pkey"); primary {
		index = "(PRIMARY KEY|sqlite_autoindex_" + table + "_1)"
	}
	// A subquery may be read from its beginning.
	if !regexp.MustCompile(`USING (COVERING )?(INDEX )?`+index+`\b`).MatchString(plan) ||
		!r.sorts && strings.Contains(plan, "TEMP B-TREE") ||
		regexp.MustCompile(`SCAN (callbacks|requests|attempts|audit|activity|dispatchers|sessions|`+
			`counters|lanes|schedules|c)\b`).MatchString(plan) {
		t.Errorf("%s is not read by %s: %s\n%s", r.name, r.index, plan, r.text)
	}
}

// checkPostgresPlan checks the plan of one statement on PostgreSQL in one plan_cache_mode.
func checkPostgresPlan(t *testing.T, db *DB, r pageRead, mode string) {
	t.Helper()
	text, args, err := db.sql.Dialect.Statement(r.text, r.args)
	noError(err)
	values := make([]string, len(args))
	for i, v := range args {
		switch v := v.(type) {
		case []int64:
			values[i] = "'{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ","), "[]") + "}'"
		default:
			values[i] = fmt.Sprintf("'%v'", v)
		}
	}
	plan := postgresPlan(t, db.sql.Pool, mode, text, values)
	if r.index == "requests_pkey" { // as the index that is scanned, not as a lookup from callbacks
		r.index += `( on requests)? .*\s+Index Cond: \(\(project = ['$]\w+`
	}
	if !regexp.MustCompile(`(using|on) `+r.index+`\b`).MatchString(plan) ||
		regexp.MustCompile(`Seq Scan on [^e]`).MatchString(plan) ||
		!r.sorts && strings.Contains(plan, "Sort Key") {
		t.Errorf("%s, %s, is not read by %s:\n%s\n%s", r.name, mode, r.index, plan, r.text)
	}
}

// TestPagesScanInWindows: a scan in windows finds every match, and never reads more than its budget.
func TestPagesScanInWindows(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		setPageBudget(db, 4, 30, 0)
		drafts := newDrafts(60, testNow)
		for i := range drafts {
			d := &drafts[i]
			d.Callback.DueAt += int64(i)
			if i >= 20 && i%2 == 0 {
				d.Callback.Project = "other"
			}
			e := store.AuditEntry{ID: d.Callback.ID, Project: store.DefaultProject, At: int64(i),
				Actor: "often", Action: "a", Object: "o"}
			if i%20 == 3 {
				e.Actor = "rare"
			}
			noError(db.AppendAudit(ctx, e))
		}
		must(db.Accept(ctx, drafts))
		for now, want := range map[int64]store.DueNow{
			testNow: {}, testNow + 3: {Count: 3, OldestAt: testNow},
			testNow + 4:  {Count: 4, OldestAt: testNow},
			testNow + 20: {Count: 20, OldestAt: testNow}, testNow + 24: {Count: 22, OldestAt: testNow},
			testNow + 60: {Count: 25, More: true, OldestAt: testNow}, // in the first thirty rows
		} {
			if got := must(db.DueNow(ctx, store.DefaultProject, now)); got != want {
				t.Errorf("due by %d: %+v, want %+v", now-testNow, got, want)
			}
		}
		got := must(db.DueNow(ctx, "other", testNow+60))
		if got != (store.DueNow{Count: 5, More: true, OldestAt: testNow + 20}) {
			t.Errorf("due of another project: %+v", got)
		}
		for _, object := range []string{"", "o"} {
			var found []int64
			pages := 0
			for f := (store.AuditFilter{Object: object, Actor: "rare", Limit: 2}); ; pages++ {
				page := must(db.Audit(ctx, store.DefaultProject, f))
				if len(page.Entries) > 2 || pages > 60 {
					t.Fatalf("page %d: %+v", pages, page)
				}
				for _, e := range page.Entries {
					found = append(found, e.At)
				}
				f.After = page.Next
				if page.Next == "" {
					break
				}
			}
			if !slices.Equal(found, []int64{43, 23, 3}) || pages < 2 {
				t.Errorf("of object %q: %v on %d pages", object, found, pages+1)
			}
		}
	})
}

// TestLargestPageOfTheAudit: the largest page has room for one entry more than the API returns. By that entry
// the API knows that there is a next page.
func TestLargestPageOfTheAudit(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		entries := slices.Repeat([]store.AuditEntry{{Project: store.DefaultProject}}, maxList+2)
		noError(db.change(t.Context(), "audit", func(tx *tx) error { return tx.audit(entries...) }))
		page := must(db.Audit(t.Context(), store.DefaultProject, store.AuditFilter{Limit: maxList + 2}))
		if n := len(page.Entries); n != maxList+1 || page.Next == "" {
			t.Errorf("%d entries, next %q", n, page.Next)
		}
	})
}

// TestEveryAttemptIsReached: the pages of a callback with many attempts have every attempt, and no page has
// more than its maximum.
func TestEveryAttemptIsReached(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		const many = 2*maxList + 203
		ctx := t.Context()
		d := newDrafts(1, testNow)[0]
		must(db.Accept(ctx, []store.Draft{d}))
		var attempts []store.Attempt
		for i := range many {
			attempts = append(attempts, store.Attempt{
				CallbackID: d.Callback.ID, Project: store.DefaultProject, Number: i + 1, Fence: int64(i + 1),
				Outcome: store.AttemptFailed,
				Class:   store.ClassHTTP5xx,
			})
		}
		for part := range slices.Chunk(attempts, 100) {
			noError(db.change(ctx, "insert attempts", func(tx *tx) error { return tx.insertAttempts(part) }))
		}
		next := many
		for before := 0; before != 1; before = next + 1 {
			page := must(db.Attempts(ctx, store.DefaultProject, d.Callback.ID, before, many))
			if len(page) == 0 || len(page) > maxList+1 {
				t.Fatalf("%d attempts before %d", len(page), before)
			}
			for i := range page {
				if page[i].Number != next {
					t.Fatalf("attempt %d, want %d", page[i].Number, next)
				}
				next--
			}
		}
	})
}
