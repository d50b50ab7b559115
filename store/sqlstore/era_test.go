package sqlstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// TestReadOnlySessionsAreLeft opens all sessions while the database lets nobody write, and takes that back without ending any of
// them: writes must succeed again by themselves. Reads do all the while.
func TestReadOnlySessionsAreLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a PostgreSQL server")
	}
	t.Parallel()
	server := testserver.SharedPostgres(t)
	address := sqlstore.PostgresURL(t)
	database := sqlstore.NameOf(t, address)
	db := sqlstore.OpenURL(t, sqlstore.Options{URL: address, MaxConns: 7})
	alter := func(change string) {
		t.Helper()
		if err := server.Exec(t.Context(), "ALTER DATABASE "+database+" "+change); err != nil {
			t.Fatal(err)
		}
	}
	alter("SET default_transaction_read_only = on")
	if err := server.Exec(t.Context(), sqlstore.EndSessions(database)); err != nil {
		t.Fatal(err)
	}
	write := func() error {
		_, err := db.Accept(t.Context(), benchDrafts(1, testNow))
		return errors.Join(err, db.Ping(t.Context()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 10 {
		if err := write(); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("a write while nobody may: %v", err)
		}
		if _, err := db.List(t.Context(), store.DefaultProject, store.Filter{Limit: 1, Now: testNow}); err != nil {
			t.Fatalf("a read: %v", err)
		}
	}
	alter("RESET default_transaction_read_only")
	for err := write(); err != nil; err = write() {
		if ctx.Err() != nil {
			t.Fatalf("writes do not succeed again: %v", err)
		}
		time.Sleep(20 * time.Millisecond) // a poll with a deadline
	}
}
