package testserver

import (
	"os/exec"
	"syscall"
	"unsafe"
)

// endWithParent has the kernel kill the child when the test's process ends without its clean-up, by a panic
// or a time-out.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// limitFiles bounds the size to which a process may let its files grow; less than zero: no bound.
func limitFiles(pid int, bytes int64) error {
	const noLimit = ^uint64(0)
	limit := syscall.Rlimit{Cur: noLimit, Max: noLimit}
	if bytes >= 0 {
		limit.Cur = uint64(bytes)
	}
	const fileSize = syscall.RLIMIT_FSIZE
	_, _, errno := syscall.RawSyscall6(
		syscall.SYS_PRLIMIT64, uintptr(pid), fileSize, uintptr(unsafe.Pointer(&limit)), 0, 0, 0,
	)
	if errno != 0 {
		return errno
	}
	return nil
}
