package accept

import "github.com/seed-ff5a32d8/dispatcher/store"

// An Observer counts what is accepted. Times are by the index's clock.
type Observer interface {
	// Accepted has what SQL answered; replays and refused ones are among it.
	Accepted(list []store.Accepted, now int64)
	// Spawned has a callback that the store has made by itself.
	Spawned(r *store.OpenRow, now int64)
	// Ended says that callbacks became terminal without a result.
	Ended(n int, state store.State, reason store.Reason)
}
