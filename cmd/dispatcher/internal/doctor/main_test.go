package doctor

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
)

// program has the commands of this package.
var program = cmdtest.Program(func() any {
	var c struct {
		Doctor Command `cmd:""`
	}
	c.Doctor.Flags = config.AllFlags()
	return &c
})

func TestMain(m *testing.M) { program.RunTests(m) }
