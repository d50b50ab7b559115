package loadtest

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
)

// program has the commands of this package.
var program = cmdtest.Program(func() any {
	return &struct {
		Bench       BenchCommand       `cmd:""`
		BenchServer BenchServerCommand `cmd:""`
	}{}
})

func TestMain(m *testing.M) { program.RunTests(m) }

func TestTranscripts(t *testing.T) { program.Transcripts(t) }
