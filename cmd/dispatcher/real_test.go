package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// The tests of this file need real servers, which they start themselves.

func TestOneOwnerPerEmbeddedIndexOnPostgres(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL")
	}
	s := &Settings{DatabaseURL: testserver.StartPostgres(t)}
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
		"--database-url=" + testserver.StartPostgres(t), "--redis-url=" + testserver.StartRedis(t),
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

// After SQL was restored from a backup, a held process leaves the index on Redis as it found it and names what only the index
// knows; a rebuild makes it SQL's again.
func TestHeldOnRedisNamesWhatSQLForgot(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	postgres := testserver.NewPostgres(t)
	common := []string{"--redis-url=" + testserver.StartRedis(t), "--admin-key=admin", "--master-key=" + someKey('m')}
	on := func(url string, args ...string) *Settings {
		return testSettings(t, slices.Concat(common, args, []string{"--database-url=" + url})...)
	}
	before := startServer(t, on(postgres.URL(), "--hold"))
	var forgotten []string
	for range 130 {
		forgotten = append(forgotten, before.send(t, "http://127.0.0.1:1/"))
	}
	until(t, "the index knows them", func() bool { return stats(t, before).Index.items() == 130 })
	// A rebuild gives the index a generation that the older database below has never heard of.
	if _, err := before.cl.call(t.Context(), http.MethodPost, "/v1/index/rebuild", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := before.end(t); err != nil {
		t.Fatal(err)
	}

	held := startServer(t, on(postgres.Database(t), "--hold"))
	id := held.send(t, "http://127.0.0.1:1/")
	until(t, "the index has the one that was accepted since", func() bool { return stats(t, held).Index.items() == 131 })
	flags := []string{"--server", held.cl.base, "--key", "admin"}
	term := newTerminal()
	if code := term.invoke(append([]string{"verify", "--unknown"}, flags...)...); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	slices.Sort(forgotten)
	if got := term.stdout.String(); got != strings.Join(forgotten, "\n")+"\n" {
		t.Errorf("unknown:\n%s", got)
	}
	if !strings.Contains(term.stderr.String(), "the index has generation") {
		t.Errorf("said %s", term.stderr.String())
	}
	if code := newTerminal().invoke(append([]string{"rebuild"}, flags...)...); code != exitOK {
		t.Errorf("rebuild: exit code %d", code)
	}
	if code := newTerminal().invoke(append([]string{"verify"}, flags...)...); code != exitOK || held.state(t, id) != "scheduled" {
		t.Errorf("verify after the rebuild: exit code %d, state %s", code, held.state(t, id))
	}
	if err := held.end(t); err != nil {
		t.Fatal(err)
	}
}

// indexSizes are the parts of GET /v1/stats that tests look at.
type indexSizes struct{ Delayed, Ready, Leased int }

func (s indexSizes) items() int { return s.Delayed + s.Ready + s.Leased }

func stats(t *testing.T, r *running) (out struct{ Index indexSizes }) {
	t.Helper()
	if _, err := r.cl.call(t.Context(), http.MethodGet, "/v1/stats", nil, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
