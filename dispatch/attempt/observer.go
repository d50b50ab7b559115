package attempt

import "github.com/seed-ff5a32d8/dispatcher/store"

// An Observer counts what attempts came to. Times are by the index's clock.
type Observer interface {
	// Settled has results and what SQL answered, each in its place.
	Settled(results []store.Result, committed []store.Committed, now int64)
	// Crashed has a callback whose last attempt ended without a result.
	Crashed(w *store.Stamped, now int64)
}
