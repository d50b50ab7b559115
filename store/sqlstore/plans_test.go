package sqlstore

import (
	"database/sql"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A plan is made once, often while the tables are empty. It must find both rows of a callback by their whole
// keys: a plan that does not would read all requests for each callback when there are many.
func TestEmptyTablesMakePlansByKeys(t *testing.T) {
	needsPostgres(t)
	db := openPostgres(t)
	byIDs := func(text string) string {
		text, _, err := db.sql.Dialect.Statement(text, []any{sqldb.Texts("id", nil)})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	update, read, _ := stampUpdate.Texts()
	update, _, err := db.sql.Dialect.Statement(update, []any{sqldb.RowsAt(nil, stampUpdate.Columns)})
	if err != nil {
		t.Fatal(err)
	}
	const callbacksKey, requestsKey = `using callbacks_pkey on callbacks .*\n\s+Index Cond: \(id = `,
		`using requests_pkey on requests .*\n\s+Index Cond: \(\(project = .*\) AND \(id = `
	if plan := genericPlan(t, db.sql.Groups, update, len(stampUpdate.Columns(new(stampEntry)))); !regexp.MustCompile(callbacksKey).MatchString(plan) {
		t.Errorf("a stamp: no %s in the plan:\n%s", callbacksKey, plan)
	}
	for _, c := range []struct {
		name, text string
		args       int
		pool       *sql.DB
	}{
		{"what a stamp reads", byIDs(read), 1, db.sql.Groups},
		{"rows that a group locks", byIDs(selecting(callbackColumns, "FROM "+fromCallbacks+" WHERE callbacks.id IN (SELECT i.id FROM $i) ORDER BY callbacks.id FOR UPDATE")), 1, db.sql.Groups},
		{"a callback", selecting(wholeCallback, "FROM "+oneCallback), 2, db.sql.Reads},
	} {
		plan := genericPlan(t, c.pool, c.text, c.args)
		for _, by := range []string{callbacksKey, requestsKey} {
			if !regexp.MustCompile(by).MatchString(plan) {
				t.Errorf("%s: no %s in the plan:\n%s", c.name, by, plan)
			}
		}
	}
}

// genericPlan is the plan for all arguments of a statement.
func genericPlan(t *testing.T, pool *sql.DB, text string, args int) string {
	t.Helper()
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, text := range []string{"SET plan_cache_mode = force_generic_plan", "PREPARE planned AS " + text} {
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	nulls := strings.TrimSuffix(strings.Repeat("NULL, ", args), ", ")
	plan, err := sqldb.Values[string](sqldb.ReadFrom(t.Context(), conn, "explain"), "EXPLAIN EXECUTE planned("+nulls+")")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "DEALLOCATE planned"); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}
