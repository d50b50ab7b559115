// Package smoke holds about a dozen tests of the built binary, one for each promise that a user would miss
// first. They run in make test. What each fault costs is the matter of package faults.
package smoke
