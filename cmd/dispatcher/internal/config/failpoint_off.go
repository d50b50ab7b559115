//go:build !failpoints

package config

import "github.com/seed-ff5a32d8/dispatcher/store"

// failpointVariables are none: a normal build has no failpoints, and refuses these variables like any unknown
// one.
func failpointVariables() []string { return nil }

// leastRetention is the least retention_metadata. The answer to a repeated idempotency key is its callback,
// so a callback is kept as long as a key is.
const leastRetention = store.IdempotencyAge
