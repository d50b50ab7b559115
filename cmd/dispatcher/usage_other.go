//go:build !(linux || darwin)

package main

import (
	"errors"
	"time"
)

// processUsage is not known on this system.
func processUsage() (cpu time.Duration, peak uint64, err error) { return 0, 0, errors.ErrUnsupported }

// machineTicks is not known on this system.
func machineTicks() (idle, all uint64, ok bool) { return 0, 0, false }

// inMemory is not known on this system.
func inMemory(string) bool { return false }
