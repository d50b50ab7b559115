//go:build !linux

package e2e

import "syscall"

// childAttr has no way to tie a child to its parent here.
func childAttr() *syscall.SysProcAttr { return nil }
