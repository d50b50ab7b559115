package sqlstore

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	pagesNow = int64(1_790_000_000_000)
	// manyRows is how many callbacks, entries of the audit and activities there are; of the callbacks a third is open, and every thirtieth dead.
	manyRows = 60_000
)

// manyCallbacks are of two projects, a hundred lanes, a thousand lock keys, and a few dozen causes of death. A few of the open ones are due.
const manyCallbacks = `INSERT INTO callbacks (id, project, kind, lane, lock_key, state, due_at, updated_at,
		finished_at, timeout_ms, trigger, reason, last_class, last_status, strict, payload)
	SELECT ` + manyID + `, ` + manyProject + `,
		CASE WHEN i % 200 = 7 THEN 'poll' ELSE 'notify' END, 1 + i % 100,
		CASE WHEN i % 5 < 2 THEN 'lock-' || CAST(i % 1000 AS TEXT) ELSE '' END,
		CASE WHEN i % 3 = 0 THEN 'scheduled' WHEN i % 30 = 1 THEN 'dead' ELSE 'succeeded' END,
		CASE WHEN i % 3 = 0 THEN 1790000000000 - 600000 + i * 1000 ELSE 0 END, 1,
		CASE WHEN i % 3 = 0 THEN 0 ELSE 1 END, 1000, 'schedule',
		CASE WHEN i % 30 = 1 THEN 'exhausted' ELSE '' END,
		CASE WHEN i % 30 = 1 THEN 'class-' || CAST(i % 7 AS TEXT) ELSE '' END,
		CASE WHEN i % 30 = 1 THEN 500 + i % 4 ELSE 0 END, 0, 0
	FROM `

// manyRequests are their second rows.
const manyRequests = `INSERT INTO requests (id, project, url, method, topic, ref, endpoint_id, first_due_at,
		created_at, content_type, signer, headers, labels, policy, success, follows, sealed_key, shared, body)
	SELECT ` + manyID + `, ` + manyProject + `, 'https://a.example', 'GET', '', '', '', 1, 1,
		'', '', '', '', '{}', '{}', 0, '', '', CAST(REPEAT('x', 512) AS BYTEA)
	FROM `

const (
	manyID      = `'01' || SUBSTR(CAST(1000000000 + i AS TEXT), 2) || 'ABCDEFGHJKMNPQR'`
	manyProject = `CASE WHEN i % 2 = 0 THEN 'other' ELSE 'default' END`
)

const manyEntries = `INSERT INTO audit (id, project, at, actor, action, object, reason, detail, address,
		before, after, seq)
	SELECT '01' || SUBSTR(CAST(1000000000 + i AS TEXT), 2) || 'ABCDEFGHJKMNPQR', CASE WHEN i % 2 = 0 THEN 'other' ELSE 'default' END, i, 'key_ops',
		'callback.retry', 'object-' || CAST(i % 5000 AS TEXT), '', '', '', '', '', i
	FROM `

const manyDispatchers = `INSERT INTO dispatchers (name, host, version, roles, workers, in_flight, held, draining, clock_offset, started_at, seen_at)
	SELECT CAST(i AS TEXT), '', '', '', 1, 1, 0, 0, 0, i, i FROM `

const manySchedules = `INSERT INTO schedules (id, project, name, cron, timezone, template, missed, enabled, next_at, created_at, updated_at)
	SELECT CAST(i AS TEXT), 'default', CAST(i AS TEXT), '', '', '', '', 1, i / 2, 1, 1 FROM `

const manySessions = `INSERT INTO sessions (token, data, expires_at) SELECT CAST(i AS TEXT), CAST('x' AS BYTEA), i FROM `

// manyAttempts are half of one callback, and of the others one each.
const manyAttempts = `INSERT INTO attempts (callback_id, number, charged, fence, started_at, ended_at, due_at,
		next_due_at, lateness, status, stale, response_truncated, project, trigger, outcome, class, key_id,
		error, response_body, detail)
	SELECT CASE WHEN i % 2 = 0 THEN 'often' ELSE CAST(i AS TEXT) END, i, 1, i, i, i, i, i, 0, 200, 0, 0,
		'default', 'schedule', 'failed', 'rule_mismatch', '', '', '', '{}'
	FROM `

const manyDueHours = `INSERT INTO counters (project, kind, key, value)
	SELECT CASE WHEN i % 2 = 0 THEN 'other' ELSE 'default' END, CASE WHEN i % 3 = 0 THEN 'due' ELSE 'lane' END, CAST(400000 + i AS TEXT), 1 FROM `

// idOf is the id of one of them.
func idOf(i int) string { return fmt.Sprintf("01%09dABCDEFGHJKMNPQR", i) }

// fillMany fills a PostgreSQL database with statements that make a row of each number.
func fillMany(t *testing.T, db *DB) {
	t.Helper()
	ctx := t.Context()
	numbers := fmt.Sprintf("generate_series(1, %d) AS numbers(i)", manyRows)
	var names []string
	for _, c := range activityCounts(new(store.Activity)) {
		names = append(names, c.Name)
	}
	zeros := strings.TrimSuffix(strings.Repeat("1, ", len(names)), ", ")
	manyActivities := `INSERT INTO activity (` + activityKey + `, ` + strings.Join(names, ", ") + `)
		SELECT CASE WHEN i % 2 = 0 THEN 'other' ELSE 'default' END, CASE WHEN i % 20 < 4 THEN 0 ELSE i % 1000 END,
			CASE i % 3 WHEN 0 THEN 60000 WHEN 1 THEN 900000 ELSE 3600000 END, 1790000000000 - CAST(i AS BIGINT) * 60000, ` + zeros + ` FROM `
	fill := []string{
		manyCallbacks + numbers, manyRequests + numbers,
		manyEntries + numbers, manyDispatchers + numbers, manySchedules + numbers, manySessions + numbers,
		manyDueHours + numbers,
		manyAttempts + numbers,
		manyActivities + numbers,
		`INSERT INTO lanes (id, project, key) SELECT i, 'default', 'lane-' || CAST(i AS TEXT) FROM ` + numbers,
	}
	for _, text := range append(fill, "VACUUM ANALYZE") {
		if _, err := db.sql.Pool.ExecContext(ctx, text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
}

// A pageRead is a statement that a page runs, the index that must lead it, and whether it may sort: what it has found is few then.
type pageRead struct {
	name, text string
	args       []any
	index      string
	sorts      bool
	// planned: it is planned each time that it is run.
	planned bool
}

// pageReads are all statements behind the pages, and those that remove what they show when it is old.
func pageReads(t *testing.T, db *DB) []pageRead {
	t.Helper()
	var reads []pageRead
	add := func(name, index string, sorts bool, text string, args ...any) {
		reads = append(reads, pageRead{name, text, args, index, sorts, false})
	}
	project := store.DefaultProject
	for _, after := range []string{"", idOf(manyRows / 2), idOf(100)} {
		for name, f := range map[string]store.AuditFilter{
			"of an object": {Object: "object-7"}, "of an object, by action": {Object: "object-7", Action: "callback."},
			"by actor": {Actor: "ops"}, "by time": {From: 5, To: 9}, "by action": {Action: "lane."}, "": {},
		} {
			f.After = after
			l := auditListing{project: project, AuditFilter: f, actors: []string{"key_ops"}, left: 50}
			index := "audit_(project|pkey)" // where half of all are the project's, either will do
			if f.Object != "" {
				index = "audit_object"
			}
			end, window, page := l.endQuery(200), l.readQuery(200), l.readQuery(0)
			actors := l.actorsQuery(200)
			add("the actors of a window of the audit "+name, index, true, actors.text.String(),
				actors.args...)
			add("the end of a window of the audit "+name, index, false, end.text.String(), end.args...)
			add("a window of the audit "+name, index, true, selecting(auditColumns, window.text.String()), window.args...)
			add("a page of the audit "+name, index, false, selecting(auditColumns, page.text.String()), page.args...)
		}
	}
	for i := range reads {
		reads[i].planned = true
	}
	add("a page of the audit's chain", "audit_chained", false, selecting(auditColumns, chainPage), 100, manyRows, 500)
	add("a dead group", "callbacks_dead", false, selecting(deadGroupColumns, nextDeadGroup), project, maxCount+1, "exhausted", "class-2", 501)
	add("the first dead group", "callbacks_dead", false, selecting(deadGroupColumns, nextDeadGroup), project, maxCount+1, "", "", -1)
	add("a status", "callbacks_dead", false, groupStatus, project, "exhausted", "class-2", -1)
	add("end of a window of due ones", "callbacks_due", false, selecting(cursorColumns, windowOfDue), 1, "", pagesNow, 200)
	add("due ones", "callbacks_due", false, dueNow, 1, "", pagesNow, "01", pagesNow, project)
	add("due hours", "counters_pkey", false, dueHours, project, hourOf(pagesNow), hourOf(pagesNow+store.Hour.Milliseconds()))
	add("past hours", "counters_due", false, pastHour+"1", pastBefore(pagesNow))
	add("dispatchers", "dispatchers_seen", true, selecting(dispatcherColumns, lastDispatchers), manyRows-10, maxDispatchers)
	add("the next schedules", "schedules_next", true, selecting(dueSchedule, nextSchedules), 0, 100)
	for _, before := range []int{2*manyRows + 1, manyRows / 2, 3} {
		add(fmt.Sprint("attempts before ", before), "attempts_pkey", false, selecting(attemptColumns, lastAttempts),
			"often", project, before, 51)
	}
	add("an attempt", "attempts_pkey", false, selecting(attemptColumns, oneAttempt), "often", project, 8)
	add("a session", "sessions_pkey", false, selecting(sessionColumns, oneSession), "7", 1)
	add("a span", "activity_pkey", false, selecting(activityColumns, "FROM activity WHERE "+ofSpan+activityOrder), project, 0, store.Minute.Milliseconds(), pagesNow-10_000_000, pagesNow)
	add("lanes", "activity_pkey", true, selecting(activityColumns, "FROM activity WHERE "+ofLanes+activityOrder),
		project, store.Hour.Milliseconds(), pagesNow-100_000_000, sqldb.Ints("lane", []int64{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}))
	for _, old := range agedActivity(pagesNow) {
		index := "activity_age"
		if old.which == "lane > 0" {
			index = "activity_lanes_age"
		}
		add("old activity", index, false, oldActivity(old.which), old.before-1_000_000_000, 1000)
	}
	add("lock holder", "callbacks_lock", true, findLockHolder, project, "k", lockedRows, manyRows)
	add("old dispatchers", "dispatchers_seen", false, oldDispatchers, 100, 1000)
	add("old sessions", "sessions_expiry", false, oldSessions, 100, 1000)
	// The few polls among many callbacks are found by an index also when a statement is planned once for all values.
	for name, f := range map[string]store.Filter{
		"of polls": {Kind: store.Poll}, "of polls by topic": {Kind: store.Poll, Topic: "x"},
		"of dead polls": {Kind: store.Poll, States: []store.State{store.Dead}},
	} {
		f.Now, f.Limit = pagesNow, 50
		for _, q := range listStatements(db, project, f) {
			add("list "+name, "callbacks_polls", true, q.text.String(), q.args...)
		}
	}
	for name, f := range map[string]store.Filter{
		"of a lock key":                {LockKey: "lock-11"},
		"dead of a lock key":           {LockKey: "lock-11", States: []store.State{store.Dead}},
		"open of a lock key":           {LockKey: "lock-11", States: []store.State{store.Scheduled, store.Attempting}},
		"a dead group":                 {States: []store.State{store.Dead}, Reason: store.Exhausted, Class: "class-1", Status: 501},
		"a dead group, by topic":       {States: []store.State{store.Dead}, Reason: store.Exhausted, Class: "class-1", Status: 501, Topic: "x"},
		"dead for a reason":            {States: []store.State{store.Dead}, Reason: store.Exhausted},
		"dead with a class":            {States: []store.State{store.Dead}, Class: "class-1"},
		"dead of a lane":               {States: []store.State{store.Dead}, Lane: "lane-1"},
		"dead of a lane, by class":     {States: []store.State{store.Dead}, Lane: "lane-1", Class: "class-1"},
		"a dead group of a lane":       {States: []store.State{store.Dead}, Lane: "lane-1", Reason: store.Exhausted, Class: "class-1"},
		"ended for a reason":           {Reason: store.Exhausted},
		"dead for a reason, by status": {States: []store.State{store.Dead}, Reason: store.Exhausted, Status: 500},
	} {
		f.Now, f.Limit, f.After = pagesNow, 50, &store.Cursor{ID: idOf(1000)} // What is left of a list when it is read to its end is not much.
		index := "requests_pkey"
		switch {
		case f.LockKey != "":
			index = "callbacks_lock"
		case f.Lane != "":
			index = "callbacks_dead_lane"
		case f.Class != "" && f.Reason != "":
			index = "callbacks_dead"
		case len(f.States) > 0:
			index = "callbacks_ended"
		}
		for _, q := range listStatements(db, project, f) {
			add("list "+name, index, true, q.text.String(), q.args...)
			reads[len(reads)-1].planned = true
		}
	}
	return reads
}

// No page may sort what it reads, or read a table from its beginning, however much there is.
func TestPagesFollowIndexes(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		reads := pageReads(t, db)
		if db.sql.Embedded() {
			for _, r := range reads {
				checkLitePlan(t, db, r) // which does not depend on what is in the tables
			}
			return
		}
		fillMany(t, db)
		// A statement that is run often is planned once for all values; before that, for those that it is given.
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			for _, r := range reads {
				if mode == "force_custom_plan" || !r.planned {
					checkPostgresPlan(t, db, r, mode)
				}
			}
		}
	})
}

func checkLitePlan(t *testing.T, db *DB, r pageRead) {
	t.Helper()
	plan := litePlan(t, db, r.text, r.args...)
	index := strings.Replace(r.index, "(project|pkey)", "project", 1)
	if table, primary := strings.CutSuffix(index, "_pkey"); primary {
		index = "(PRIMARY KEY|sqlite_autoindex_" + table + "_1)"
	}
	// What stands in a subquery may be read from its beginning.
	if !regexp.MustCompile(`USING (COVERING )?(INDEX )?`+index+`\b`).MatchString(plan) || !r.sorts && strings.Contains(plan, "TEMP B-TREE") ||
		regexp.MustCompile(`SCAN (callbacks|requests|attempts|audit|activity|dispatchers|sessions|`+
			`counters|lanes|schedules|c)\b`).MatchString(plan) {
		t.Errorf("%s is not read by %s: %s\n%s", r.name, r.index, plan, r.text)
	}
}

func checkPostgresPlan(t *testing.T, db *DB, r pageRead, mode string) {
	t.Helper()
	stx, err := db.sql.Pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stx.Rollback() }()
	text, args, err := db.sql.Dialect.Statement(r.text, r.args)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]string, len(args))
	for i, v := range args {
		switch v := v.(type) {
		case []int64:
			values[i] = "'{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ","), "[]") + "}'"
		default:
			values[i] = fmt.Sprintf("'%v'", v)
		}
	}
	for _, text := range []string{"SET LOCAL plan_cache_mode = " + mode, "PREPARE page AS " + text} {
		if _, err := stx.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v\n%s", r.name, err, text)
		}
	}
	steps, err := sqldb.Values[string](sqldb.ReadFrom(t.Context(), stx, r.name), "EXPLAIN EXECUTE page("+strings.Join(values, ", ")+")")
	if err != nil {
		t.Fatalf("%v\n%s", err, r.text)
	}
	if _, err := stx.ExecContext(t.Context(), "DEALLOCATE page"); err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(steps, "\n")
	if r.index == "requests_pkey" { // and not as what a row of callbacks leads to
		r.index += `( on requests)? .*\s+Index Cond: \(\(project = ['$]\w+`
	}
	if !regexp.MustCompile(`(using|on) `+r.index+`\b`).MatchString(plan) || regexp.MustCompile(`Seq Scan on [^e]`).MatchString(plan) || !r.sorts && strings.Contains(plan, "Sort Key") {
		t.Errorf("%s, %s, is not read by %s:\n%s\n%s", r.name, mode, r.index, plan, r.text)
	}
}

// What is looked for in windows is found in all of them, and no more is looked at than may be.
func TestPagesLookInWindows(t *testing.T) {
	onBoth(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		setLooking(db, 4, 30, 0)
		var drafts []store.Draft
		for i := range 60 {
			d := testDraft(t, db, pagesNow+int64(i))
			if i >= 20 && i%2 == 0 {
				d.Callback.Project = "other"
			}
			drafts = append(drafts, d)
			e := store.AuditEntry{ID: d.Callback.ID, Project: store.DefaultProject, At: int64(i), Actor: "often", Action: "a", Object: "o"}
			if i%20 == 3 {
				e.Actor = "rare"
			}
			if err := db.AppendAudit(ctx, e); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.Accept(ctx, drafts); err != nil {
			t.Fatal(err)
		}
		for now, want := range map[int64]store.DueNow{
			pagesNow: {}, pagesNow + 3: {Count: 3, OldestAt: pagesNow}, pagesNow + 4: {Count: 4, OldestAt: pagesNow},
			pagesNow + 20: {Count: 20, OldestAt: pagesNow}, pagesNow + 24: {Count: 22, OldestAt: pagesNow},
			pagesNow + 60: {Count: 25, More: true, OldestAt: pagesNow}, // of the first thirty
		} {
			if got, err := db.DueNow(ctx, store.DefaultProject, now); err != nil || got != want {
				t.Errorf("due by %d: %v, %+v, want %+v", now-pagesNow, err, got, want)
			}
		}
		if got, err := db.DueNow(ctx, "other", pagesNow+60); err != nil || got != (store.DueNow{Count: 5, More: true, OldestAt: pagesNow + 20}) {
			t.Errorf("due of another project: %v, %+v", err, got)
		}
		for _, object := range []string{"", "o"} {
			var found []int64
			pages := 0
			for f := (store.AuditFilter{Object: object, Actor: "rare", Limit: 2}); ; pages++ {
				page, err := db.Audit(ctx, store.DefaultProject, f)
				if err != nil || len(page.Entries) > 2 || pages > 60 {
					t.Fatalf("page %d: %v, %+v", pages, err, page)
				}
				for _, e := range page.Entries {
					found = append(found, e.At)
				}
				if f.After = page.Next; page.Next == "" {
					break
				}
			}
			if !slices.Equal(found, []int64{43, 23, 3}) || pages < 2 {
				t.Errorf("of object %q: %v on %d pages", object, found, pages+1)
			}
		}
	})
}
