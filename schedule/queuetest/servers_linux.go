package queuetest

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill the child when the test's process ends without its clean-up, by a panic or a
// time-out.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
