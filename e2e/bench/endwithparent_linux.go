package main

import "syscall"

// endWithParent has the kernel kill a child when this process ends without ending it.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
