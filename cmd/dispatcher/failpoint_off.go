//go:build !failpoints

package main

// failpointVariable is empty: a normal build has no failpoints, and refuses the variable like any unknown one.
const failpointVariable = ""
