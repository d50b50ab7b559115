package schedule

import (
	"math"
	"time"
)

// MinHorizon is how far ahead an index holds items whatever its watermark says: what is due that soon is
// never left out. It is more than any wait that only the index knows of (75 s: an item that is parked until
// the claim of a 60 s attempt has ended), so that nothing but SQL's own due times can lie beyond a watermark.
const MinHorizon = 2 * time.Minute

// Forever is the watermark of an index that holds whatever it is given.
const Forever int64 = math.MaxInt64

// A Watermark is how far ahead a shard holds items. What an operation would put into the delay set for a
// later time than At, and than [MinHorizon] from now, is left out, and if the shard held it, it goes: the
// caller answers for having it in SQL. What the shard holds already stays, wherever the watermark is moved.
type Watermark struct {
	// Now is the index's clock in Unix milliseconds.
	Now int64
	// At is the watermark in Unix milliseconds; [Forever]: the shard holds whatever it is given, as it does
	// after every Reset.
	At int64
	// Loaded says up to which due time everything was given to the shard. It is never later than At.
	Loaded int64
	// Loader is the token of whoever moved the watermark last; empty: nobody has since the shard was reset.
	Loader string
}

// An Advance moves a shard's watermark to Horizon after the index's clock, forward or back. Where that is
// earlier than Loaded, Loaded goes back with it: what is written from then on may be left out.
type Advance struct {
	// Horizon is at least 1 ms; zero moves the watermark to Forever.
	Horizon time.Duration
	// After is the Loader that the shard must still have, or nothing is done: two processes never move it by
	// what they read at the same time, and a call that was on its way for long undoes nothing.
	After string
	// Token becomes the Loader: as a claim's, and one that was never used. An Advance that is repeated with
	// the same token changes nothing.
	Token string
}
