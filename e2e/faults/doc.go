// Package faults tests the built binary under faults and under load: the matrix of faults, races against the
// claim, crowds of endpoints, polls, redrives, receivers that misbehave. It runs in make test-full.
//
// Times are asserted loosely: the figures that it prints are for reading, the limits are for machines that do
// other work besides.
package faults
