// Package smoke has about a dozen tests of the built binary, one for each promise that matters most to users.
// They run in make test. Package faults tests the cost of each fault.
package smoke
