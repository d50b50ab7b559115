//go:build !failpoints

package process

// Failpoint does nothing. A test build (tag failpoints) can kill the process here.
func Failpoint(string) {}

// FailpointOf does nothing. A test build can kill the process here for one callback.
func FailpointOf(_, _ string) {}

// ReadTimes returns DefaultTimes. A test build can shorten them.
func ReadTimes() (Times, error) { return DefaultTimes(), nil }
