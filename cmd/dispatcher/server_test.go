package main

import (
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// TestCase40ServeRefusesAWrongMasterKey checks that serve ends with exit code 2 if its master keys cannot
// decrypt the stored secrets, even if there are only those of the first start.
func TestCase40ServeRefusesAWrongMasterKey(t *testing.T) {
	t.Parallel()
	s := apptest.Settings(t)
	r := apptest.Start(t, s)
	r.End(t)
	serve := func(keys string) (int, []string) {
		term := program.Terminal()
		code := term.Invoke("serve", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--data-dir",
			s.DataDir, "--log-level=error", "--master-key="+keys)
		return code, term.Lines()
	}
	code, lines := serve(cmdtest.SomeKey('w'))
	if code != console.ExitUsage || len(lines) != 2 ||
		!strings.Contains(lines[0], "which is missing in the settings") ||
		strings.Contains(lines[0], cmdtest.SomeKey('w')) {
		t.Errorf("exit code %d, printed %q", code, lines)
	}
	generated, err := config.ReadSecretFile(filepath.Join(s.DataDir, config.MasterKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	both := *s
	both.MasterKey = []string{cmdtest.SomeKey('w'), generated}
	r = apptest.Start(t, &both)
	program.Terminal().Ends(t, console.ExitOK, append([]string{"secrets", "reencrypt"}, r.Flags()...)...)
	r.End(t)
	both.MasterKey = both.MasterKey[:1]
	apptest.Start(t, &both)
}

// TestHealthcheck asks a real server before and after its end. It uses no key.
func TestHealthcheck(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	address := r.Web.OpsAddr().String()
	for _, probe := range []string{"--ready=false", "--ready"} {
		term := program.Terminal("DISPATCHER_OPS_LISTEN=" + address)
		term.Ends(t, console.ExitOK, "healthcheck", probe)
		cmdtest.Contains(t, term.Stdout.String(), address, ": ok\n")
	}
	r.End(t)
	term := program.Terminal("DISPATCHER_OPS_LISTEN=" + address)
	term.Ends(t, console.ExitFailed, "healthcheck")
	cmdtest.Contains(t, term.Stderr.String(), "nothing listens there")
}

func TestOtherSchemaIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program.Terminal().Ends(t, console.ExitOK, "migrate", "--data-dir", dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, config.DatabaseFileName))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(),
		`UPDATE schema_migrations SET hash = 'of another text' WHERE version_id = 1`)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	const line = "the database has the schema of another version of dispatcher; " +
		"run that version, or start this one on an empty database"
	serve := []string{"serve", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--log-level=error"}
	for _, args := range [][]string{
		serve, append(slices.Clone(serve), "--migrate=false"), {"migrate"}, {"migrate", "--status"},
	} {
		term := program.Terminal()
		code := term.Invoke(append(args, "--data-dir", dir)...)
		if code != console.ExitFailed || len(term.Lines()) != 1 || !strings.Contains(term.Lines()[0], line) {
			t.Errorf("%v: exit code %d, printed %q", args, code, term.Lines())
		}
	}
	term := program.Terminal()
	term.Ends(t, console.ExitFailed, "doctor", "--json", "--data-dir", dir)
	cmdtest.Contains(t, term.Stdout.String(), `"check": "migrations"`, "another version", "empty database")
}
