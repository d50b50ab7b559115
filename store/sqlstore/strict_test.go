package sqlstore

import (
	"strings"
	"testing"
)

// Whether a strict callback is first, and which is next, its own index says, on SQLite, whose plans do not depend on what is there.
func TestStrictOrderIsReadFromItsIndex(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	_, _, stamp := stampUpdate.Texts()
	for name, query := range map[string]string{
		"stamp": stamp,
		"next":  `SELECT (SELECT MIN(first.id) FROM callbacks AS first WHERE ` + isNext("first", "i") + `) FROM lanes AS i`,
	} {
		query = strings.ReplaceAll(strings.ReplaceAll(query, "i.lock_key", "i.key"), "$", "?") // numbered, for any number of arguments
		got := litePlan(t, db, query, 1, 2, 3, 4, 5, 6, 7)
		if !strings.Contains(got, "USING COVERING INDEX callbacks_strict (project=? AND lock_key=?") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
