//go:build failpoints

package main

// failpointVariable is read by the engine of test builds only.
const failpointVariable = "DISPATCHER_FAILPOINT"
