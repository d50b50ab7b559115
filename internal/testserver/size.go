package testserver

import "os"

// The tests come in three sizes. The environment variable TEST_SIZE picks one; the Makefile sets it:
//
//	(unset)  make test: ten minutes
//	full     make test-full: an hour; a test does all that it can in two minutes
//	long     make test-long: the rest
const sizeVariable = "TEST_SIZE"

// Full reports whether tests run in their full or their long size.
func Full() bool { return os.Getenv(sizeVariable) == "full" || Long() }

// Long reports whether tests run in their long size.
func Long() bool { return os.Getenv(sizeVariable) == "long" }
