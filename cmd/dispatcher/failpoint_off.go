//go:build !failpoints

package main

// failpointVariables are none: a normal build has no failpoints, and refuses these variables like any unknown one.
func failpointVariables() []string { return nil }
