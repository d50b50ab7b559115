//go:build !linux

package main

import "syscall"

// endWithParent has no such means here.
func endWithParent() *syscall.SysProcAttr { return nil }
