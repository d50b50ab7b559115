package sqlstore

import (
	"database/sql"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// TestEmptyTablesMakePlansByKeys: PostgreSQL makes a generic plan once, often while the tables are empty. The
// plan must find both rows of a callback by their whole keys. Otherwise it would read all requests for each
// callback when there are many.
func TestEmptyTablesMakePlansByKeys(t *testing.T) {
	needsPostgres(t)
	db := openPostgres(t)
	statement := func(text string, input any) string {
		text, _, err := db.sql.Dialect.Statement(text, []any{input})
		noError(err)
		return text
	}
	byIDs := func(text string) string { return statement(text, sqldb.Texts("id", nil)) }
	genericPlan := func(pool *sql.DB, text string, args int) string {
		return postgresPlan(t, pool, "force_generic_plan", text, slices.Repeat([]string{"NULL"}, args))
	}
	update, read, _ := stampUpdate.Texts()
	update = statement(update, sqldb.RowsAt(nil, stampUpdate.Columns))
	const callbacksKey, requestsKey = `using callbacks_pkey on callbacks .*\n\s+Index Cond: \(id = `,
		`using requests_pkey on requests .*\n\s+Index Cond: \(\(project = .*\) AND \(id = `
	stampPlan := genericPlan(db.sql.Groups, update, len(stampUpdate.Columns(new(stampEntry))))
	if !regexp.MustCompile(callbacksKey).MatchString(stampPlan) {
		t.Errorf("a stamp: no %s in the plan:\n%s", callbacksKey, stampPlan)
	}
	for _, c := range []struct {
		name, text string
		args       int
		pool       *sql.DB
	}{
		{"what a stamp reads", byIDs(read), 1, db.sql.Groups},
		{"rows that a group locks", byIDs(selecting(callbackColumns,
			"FROM "+fromCallbacks+" WHERE callbacks.id IN (SELECT i.id FROM $i)"+
				" ORDER BY callbacks.id FOR UPDATE")), 1, db.sql.Groups},
		{"a callback", selecting(wholeCallback, "FROM "+oneCallback), 2, db.sql.Reads},
	} {
		plan := genericPlan(c.pool, c.text, c.args)
		for _, by := range []string{callbacksKey, requestsKey} {
			if !regexp.MustCompile(by).MatchString(plan) {
				t.Errorf("%s: no %s in the plan:\n%s", c.name, by, plan)
			}
		}
	}
}

// postgresPlan returns the plan of a statement with these values, in the given plan_cache_mode.
func postgresPlan(t *testing.T, pool *sql.DB, mode, text string, values []string) string {
	t.Helper()
	stx := must(pool.BeginTx(t.Context(), nil))
	defer func() { noError(stx.Rollback()) }()
	for _, text := range []string{"SET LOCAL plan_cache_mode = " + mode, "PREPARE planned AS " + text} {
		if _, err := stx.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	steps, err := sqldb.Values[string](sqldb.ReadFrom(t.Context(), stx, "explain"),
		"EXPLAIN EXECUTE planned("+strings.Join(values, ", ")+")")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	must(stx.ExecContext(t.Context(), "DEALLOCATE planned"))
	return strings.Join(steps, "\n")
}

// TestStrictOrderIsReadFromItsIndex: the index callbacks_strict alone shows whether a strict callback is the
// first, and which one is next. It runs on SQLite, whose plans do not depend on the rows.
func TestStrictOrderIsReadFromItsIndex(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	_, _, stamp := stampUpdate.Texts()
	for name, query := range map[string]string{
		"stamp": stamp,
		"next": `SELECT (SELECT MIN(first.id) FROM callbacks AS first WHERE ` + openStrictOf("first", "i") +
			`) FROM lanes AS i`,
	} {
		// ?1 and so on: numbered parameters, which need not begin at 1
		query = strings.ReplaceAll(strings.ReplaceAll(query, "i.lock_key", "i.key"), "$", "?")
		got := litePlan(t, db, query, 1, 2, 3, 4, 5, 6, 7)
		if !strings.Contains(got, "USING COVERING INDEX callbacks_strict (project=? AND lock_key=?") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
