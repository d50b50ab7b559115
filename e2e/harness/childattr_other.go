//go:build !linux

package harness

import "syscall"

// ChildAttr has no way to tie a child to its parent here.
func ChildAttr() *syscall.SysProcAttr { return nil }
