//go:build !(linux || darwin)

package main

import "errors"

// diskSpace is not known on this system.
func diskSpace(string) (free, total uint64, err error) { return 0, 0, errors.ErrUnsupported }

// openFiles is not known on this system.
func openFiles() (uint64, error) { return 0, errors.ErrUnsupported }
