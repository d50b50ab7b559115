package sqlstore

import (
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// A plan is made once, often while the tables are empty. It must find both rows of a callback by their whole
// keys: a plan that does not would read all requests for each callback when there are many.
func TestEmptyTablesMakePlansByKeys(t *testing.T) {
	needsPostgres(t)
	db := openPostgres(t)
	byIDs := `SELECT ` + callbackColumns + ` FROM ` + fromCallbacks + `
		WHERE callbacks.id IN (SELECT i.id FROM unnest($1::text[]) AS i (id))
		ORDER BY callbacks.id`
	const callbacksKey, requestsKey = `using callbacks_pkey on callbacks .*\n\s+Index Cond: \(id = `,
		`using requests_pkey on requests .*\n\s+Index Cond: \(\(project = .*\) AND \(id = `
	if plan := genericPlan(t, db.groups, stampUpdate.postgres, len(stampUpdate.fields)); !regexp.MustCompile(callbacksKey).MatchString(plan) {
		t.Errorf("a stamp: no %s in the plan:\n%s", callbacksKey, plan)
	}
	for _, c := range []struct {
		name, text string
		args       int
		pool       *sql.DB
	}{
		{"what a stamp reads", fmt.Sprintf(stampUpdate.postgresRead, "unnest($1::text[]) AS i (id)"), 1, db.groups},
		{"rows that a group locks", byIDs + db.dialect.forUpdate, 1, db.groups},
		{"a callback", oneCallback, 2, db.read},
		{"a payload", onePayload, 2, db.read},
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
	var plan strings.Builder
	nulls := strings.TrimSuffix(strings.Repeat("NULL, ", args), ", ")
	if err := queryEach(t.Context(), conn, func(rows scanner) error {
		var line string
		err := rows.Scan(&line)
		plan.WriteString(line + "\n")
		return err
	}, "EXPLAIN EXECUTE planned("+nulls+")"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "DEALLOCATE planned"); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
