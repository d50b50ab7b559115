package memq

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A mark is the watermark. An embedded index never gets one. It exists here because the index that several
// processes share has one, and this index is its model.
type mark struct {
	at, loaded int64 // schedule.Forever: no limit
	loader     string
}

// beyond reports whether a due time is too far ahead for the delay set.
func (ix *Index) beyond(due int64) bool {
	return due > ix.mark.at && due > ix.clock+schedule.MinHorizon.Milliseconds()
}

// ShardOf returns 0.
func (*Index) ShardOf(int64) int { return 0 }

// Watermark returns how far ahead the index takes in items.
func (ix *Index) Watermark(ctx context.Context, shard int) (schedule.Watermark, error) {
	return ix.marked(ctx, "watermark", shard, func() {})
}

// MoveWatermark moves the watermark, unless another caller moved it after the read that a.After names. If it
// was moved, the reply's Loader is a.Token.
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

// Loaded records that the caller has given every item due at until or before to the index, since it moved the
// watermark under the token. If another caller has moved the watermark since then, nothing changes.
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

// marked executes one operation on the watermark and returns the result.
func (ix *Index) marked(ctx context.Context, operation string, shard int,
	do func()) (w schedule.Watermark, err error) {
	err = ix.do(ctx, operation, shard, func() error {
		do()
		w = schedule.Watermark{Now: ix.clock, At: ix.mark.at, Loaded: ix.mark.loaded, Loader: ix.mark.loader}
		return nil
	})
	return w, err
}
