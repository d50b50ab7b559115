package schedule

import (
	"math"
	"time"
)

// MinHorizon is the shortest horizon that takes effect: an index takes in an item that is due this soon,
// whatever its watermark says. It must be longer than every wait that SQL does not know, so that every due
// time beyond a watermark is in SQL. The longest such wait is 75 s: an item is parked until the claim of a
// 60 s attempt has ended.
const MinHorizon = 2 * time.Minute

// Forever is the watermark of an index that takes in every item.
const Forever int64 = math.MaxInt64

// A Watermark limits how far ahead a shard holds items. An item that is due after At, and later than
// [MinHorizon] from now, is not put into the delay set. If a reschedule or a move gives such a due time to an
// item, the shard drops it. The caller must have the item in SQL, and load it when the watermark has
// advanced. Moving the watermark drops nothing that the shard already holds.
type Watermark struct {
	// Now is the index's clock in Unix milliseconds.
	Now int64
	// At is the watermark in Unix milliseconds. It is [Forever] after every Reset.
	At int64
	// Loaded is the due time up to which the caller has given every item to the shard. Loaded <= At.
	Loaded int64
	// Loader is the token of the last [Advance]; empty: the watermark was not moved since the last Reset.
	Loader string
}

// An Advance sets a shard's watermark to Horizon after the index's clock, forward or back. If the new
// watermark is before Loaded, Loaded becomes the watermark: later writes may leave items out.
type Advance struct {
	// Horizon is at least 1 ms; zero sets the watermark to Forever.
	Horizon time.Duration
	// After must equal the shard's Loader, or the Advance does nothing. So two processes cannot both move the
	// watermark after the same read, and a delayed call undoes nothing.
	After string
	// Token becomes the Loader. It has the form of a claim's token and was never used before. A repeated
	// Advance with the same token does nothing.
	Token string
}
