//go:build !(linux || darwin)

package machine

import "errors"

// DiskSpace is not known on this system.
func DiskSpace(string) (free, total uint64, err error) { return 0, 0, errors.ErrUnsupported }

// OpenFiles is not known on this system.
func OpenFiles() (uint64, error) { return 0, errors.ErrUnsupported }
