// Package machine asks the operating system: locks of files, space on disks, CPU time and memory of a
// process. Where a system does not tell, it says so.
package machine

import "errors"

// ErrLocked says that another process holds the lock of a file.
var ErrLocked = errors.New("locked by another process")
