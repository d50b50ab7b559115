//go:build !failpoints

package dispatch

// failpoint does nothing; a test build (tag failpoints) can end the process here.
func failpoint(string) {}
