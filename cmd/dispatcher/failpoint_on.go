//go:build failpoints

package main

// failpointVariables are read by the engine of test builds only.
func failpointVariables() []string {
	return []string{"DISPATCHER_FAILPOINT", "DISPATCHER_FAILPOINT_TIMES"}
}
