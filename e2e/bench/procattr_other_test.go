//go:build !linux

package bench

import "syscall"

// childAttr has no way to tie a child to its parent here.
func childAttr() *syscall.SysProcAttr { return nil }
