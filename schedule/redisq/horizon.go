package redisq

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Watermark says how far ahead the shard holds items.
func (ix *Index) Watermark(ctx context.Context, shard int) (schedule.Watermark, error) {
	return ix.watermark(ctx, "watermark", shard)
}

// MoveWatermark moves the shard's watermark, unless somebody else did so since the caller read it: the
// answer's Loader is the request's Token if it was moved.
func (ix *Index) MoveWatermark(ctx context.Context, shard int,
	a schedule.Advance) (schedule.Watermark, error) {
	if err := a.Validate(); err != nil {
		return schedule.Watermark{}, err
	}
	return ix.watermark(ctx, "advance", shard, a.Horizon.Milliseconds(), a.After, a.Token)
}

// Loaded notes that everything that is due at until or before was given to the shard since its watermark was
// moved under the token. If somebody else has moved it since, nothing changes.
func (ix *Index) Loaded(ctx context.Context, shard int, token string,
	until int64) (schedule.Watermark, error) {
	if err := schedule.ValidateToken(token); err != nil {
		return schedule.Watermark{}, fmt.Errorf("loaded: %w", err)
	}
	return ix.watermark(ctx, "loaded", shard, token, moment(until))
}

// watermark runs one of the three scripts, which answer alike.
func (ix *Index) watermark(ctx context.Context, operation string, shard int,
	args ...any) (w schedule.Watermark, err error) {
	err = ix.ask(ctx, operation, shard, args, func(r *reply) {
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
