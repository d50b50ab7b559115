//go:build !failpoints

package dispatch

// failpoint does nothing; a test build (tag failpoints) can end the process here.
func failpoint(string) {}

// failpointOf does nothing; a test build can end the process here for one callback alone.
func failpointOf(_, _ string) {}

// failpointTimes are the usual times; a test build can set them shorter.
func failpointTimes() (recoveryTimes, error) { return usualTimes(), nil }
