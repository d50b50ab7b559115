//go:build !failpoints

package dispatch

// failpoint does nothing; a test build (tag failpoints) can end the process here.
func failpoint(string) {}

// failpointOf does nothing; a test build can end the process here for one callback alone.
func failpointOf(_, _ string) {}
