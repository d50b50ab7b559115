package app

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
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
		held, err := acquireIndexLock(t.Context(), first, discard)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := acquireIndexLock(t.Context(), second, discard); !errors.Is(err, errIndexTaken) {
			t.Errorf("%s: a second owner got %v", name, err)
		}
		withRedis := *second
		withRedis.RedisURL = "redis://h"
		if _, err := acquireIndexLock(t.Context(), &withRedis, discard); err != nil {
			t.Errorf("%s: with Redis there is nothing to lock, but: %v", name, err)
		}
		held.release()
		again, err := acquireIndexLock(t.Context(), second, discard)
		if err != nil {
			t.Fatalf("%s: after the first owner's end: %v", name, err)
		}
		again.release()
	}
}

func TestKeysAreMadeOnceAndKeptPrivate(t *testing.T) {
	t.Parallel()
	discard := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	person := new(cmdtest.Program).Terminal()
	person.ErrTerminal = true
	first := &config.Settings{DataDir: dir}
	if err := completeKeys(&person.Console, first, discard); err != nil {
		t.Fatal(err)
	}
	if len(first.MasterKey) != 1 || len(first.AdminKey) < 30 {
		t.Fatalf("made %d master keys and an admin key of %d characters", len(first.MasterKey), len(first.AdminKey))
	}
	if shown := person.Stderr.String(); !strings.Contains(shown, first.AdminKey) || strings.Contains(shown, first.MasterKey[0]) {
		t.Errorf("showed %q", shown)
	}
	for _, name := range []string{config.AdminKeyFile, config.MasterKeyFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	later := new(cmdtest.Program).Terminal()
	later.ErrTerminal = true
	second := &config.Settings{DataDir: dir}
	if err := completeKeys(&later.Console, second, discard); err != nil {
		t.Fatal(err)
	}
	if second.AdminKey != first.AdminKey || second.MasterKey[0] != first.MasterKey[0] {
		t.Error("the second start has other keys")
	}
	if later.Stderr.Len() > 0 {
		t.Errorf("the second start showed %q", later.Stderr.String())
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("the directory has %v (%v)", left, err)
	}
}

func TestGivenKeysAreNotStored(t *testing.T) {
	t.Parallel()
	s := &config.Settings{DataDir: t.TempDir(), AdminKey: "given", MasterKey: []string{cmdtest.SomeKey('a')}}
	if err := completeKeys(&new(cmdtest.Program).Terminal().Console, s, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	cmdtest.IsEmpty(t, s.DataDir)
}

func TestAPipeSeesNoKey(t *testing.T) {
	t.Parallel()
	term := new(cmdtest.Program).Terminal()
	s := &config.Settings{DataDir: t.TempDir(), LogFormat: "json", LogLevel: "info"}
	if err := completeKeys(&term.Console, s, NewLogger(&term.Console, s)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(term.Stderr.String()+term.Stdout.String(), s.AdminKey) {
		t.Error("the admin key is in the log")
	}
}

func TestADamagedMasterKeyIsRefused(t *testing.T) {
	t.Parallel()
	s := &config.Settings{DataDir: filepath.Dir(cmdtest.WriteFile(t, config.MasterKeyFile, "c2hvcnQ=\n"))}
	if err := completeKeys(&new(cmdtest.Program).Terminal().Console, s, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a short master key was taken")
	}
}

func TestAShortAdminKeyInItsFileIsRefused(t *testing.T) {
	t.Parallel()
	s := &config.Settings{DataDir: filepath.Dir(cmdtest.WriteFile(t, config.AdminKeyFile, "hidden-short-key\n"))}
	err := completeKeys(&new(cmdtest.Program).Terminal().Console, s, slog.New(slog.DiscardHandler))
	var usage *console.UsageError
	if !errors.As(err, &usage) || len(usage.Lines) != 1 || !strings.Contains(err.Error(), "16 of at least 24") ||
		strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
}
