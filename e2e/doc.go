// Package e2e tests the built binary from outside: it starts dispatcher processes, real Redis and PostgreSQL servers
// and recording receivers on free ports, and judges by HTTP, by SQL as the API shows it, and by what arrived.
//
// It guarantees that what it calls lost, early, doubled or overlapping was so at the receiver. It imports none of the
// packages that it tests, does not run in short mode, and asserts times loosely: the figures that it prints are for
// reading, the limits are for machines that do other things besides.
package e2e
