package main

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// The tests of this file need real servers.

func TestOneOwnerPerEmbeddedIndexOnPostgres(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL")
	}
	s := &Settings{DatabaseURL: testserver.SharedPostgres(t).Database(t)}
	discard := slog.New(slog.DiscardHandler)
	first, err := acquireIndexLock(t.Context(), s, discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := acquireIndexLock(t.Context(), s, discard); !errors.Is(err, errIndexTaken) {
		t.Errorf("a second owner got %v", err)
	}
	// The lock goes with its connection, and is taken again.
	err = onPostgres(t.Context(), s.DatabaseURL, func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database d ON d.oid = database
			WHERE locktype = 'advisory' AND d.datname = current_database()`)
		return err
	})
	if err != nil {
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

// One process accepts, another one sends.
func TestRolesOnPostgresAndRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	receiver := answering(t, http.StatusOK, "")
	args := slices.Concat(bothKeys(), ownIndex(t), []string{"--database-url=" + migrated(t)})
	face := startServer(t, testSettings(t, append(args, "--roles=api")...))
	worker := startServer(t, testSettings(t, append(args, "--roles=worker")...))
	if worker.web.Addr() != nil {
		t.Error("a process without the role api listens for it")
	}
	id := face.send(t, receiver)
	testserver.Until(t, "it is sent by the other process", func() bool {
		return face.state(t, id) == "succeeded"
	})
	var drift driftReport
	if face.call(t, http.MethodPost, "/v1/index/verify", nil, &drift); !drift.Clean {
		t.Errorf("verify says %+v", drift)
	}
}

// After SQL was restored from a backup, a held process leaves the index on Redis as it found it and names what only the
// index knows; a rebuild makes it SQL's again.
func TestHeldOnRedisNamesWhatSQLForgot(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	common := slices.Concat(bothKeys(), ownIndex(t), []string{"--hold"})
	onCopy := func() *running {
		return startServer(t, testSettings(t, append(common, "--database-url="+migrated(t))...))
	}
	before := onCopy()
	var accepted struct {
		Results []struct{ Callback shownCallback }
	}
	one := map[string]any{"url": "http://127.0.0.1:1/", "payload": 1}
	batch := slices.Repeat([]any{one}, 130) // more than one page of an answer names
	before.call(t, http.MethodPost, "/v1/callbacks/batch", map[string]any{"callbacks": batch}, &accepted)
	var forgotten []string
	for _, r := range accepted.Results {
		forgotten = append(forgotten, r.Callback.ID)
	}
	testserver.Until(t, "the index knows them", func() bool { return before.counters(t).items() == 130 })
	// A rebuild gives the index a generation that the older database below has never heard of.
	before.call(t, http.MethodPost, "/v1/index/rebuild", nil, nil)
	before.end(t)

	held := onCopy()
	id := held.send(t, "http://127.0.0.1:1/")
	testserver.Until(t, "the index has the one that was accepted since", func() bool {
		return held.counters(t).items() == 131
	})
	do := func(code int, args ...string) *terminal {
		term := newTerminal()
		if got := term.invoke(append(args, "--server", held.cl.base, "--key", held.s.AdminKey)...); got != code {
			t.Errorf("%v: exit code %d, want %d: %s", args, got, code, term.stderr.String())
		}
		return term
	}
	term := do(exitFailed, "verify", "--unknown")
	slices.Sort(forgotten)
	if got := term.stdout.String(); got != strings.Join(forgotten, "\n")+"\n" {
		t.Errorf("unknown:\n%s", got)
	}
	says(t, term.stderr.String(), "the index has generation")
	do(exitOK, "rebuild")
	do(exitOK, "verify")
	if got := held.state(t, id); got != "scheduled" {
		t.Errorf("after the rebuild it is %s", got)
	}
}
