package redisq

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Watermark returns how far ahead the shard takes in items.
func (ix *Index) Watermark(ctx context.Context, shard int) (schedule.Watermark, error) {
	return ix.watermark(ctx, "watermark", shard)
}

// MoveWatermark moves the shard's watermark, unless another caller moved it after the read that a.After
// names. If it was moved, the reply's Loader is a.Token.
func (ix *Index) MoveWatermark(ctx context.Context, shard int,
	a schedule.Advance) (schedule.Watermark, error) {
	if err := a.Validate(); err != nil {
		return schedule.Watermark{}, err
	}
	return ix.watermark(ctx, "advance", shard, a.Horizon.Milliseconds(), a.After, a.Token)
}

// Loaded records that the caller has given every item due at until or before to the shard, since it moved the
// watermark under the token. If another caller has moved the watermark since then, nothing changes.
func (ix *Index) Loaded(ctx context.Context, shard int, token string,
	until int64) (schedule.Watermark, error) {
	if err := schedule.ValidateToken(token); err != nil {
		return schedule.Watermark{}, fmt.Errorf("loaded: %w", err)
	}
	return ix.watermark(ctx, "loaded", shard, token, encodeTime(until))
}

// watermark runs one of the three scripts. They have the same reply.
func (ix *Index) watermark(ctx context.Context, operation string, shard int,
	args ...any) (w schedule.Watermark, err error) {
	err = ix.run(ctx, operation, shard, args, func(r *reply) {
		w = schedule.Watermark{Now: r.tick().Now, At: r.int(), Loaded: r.int(), Loader: r.text()}
	})
	if w.At >= schedule.MaxTime {
		w.At = schedule.Forever
	}
	if w.Loaded >= schedule.MaxTime {
		w.Loaded = schedule.Forever
	}
	return w, err
}
