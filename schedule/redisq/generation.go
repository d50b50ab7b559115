package redisq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// layout numbers the way in which records and lanes are written. A shard has it behind its generation, so that to a build that
// writes otherwise all of it is lost, and put back from SQL, instead of misread. It grows with each change of what a key holds.
const layout = 4

// encodeGeneration writes a generation as a shard has it.
func encodeGeneration(generation int64) string {
	return fmt.Sprintf("%d.%d", generation, layout)
}

// decodeGeneration reads what a shard has; of another layout that is schedule.ErrOlder or schedule.ErrNewer.
func decodeGeneration(text string) (int64, error) {
	number, of, found := strings.Cut(text, ".")
	if !found {
		of = "1"
	}
	written, err := strconv.Atoi(of)
	if err != nil || written < 1 {
		return 0, fmt.Errorf("%q is not a generation", text)
	}
	generation, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil || generation < 0:
		return 0, fmt.Errorf("%q is not a generation", text)
	case written > layout:
		return 0, fmt.Errorf("%w: in layout %d, of which this one knows those up to %d; upgrade this process", schedule.ErrNewer, written, layout)
	case written < layout:
		return 0, fmt.Errorf("%w: in layout %d instead of %d", schedule.ErrOlder, written, layout)
	}
	return generation, nil
}

// readGeneration returns the generation of the shard with those keys; zero: it has none.
func readGeneration(ctx context.Context, c redis.UniversalClient, keys shardKeys) (int64, error) {
	text, err := c.HGet(ctx, string(keys)+keyNames["META"], "generation").Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return decodeGeneration(text)
}

// SetGeneration says which generation is the right one. Shards that have another answer schedule.ErrLost.
func (ix *Index) SetGeneration(generation int64) { ix.generation.Store(generation) }

// Generation returns the generation that the shard's last Reset gave it, or zero; schedule.ErrOlder or schedule.ErrNewer if that was
// done by a build that writes otherwise.
func (ix *Index) Generation(ctx context.Context, shard int) (int64, error) {
	if err := ix.checkShard("generation", shard); err != nil {
		return 0, err
	}
	generation, err := readGeneration(ctx, ix.client, ix.keys[shard])
	if err != nil {
		return 0, fmt.Errorf("generation of shard %d: %w", shard, err)
	}
	return generation, nil
}

// Reset empties the shard, locks and lane settings included, gives it the generation and closes it for claims. It is
// the one operation, besides Generation, that works whatever generation the shard has. The memory is freed in the
// background.
func (ix *Index) Reset(ctx context.Context, shard int, generation int64) error {
	if err := ix.checkShard("reset", shard); err != nil {
		return err
	}
	if generation < 0 {
		return fmt.Errorf("reset: generation %d: %w", generation, schedule.ErrInvalid)
	}
	r, err := ix.send(ctx, ix.scripts["reset"], shard, []any{encodeGeneration(generation)})
	if err != nil {
		return err
	}
	r.int()
	return r.done()
}
