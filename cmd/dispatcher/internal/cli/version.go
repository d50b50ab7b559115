package cli

import (
	"fmt"
	"runtime"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// VersionCommand shows what this program is.
type VersionCommand struct{}

// Run prints one line.
func (*VersionCommand) Run(c *console.Console) error {
	_, err := fmt.Fprintf(c.Out, "dispatcher %s %s %s/%s\n", c.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
