// Package machine reads facts of the operating system: locks of files, free disk space, CPU time and memory.
// A function returns an error or false where a system does not report the fact.
package machine

import "errors"

// ErrLocked: another process holds the lock of a file.
var ErrLocked = errors.New("locked by another process")
