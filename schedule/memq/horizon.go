package memq

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A mark is the watermark. An embedded index is given none: it is here because an index that several
// processes share has one, and this one is its model.
type mark struct {
	at, loaded int64 // schedule.Forever: no limit
	loader     string
}

// beyond says whether a due time is too far ahead to be held.
func (ix *Index) beyond(due int64) bool {
	return due > ix.mark.at && due > ix.clock+schedule.MinHorizon.Milliseconds()
}

// ShardOf returns 0.
func (*Index) ShardOf(int64) int { return 0 }

// Watermark says how far ahead the index holds items.
func (ix *Index) Watermark(ctx context.Context, shard int) (schedule.Watermark, error) {
	return ix.marked(ctx, "watermark", shard, func() {})
}

// MoveWatermark moves the watermark, unless somebody else did so since the caller read it: the answer's
// Loader is the request's Token if it was moved.
func (ix *Index) MoveWatermark(ctx context.Context, shard int,
	a schedule.Advance) (schedule.Watermark, error) {
	if err := a.Validate(); err != nil {
		return schedule.Watermark{}, err
	}
	return ix.marked(ctx, "advance", shard, func() {
		if ix.mark.loader != a.After || ix.mark.loader == a.Token {
			return
		}
		at := schedule.Forever
		if a.Horizon > 0 {
			at = ix.clock + a.Horizon.Milliseconds()
		}
		ix.mark = mark{at: at, loaded: min(ix.mark.loaded, at), loader: a.Token}
	})
}

// Loaded notes that everything that is due at until or before was given to the index since its watermark was
// moved under the token. If somebody else has moved it since, nothing changes.
func (ix *Index) Loaded(ctx context.Context, shard int, token string,
	until int64) (schedule.Watermark, error) {
	if err := schedule.ValidateToken(token); err != nil {
		return schedule.Watermark{}, fmt.Errorf("loaded: %w", err)
	}
	return ix.marked(ctx, "loaded", shard, func() {
		if ix.mark.loader == token {
			ix.mark.loaded = max(ix.mark.loaded, min(until, ix.mark.at))
		}
	})
}

// marked does something with the watermark and says what it is then.
func (ix *Index) marked(ctx context.Context, operation string, shard int,
	do func()) (w schedule.Watermark, err error) {
	err = ix.do(ctx, operation, shard, func() error {
		do()
		w = schedule.Watermark{Now: ix.clock, At: ix.mark.at, Loaded: ix.mark.loaded, Loader: ix.mark.loader}
		return nil
	})
	return w, err
}
