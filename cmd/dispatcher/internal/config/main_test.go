package config

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
)

// program has the commands of this package.
var program = cmdtest.Program(func() any {
	var c struct {
		Config ShowCommand `cmd:""`
	}
	c.Config.Flags = AllFlags()
	return &c
})

func TestMain(m *testing.M) { program.RunTests(m) }
