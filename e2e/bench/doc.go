// Package bench compares the built dispatcher with the HTTP client that it stands on and with two queues that others
// use for the same purpose: all of them send the same bodies to the same receiver in one run, in turns.
// Beside that it measures the product by itself as it grows: many millions of callbacks, a Cluster, bytes on the wire.
//
// It is a module of its own, so that what it is compared with never enters the product's go.mod, and it knows the
// product as a black box: the built binary and HTTP. It guarantees that every callback of a measurement arrived exactly
// once, and that none of a delayed one arrived early: else the run fails. It does not fail for being slow, unless it is
// asked to (-check). All its code is in test files, because the servers that it starts are test helpers;
// go test -short runs the tests of the benchmark itself and compares nothing.
package bench
