package bench

import "syscall"

// childAttr makes a child die with the test process, even where that is killed before it can clean up.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
