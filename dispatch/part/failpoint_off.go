//go:build !failpoints

package part

// Failpoint does nothing; a test build (tag failpoints) can end the process here.
func Failpoint(string) {}

// FailpointOf does nothing; a test build can end the process here for one callback alone.
func FailpointOf(_, _ string) {}

// ReadTimes are the usual times; a test build can set them shorter.
func ReadTimes() (Times, error) { return UsualTimes(), nil }
