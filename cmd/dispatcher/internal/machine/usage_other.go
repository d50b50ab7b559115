//go:build !(linux || darwin)

package machine

import (
	"errors"
	"time"
)

// ProcessUsage is not supported on this system.
func ProcessUsage() (cpu time.Duration, peak uint64, err error) { return 0, 0, errors.ErrUnsupported }

// MachineTicks is not supported on this system.
func MachineTicks() (idle, all uint64, ok bool) { return 0, 0, false }

// InMemory is not supported on this system.
func InMemory(string) bool { return false }

// DiskSpace is not supported on this system.
func DiskSpace(string) (free, total uint64, err error) { return 0, 0, errors.ErrUnsupported }

// OpenFiles is not supported on this system.
func OpenFiles() (uint64, error) { return 0, errors.ErrUnsupported }
