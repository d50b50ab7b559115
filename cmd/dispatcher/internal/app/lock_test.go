package app

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestOneOwnerPerEmbeddedIndex(t *testing.T) {
	t.Parallel()
	discard := slog.New(slog.DiscardHandler)
	shared := filepath.Join(t.TempDir(), "shared.db")
	first := &config.Settings{DataDir: t.TempDir(), DatabaseURL: "sqlite:" + shared}
	for name, second := range map[string]*config.Settings{
		"same data directory": {DataDir: first.DataDir},
		"same database":       {DataDir: t.TempDir(), DatabaseURL: "sqlite:" + shared},
	} {
		lock, err := acquireIndexLock(t.Context(), first, discard)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := acquireIndexLock(t.Context(), second, discard); !errors.Is(err, errIndexTaken) {
			t.Errorf("%s: a second owner got %v", name, err)
		}
		withRedis := *second
		withRedis.RedisURL = "redis://h"
		if _, err := acquireIndexLock(t.Context(), &withRedis, discard); err != nil {
			t.Errorf("%s: with Redis, the lock failed: %v", name, err)
		}
		lock.release()
		again, err := acquireIndexLock(t.Context(), second, discard)
		if err != nil {
			t.Fatalf("%s: after the first owner released the lock: %v", name, err)
		}
		again.release()
	}
}

// complete completes the keys of settings and returns the output. terminal: the output is a terminal.
func complete(s *config.Settings, terminal bool) (string, error) {
	term := new(cmdtest.Program).Terminal()
	term.ErrTerminal = terminal
	err := completeKeys(&term.Console, s, NewLogger(&term.Console,
		&config.Settings{LogFormat: "json", LogLevel: "info"}))
	return term.Stdout.String() + term.Stderr.String(), err
}

// TestKeysAreMadeOnceAndKeptPrivate checks that only a terminal shows the generated admin key, and only once.
func TestKeysAreMadeOnceAndKeptPrivate(t *testing.T) {
	t.Parallel()
	for _, terminal := range []bool{true, false} {
		dir := t.TempDir()
		first, second := &config.Settings{DataDir: dir}, &config.Settings{DataDir: dir}
		printed, err := complete(first, terminal)
		if err != nil || len(first.MasterKey) != 1 || len(first.AdminKey) < 30 {
			t.Fatalf("got %d master keys and an admin key of %d characters: %v",
				len(first.MasterKey), len(first.AdminKey), err)
		}
		if strings.Contains(printed, first.AdminKey) != terminal ||
			strings.Contains(printed, first.MasterKey[0]) {
			t.Errorf("printed %q", printed)
		}
		for _, name := range []string{config.AdminKeyFile, config.MasterKeyFile} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", name, info.Mode(), err)
			}
		}
		printed, err = complete(second, terminal)
		if err != nil || printed != "" || second.AdminKey != first.AdminKey ||
			second.MasterKey[0] != first.MasterKey[0] {
			t.Errorf("the second start has other keys, or printed %q: %v", printed, err)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 2 {
			t.Errorf("the directory has %v (%v)", left, err)
		}
	}
}

func TestGivenKeysAreNotStored(t *testing.T) {
	t.Parallel()
	s := &config.Settings{DataDir: t.TempDir(), AdminKey: "given", MasterKey: []string{cmdtest.SomeKey('a')}}
	if _, err := complete(s, false); err != nil {
		t.Fatal(err)
	}
	cmdtest.IsEmpty(t, s.DataDir)
}

func TestShortMasterKeyFileIsRefused(t *testing.T) {
	t.Parallel()
	s := &config.Settings{DataDir: filepath.Dir(cmdtest.WriteFile(t, config.MasterKeyFile, "c2hvcnQ=\n"))}
	if _, err := complete(s, false); err == nil {
		t.Error("a short master key was accepted")
	}
}

func TestShortAdminKeyFileIsRefused(t *testing.T) {
	t.Parallel()
	s := &config.Settings{DataDir: filepath.Dir(
		cmdtest.WriteFile(t, config.AdminKeyFile, "hidden-short-key\n"))}
	_, err := complete(s, false)
	usage, ok := errors.AsType[*console.UsageError](err)
	if !ok || len(usage.Lines) != 1 || !strings.Contains(err.Error(), "16 characters") ||
		strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
}

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
	// The lock ends with its connection. acquire gets it again.
	conn, err := pgx.Connect(t.Context(), s.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(),
		`SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database d ON d.oid = database
		WHERE locktype = 'advisory' AND d.datname = current_database()`)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if first.postgres.alive(t.Context()) {
		t.Error("a broken connection counts as alive")
	}
	var second *indexLock
	testserver.Until(t, "the lock is free after the connection broke", func() bool {
		second, err = acquireIndexLock(t.Context(), s, discard)
		return err == nil
	})
	if err := first.postgres.acquire(t.Context()); !errors.Is(err, errIndexTaken) {
		t.Errorf("the first owner got the lock of the second: %v", err)
	}
	second.release()
	if err := first.postgres.acquire(t.Context()); err != nil || !first.postgres.alive(t.Context()) {
		t.Errorf("the free lock cannot be acquired: %v", err)
	}
	first.release()
}
