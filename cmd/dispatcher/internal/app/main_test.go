package app_test

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
)

// program has the commands of this package.
var program = cmdtest.Program(func() any {
	var c struct {
		Serve   app.ServeCommand   `cmd:""`
		Migrate app.MigrateCommand `cmd:""`
	}
	c.Serve.Flags, c.Migrate.Flags = config.AllFlags(), config.StorageFlags()
	return &c
})

func TestMain(m *testing.M) { program.RunTests(m) }
