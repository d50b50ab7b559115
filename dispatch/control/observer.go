package control

import "github.com/seed-ff5a32d8/dispatcher/store"

// An Observer counts callbacks that a request ends.
type Observer interface {
	// Ended reports n callbacks that became terminal by a request.
	Ended(n int, state store.State, reason store.Reason)
}
