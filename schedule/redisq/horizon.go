package redisq

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// ShardOf returns the shard that has the lane.
func (ix *Index) ShardOf(lane int64) int { return shardOfLane(lane, len(ix.keys)) }

// Watermark says how far ahead the shard holds items.
func (ix *Index) Watermark(ctx context.Context, shard int) (schedule.Watermark, error) {
	return ix.watermark(ctx, "watermark", shard)
}

// MoveWatermark moves the shard's watermark, unless somebody else did so since the caller read it: the answer's Loader is the
// request's Token if it was moved.
func (ix *Index) MoveWatermark(ctx context.Context, shard int, a schedule.Advance) (schedule.Watermark, error) {
	if err := checkAdvance(a); err != nil {
		return schedule.Watermark{}, err
	}
	return ix.watermark(ctx, "advance", shard, a.Horizon.Milliseconds(), a.After, a.Token)
}

// Loaded notes that everything that is due at until or before was given to the shard since its watermark was moved under the
// token. If somebody else has moved it since, nothing changes.
func (ix *Index) Loaded(ctx context.Context, shard int, token string, until int64) (schedule.Watermark, error) {
	if err := checkToken(token); err != nil {
		return schedule.Watermark{}, fmt.Errorf("loaded: %w", err)
	}
	return ix.watermark(ctx, "loaded", shard, token, moment(until))
}

// watermark runs one of the three scripts, which answer alike.
func (ix *Index) watermark(ctx context.Context, operation string, shard int, args ...any) (schedule.Watermark, error) {
	if err := ix.checkShard(operation, shard); err != nil {
		return schedule.Watermark{}, err
	}
	r, err := ix.call(ctx, operation, shard, args...)
	if err != nil {
		return schedule.Watermark{}, err
	}
	w := schedule.Watermark{Now: r.tick().Now, At: r.int(), Loaded: r.int(), Loader: r.text()}
	if w.At >= maxTime {
		w.At = schedule.Forever
	}
	if w.Loaded >= maxTime {
		w.Loaded = schedule.Forever
	}
	return w, r.done()
}

func checkAdvance(a schedule.Advance) error {
	var err error
	switch {
	case a.Horizon != 0 && a.Horizon < time.Millisecond:
		err = invalid("horizon", a.Horizon)
	case !isWord(a.Token, maxToken):
		err = invalid("token", a.Token)
	case a.After != "":
		err = checkToken(a.After)
	}
	if err != nil {
		return fmt.Errorf("advance: %w", err)
	}
	return nil
}
