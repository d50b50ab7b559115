package app_test

import (
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// program is a program with the commands of this package.
var program = cmdtest.Program(func() any {
	var c struct {
		Serve   app.ServeCommand   `cmd:""`
		Migrate app.MigrateCommand `cmd:""`
		Relay   app.RelayCommand   `cmd:""`
	}
	c.Serve.Flags, c.Migrate.Flags = config.AllFlags(), config.StorageFlags()
	c.Relay.Settings = config.RelayFlags()
	return &c
})

func TestMain(m *testing.M) { program.RunTests(m) }

func TestTranscripts(t *testing.T) { program.Transcripts(t) }

// TestMigrationTimes checks the time of a migration, which a transcript cannot contain.
func TestMigrationTimes(t *testing.T) {
	t.Parallel()
	dir, term := t.TempDir(), program.Terminal()
	program.Terminal().Ends(t, console.ExitOK, "migrate", "--data-dir", dir)
	term.Ends(t, console.ExitOK, "migrate", "--status", "--data-dir", dir)
	cmdtest.Contains(t, term.Stdout.String(), "0001", time.Now().Local().Format(time.DateOnly))
}
