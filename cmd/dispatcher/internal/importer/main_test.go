package importer

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
)

// program has the commands of this package.
var program = cmdtest.Program(func() any {
	return &struct {
		Import Command `cmd:""`
	}{}
})

func TestMain(m *testing.M) { program.RunTests(m) }

func TestTranscripts(t *testing.T) { program.Transcripts(t, "DISPATCHER_KEY=k") }
