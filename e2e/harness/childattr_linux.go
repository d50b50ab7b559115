package harness

import "syscall"

// ChildAttr makes a child die with the test process, even where that is killed before it can clean up.
func ChildAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
