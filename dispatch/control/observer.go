package control

import "github.com/seed-ff5a32d8/dispatcher/store"

// An Observer counts what people end.
type Observer interface {
	// Ended says that callbacks became terminal without a result.
	Ended(n int, state store.State, reason store.Reason)
}
