package memq

import "context"

// There are two clocks. What is due, and until when a lane is paused, is told in wall time. How much is left of a lease, a
// lock or a hold is counted on the steady clock, which stands still where the wall clock jumps: what is left stays left.
// Callers hear and say wall time. docs/adr/0006 says why; the index on Redis does the same.
const (
	// stepBack is how far the clock may go back, in milliseconds, before that is a jump which is followed. Within it the
	// index's clock stands still.
	stepBack = 5_000
	// gap is how long the index may not have been used, in milliseconds, before the clock counts as put forward meanwhile.
	// Whoever claims does so every second.
	gap = 10_000
)

// Clock returns the clock that decides what is due, in Unix milliseconds, whatever state the index is in.
func (ix *Index) Clock(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return ix.readNow().UnixMilli(), nil
}

// tick reads the clock.
func (ix *Index) tick() {
	last := ix.clock
	now := ix.readNow().UnixMilli()
	if now-last > gap || now < last-stepBack {
		if last > 0 {
			ix.skew += last - now
		}
		ix.armed = 0 // what was announced was never meant for this clock
	} else {
		now = max(now, last)
	}
	ix.clock = now
}

// steady returns the steady clock.
func (ix *Index) steady() int64 { return ix.clock + ix.skew }

// steadily and wall turn a time of one clock into one of the other.
func (ix *Index) steadily(at int64) int64 {
	return min(max(min(max(at, 0), maxTime)+ix.skew, 0), maxTime)
}

func (ix *Index) wall(at int64) int64 { return min(max(at-ix.skew, 0), maxTime) }
