package redisq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// layout numbers the way in which records and lanes are written. A shard has it behind its generation, so
// that to a build that writes otherwise all of it is lost, and put back from SQL, instead of misread. It
// grows with each change of what a key holds.
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
		return 0, fmt.Errorf("%w: in layout %d, of which this one knows those up to %d; upgrade this process",
			schedule.ErrNewer, written, layout)
	case written < layout:
		return 0, fmt.Errorf("%w: in layout %d instead of %d", schedule.ErrOlder, written, layout)
	}
	return generation, nil
}

// readGeneration returns the generation of the shard with those keys; zero: it has none.
func readGeneration(ctx context.Context, c redis.UniversalClient, keys shardKeys) (int64, error) {
	text, err := c.HGet(ctx, keys.named("META"), "generation").Result()
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

// Generation returns the generation that the shard's last Reset gave it, or zero; schedule.ErrOlder or
// schedule.ErrNewer if that was done by a build that writes otherwise.
func (ix *Index) Generation(ctx context.Context, shard int) (int64, error) {
	if err := schedule.ValidateShard("generation", shard, len(ix.keys)); err != nil {
		return 0, err
	}
	generation, err := readGeneration(ctx, ix.client, ix.keys[shard])
	if err != nil {
		return 0, fmt.Errorf("generation of shard %d: %w", shard, err)
	}
	return generation, nil
}

// Reset empties the shard, locks and lane settings included, gives it the generation and closes it for
// claims. It is the one operation, besides Generation, that works whatever generation the shard has. The
// memory is freed in the background.
func (ix *Index) Reset(ctx context.Context, shard int, generation int64) error {
	if generation < 0 {
		return fmt.Errorf("reset: generation %d: %w", generation, schedule.ErrInvalid)
	}
	return ix.send(ctx, "reset", shard, []any{encodeGeneration(generation)}, func(r *reply) { r.int() })
}

// Open lets claims in.
func (ix *Index) Open(ctx context.Context, shard int) error {
	return ix.ask(ctx, "open", shard, nil, func(r *reply) { r.tick() })
}

// Adopt puts running attempts in as leased and their locks as held. What is leased under another token is
// left as it is. A lock that another attempt holds passes on to the adopted one when that one lets it go.
func (ix *Index) Adopt(ctx context.Context, leases []schedule.Lease) error {
	_, err := each(ctx, ix, operation[schedule.Lease, struct{}]{
		script: "adopt", check: schedule.Lease.ValidateRunning, ref: schedule.Lease.Ref,
		encode: func(l schedule.Lease) []any {
			return []any{l.ID, l.Token, moment(l.Until), encodeRecord(l.Item)}
		},
	}, leases)
	if err != nil {
		return err
	}
	unlocked := func(l schedule.Lease) bool { return l.Lock == "" }
	_, err = ix.acquire(ctx, "adopt", slices.DeleteFunc(slices.Clone(leases), unlocked))
	return err
}

// Remove removes everything that an index at the URL keeps under the prefix, in so many shards; zero means as
// many as Open makes of zero. It is for an index that was only lent, and whose processes have all ended: a
// process that still uses it finds it lost, and rebuilds it. What other prefixes keep is not touched. The
// memory is freed in the background.
func Remove(ctx context.Context, rawURL, prefix string, shards int) (err error) {
	a, err := parseURL(rawURL)
	if err != nil {
		return err
	}
	if prefix == "" {
		return errors.New("remove index: it has no prefix")
	}
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	shards, err = a.shards(shards)
	if err != nil {
		return err
	}
	client := a.dial()
	defer func() { err = errors.Join(err, client.Close()) }()
	for shard := range shards {
		// One call a shard: its keys are in one slot.
		keys := make([]string, 0, len(keyNames))
		for name := range keyNames {
			keys = append(keys, keysOf(prefix, shard).named(name))
		}
		if err := client.Unlink(ctx, keys...).Err(); err != nil {
			return fmt.Errorf("remove shard %d of the index: %w", shard, err)
		}
	}
	return nil
}
