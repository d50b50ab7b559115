//go:build !linux

package testserver

import (
	"errors"
	"os/exec"
)

// endWithParent does nothing where the kernel cannot watch the parent: there the test's clean-up alone ends
// the child.
func endWithParent(*exec.Cmd) {}

// limitFiles needs prlimit.
func limitFiles(int, int64) error {
	return errors.New("the files of another process can be limited on Linux alone")
}
