package sqlstore_test

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// TestIdleTransactionsEnd: the server must end whatever we leave open, in every session that changes rows. What that is for, a
// process that is stopped inside of a transaction, package e2e shows.
func TestIdleTransactionsEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a PostgreSQL server")
	}
	t.Parallel()
	db := sqlstore.OpenPostgres(t)
	limits, err := sqlstore.IdleLimits(t.Context(), db)
	if err != nil || limits != [2]string{"10s", "10s"} {
		t.Errorf("limits %q, %v; want 10s in both pools", limits, err)
	}
}
