package backup_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/backup"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// program is a program with the command backup.
var program = cmdtest.Program(func() any {
	var c struct {
		Backup  backup.Command     `cmd:""`
		Migrate app.MigrateCommand `cmd:""`
		Serve   app.ServeCommand   `cmd:""`
	}
	c.Backup.Flags, c.Migrate.Flags = config.StorageFlags(), config.StorageFlags()
	c.Serve.Flags = config.AllFlags()
	return &c
})

func TestMain(m *testing.M) { program.RunTests(m) }

func TestTranscripts(t *testing.T) { program.Transcripts(t) }

// sender submits callbacks to a server from four connections until it is stopped.
type sender struct {
	mu  sync.Mutex
	ids []string
	end func()
}

func startSender(t *testing.T, r *apptest.Running, receiver string) *sender {
	ctx, stop := context.WithCancel(t.Context())
	s := &sender{}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				id := r.Send(t, receiver)
				s.mu.Lock()
				s.ids = append(s.ids, id)
				s.mu.Unlock()
			}
		})
	}
	s.end = func() { stop(); all.Wait() }
	t.Cleanup(s.end)
	return s
}

// accepted returns the ids that the server has accepted so far.
func (s *sender) accepted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

// TestRestore backs up a server under load, destroys its data directory, and restores it with the steps of
// docs/guide/backup.md. Every callback that was accepted before the backup is there and is sent.
func TestRestore(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	receiver := cmdtest.ServeHandler(t, func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	dataDir := filepath.Join(t.TempDir(), "data")
	r := apptest.Start(t, apptest.Settings(t, "--data-dir="+dataDir))
	s := startSender(t, r, receiver)
	testserver.Until(t, "100 callbacks are accepted", func() bool { return len(s.accepted()) >= 100 })
	before := s.accepted()
	dest := filepath.Join(t.TempDir(), "backups")
	term := program.Terminal()
	term.Ends(t, console.ExitOK, "backup", dest, "--data-dir="+dataDir)
	s.end()
	path, _, _ := strings.Cut(term.Stdout.String(), ": ")
	r.End(t)
	if err := os.RemoveAll(dataDir); err != nil {
		t.Fatal(err)
	}

	restore(t, path, dataDir)
	restored := apptest.Start(t, apptest.Settings(t, "--data-dir="+dataDir))
	for _, id := range before {
		if state := restored.State(t, id); state != client.Scheduled && state != client.Attempting {
			t.Errorf("%s is %s", id, state)
		}
	}
	up.Store(true)
	last := before[len(before)-1]
	testserver.Until(t, "a restored callback is sent", func() bool {
		if restored.State(t, last) == client.Succeeded {
			return true
		}
		// While an attempt is in progress, the answer is 409.
		_, _ = restored.Client.Call(t.Context(), http.MethodPost, "/v1/callbacks/"+last+"/retry", nil, nil)
		return false
	})
	restored.End(t)

	// A key that was not made with the backup has its own error.
	key := filepath.Join(dataDir, config.MasterKeyFile)
	if err := os.WriteFile(key, []byte(cmdtest.SomeKey('w')), 0o600); err != nil {
		t.Fatal(err)
	}
	term = program.Terminal()
	term.Ends(t, console.ExitUsage, "serve", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0",
		"--data-dir="+dataDir)
	cmdtest.Contains(t, term.Stderr.String(), "master_key: the database has rows encrypted with master key ",
		"which is missing in the settings")
}

// restore puts the files of a backup into an empty data directory.
func restore(t *testing.T, path, dataDir string) {
	t.Helper()
	if err := os.Mkdir(dataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{config.DatabaseFileName, config.MasterKeyFile} {
		content, err := os.ReadFile(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(path, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		if err := os.WriteFile(filepath.Join(dataDir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBackupNeedsTheRightKey checks that nothing is copied or removed if the master key does not decrypt the
// database.
func TestBackupNeedsTheRightKey(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	dest, metric := t.TempDir(), filepath.Join(t.TempDir(), "dispatcher.prom")
	args := []string{"backup", dest, "--data-dir=" + r.Settings.DataDir, "--keep=1", "--textfile=" + metric}
	program.Terminal().Ends(t, console.ExitOK, args...)
	first := backups(t, dest)
	good, err := os.ReadFile(filepath.Join(dest, first[0], config.MasterKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(r.Settings.DataDir, config.MasterKeyFile)
	if err := os.WriteFile(key, []byte(cmdtest.SomeKey('w')), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(metric); err != nil {
		t.Fatal(err)
	}
	term := program.Terminal()
	term.Ends(t, console.ExitFailed, args...)
	cmdtest.Contains(t, term.Stderr.String(), "nothing was copied, because a restore needs another master",
		"which is missing in the settings")
	if left := backups(t, dest); !slices.Equal(left, first) {
		t.Errorf("backups: %q, want %q", left, first)
	}
	if _, err := os.Stat(metric); err == nil {
		t.Error("the textfile reports a success")
	}
	// Without the key, such a database can be copied, with a warning.
	lost := filepath.Join(t.TempDir(), "lost")
	term = program.Terminal("DISPATCHER_MASTER_KEY=" + cmdtest.SomeKey('w'))
	term.Ends(t, console.ExitFailed, "backup", lost, "--data-dir="+r.Settings.DataDir)
	cmdtest.Contains(t, term.Stderr.String(), "nothing was copied", "--no-key")
	term = program.Terminal("DISPATCHER_MASTER_KEY=" + cmdtest.SomeKey('w'))
	term.Ends(t, console.ExitOK, "backup", lost, "--data-dir="+r.Settings.DataDir, "--no-key")
	cmdtest.Contains(t, term.Stderr.String(), "warning: a restore needs another master key: ")
	if made := backups(t, lost); len(made) != 1 {
		t.Errorf("backups with --no-key: %q, want one", made)
	}
	// The setting replaces the file, and no file is copied.
	term = program.Terminal("DISPATCHER_MASTER_KEY=" + cmdtest.SomeKey('n') + "," +
		strings.TrimSpace(string(good)))
	term.Ends(t, console.ExitOK, args...)
	last := backups(t, dest)
	if len(last) != 1 || last[0] == first[0] {
		t.Errorf("backups after a success with --keep=1: %q", last)
	}
	if _, err := os.Stat(filepath.Join(dest, last[0], config.MasterKeyFile)); err == nil {
		t.Error("a file master.key, although the setting replaces it")
	}
	if _, err := os.Stat(metric); err != nil {
		t.Error(err)
	}
}

// TestBackupsOfTwoServers checks that a server refuses the directory of another one, whose backups --keep
// would remove. A restored database continues its own directory. A directory whose owner cannot be read is
// refused.
func TestBackupsOfTwoServers(t *testing.T) {
	t.Parallel()
	dest := t.TempDir()
	one, two := apptest.Start(t, apptest.Settings(t)), apptest.Start(t, apptest.Settings(t))
	args := func(dataDir string) []string {
		return []string{"backup", dest, "--data-dir=" + dataDir, "--keep=1"}
	}
	program.Terminal().Ends(t, console.ExitOK, args(one.Settings.DataDir)...)
	first := backups(t, dest)
	neverStarted := t.TempDir()
	program.Terminal().Ends(t, console.ExitOK, "migrate", "--data-dir="+neverStarted)
	if err := os.WriteFile(filepath.Join(neverStarted, config.MasterKeyFile), []byte(cmdtest.SomeKey('n')),
		0o600); err != nil {
		t.Fatal(err)
	}
	refuses := func(dataDir, want string) {
		t.Helper()
		before := backups(t, dest)
		term := program.Terminal()
		term.Ends(t, console.ExitFailed, args(dataDir)...)
		cmdtest.Contains(t, term.Stderr.String(), want)
		if left := backups(t, dest); !slices.Equal(left, before) {
			t.Errorf("backups: %q, want %q", left, before)
		}
	}
	refuses(two.Settings.DataDir, dest+" has the backups of another database")
	refuses(neverStarted, dest+" has the backups of another database")
	restored := filepath.Join(t.TempDir(), "data")
	restore(t, filepath.Join(dest, first[0]), restored)
	program.Terminal().Ends(t, console.ExitOK, args(restored)...)
	if left := backups(t, dest); len(left) != 1 || left[0] == first[0] {
		t.Errorf("backups after one of the restored database: %q", left)
	}

	newest := backups(t, dest)[0]
	if err := os.WriteFile(filepath.Join(dest, newest, config.DatabaseFileName), []byte("damaged"),
		0o600); err != nil {
		t.Fatal(err)
	}
	refuses(restored, "find the owner of the backups")
	if err := os.Rename(filepath.Join(dest, newest), filepath.Join(t.TempDir(), newest)); err != nil {
		t.Fatal(err)
	}
	program.Terminal().Ends(t, console.ExitOK, args(two.Settings.DataDir)...)
}

// TestBackupBeforeTheFirstStart checks that a server continues the directory of backups from before its first
// start. They name no owner.
func TestBackupBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	s := apptest.Settings(t)
	dest, flag := t.TempDir(), "--data-dir="+s.DataDir
	program.Terminal().Ends(t, console.ExitOK, "migrate", flag)
	program.Terminal().Ends(t, console.ExitOK, "backup", dest, flag, "--no-key", "--keep=1")
	apptest.Start(t, s)
	program.Terminal().Ends(t, console.ExitOK, "backup", dest, flag, "--keep=1")
	if left := backups(t, dest); len(left) != 1 {
		t.Errorf("backups: %q, want one", left)
	}
}

// backups returns the names of the complete backups, oldest first.
func backups(t *testing.T, dest string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dest, "dispatcher-*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i] = filepath.Base(list[i])
	}
	return list
}

// TestBackupLeavesOtherFilesAlone checks what --keep and the removal of incomplete backups may remove.
func TestBackupLeavesOtherFilesAlone(t *testing.T) {
	t.Parallel()
	dataDir, dest := t.TempDir(), t.TempDir()
	args := []string{"backup", dest, "--data-dir=" + dataDir, "--no-key", "--keep=1"}
	program.Terminal().Ends(t, console.ExitOK, "migrate", "--data-dir="+dataDir)
	program.Terminal().Ends(t, console.ExitOK, args...)
	err := os.Rename(filepath.Join(dest, backups(t, dest)[0]), filepath.Join(dest,
		"dispatcher-29990101T000000.000Z"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{ // name: is it left
		"dispatcher-20260101T000000.000Z":          false,
		"dispatcher-29990101T000000.000Z":          false, // the clock was ahead
		".partial-dispatcher-20260101T000000.001Z": false,
		"dispatcher-before-the-move":               true,
		".partial-other":                           true,
		"other":                                    true,
	}
	for name := range names {
		if err := os.MkdirAll(filepath.Join(dest, name, "files"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	program.Terminal().Ends(t, console.ExitOK, args...)
	for name, left := range names {
		if _, err := os.Stat(filepath.Join(dest, name)); (err == nil) != left {
			t.Errorf("%s: %v, want it left: %t", name, err, left)
		}
	}
	made, err := filepath.Glob(filepath.Join(dest, "dispatcher-20*Z", "dispatcher.db"))
	if err != nil || len(made) != 1 {
		t.Errorf("backups that are left: %q, %v, want the one just made", made, err)
	}
}
