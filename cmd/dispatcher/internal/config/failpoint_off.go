//go:build !failpoints

package config

import "github.com/seed-ff5a32d8/dispatcher/store"

// failpointVariables is empty: a normal build has no failpoints and refuses these variables as unknown.
func failpointVariables() []string { return nil }

// leastRetention is the minimum of retention_metadata. A repeated idempotency key is answered with its
// callback, so a callback is kept as long as its key.
const leastRetention = store.IdempotencyAge
