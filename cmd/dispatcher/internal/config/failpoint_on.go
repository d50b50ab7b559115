//go:build failpoints

package config

import "time"

// failpointVariables are the variables that only the engine of test builds reads.
func failpointVariables() []string {
	return []string{"DISPATCHER_FAILPOINT", "DISPATCHER_FAILPOINT_TIMES"}
}

// leastRetention is short in test builds, so that a test sees rows being removed.
const leastRetention = time.Second
