package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/store/storetest"
)

// The tests of this file need real servers, which they start themselves.

func TestOneOwnerPerEmbeddedIndexOnPostgres(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL")
	}
	s := &Settings{DatabaseURL: storetest.StartPostgres(t)}
	discard := slog.New(slog.DiscardHandler)
	first, err := acquireIndexLock(t.Context(), s, discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := acquireIndexLock(t.Context(), s, discard); !errors.Is(err, errIndexTaken) {
		t.Errorf("a second owner got %v", err)
	}
	// The lock goes with its connection, and is taken again.
	admin, err := pgx.Connect(t.Context(), s.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'`); err != nil {
		t.Fatal(err)
	}
	if err := admin.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first.postgres.alive(t.Context()) {
		t.Error("a cut connection counts as alive")
	}
	second, err := acquireIndexLock(t.Context(), s, discard)
	if err != nil {
		t.Fatalf("after the cut: %v", err)
	}
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
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	args := []string{
		"--database-url=" + storetest.StartPostgres(t), "--redis-url=" + queuetest.StartRedis(t),
		"--admin-key=admin", "--master-key=" + someKey('m'),
	}
	face := startServer(t, testSettings(t, append(args, "--roles=api")...))
	worker := startServer(t, testSettings(t, append(args, "--roles=worker")...))
	if worker.web.Addr() != nil {
		t.Error("a process without the role api listens for it")
	}
	id := face.send(t, receiver.URL)
	until(t, "it is sent by the other process", func() bool { return face.state(t, id) == "succeeded" })
	var drift driftReport
	if _, err := face.cl.call(context.WithoutCancel(t.Context()), http.MethodPost, "/v1/index/verify", nil, &drift); err != nil || !drift.Clean {
		t.Errorf("verify says %+v (%v)", drift, err)
	}
	for _, r := range []*running{face, worker} {
		if err := r.end(t); err != nil {
			t.Error(err)
		}
	}
}
