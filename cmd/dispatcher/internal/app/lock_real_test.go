package app

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestOneOwnerPerEmbeddedIndexOnPostgres(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL")
	}
	s := &config.Settings{DatabaseURL: testserver.SharedPostgres(t).Database(t)}
	discard := slog.New(slog.DiscardHandler)
	first, err := acquireIndexLock(t.Context(), s, discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := acquireIndexLock(t.Context(), s, discard); !errors.Is(err, errIndexTaken) {
		t.Errorf("a second owner got %v", err)
	}
	// The lock goes with its connection, and is taken again.
	conn, err := pgx.Connect(t.Context(), s.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database d ON d.oid = database
		WHERE locktype = 'advisory' AND d.datname = current_database()`)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if first.postgres.alive(t.Context()) {
		t.Error("a cut connection counts as alive")
	}
	var second *indexLock
	testserver.Until(t, "the lock is free after the cut", func() bool {
		second, err = acquireIndexLock(t.Context(), s, discard)
		return err == nil
	})
	if err := first.postgres.acquire(t.Context()); !errors.Is(err, errIndexTaken) {
		t.Errorf("the first owner took it back from the second: %v", err)
	}
	second.release()
	if err := first.postgres.acquire(t.Context()); err != nil || !first.postgres.alive(t.Context()) {
		t.Errorf("it cannot be taken again: %v", err)
	}
	first.release()
}
