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

// layout is the number of the format of records and lanes. A shard stores it after its generation. A build
// with another layout finds the shard lost, and the index is rebuilt from SQL. So no build misreads it. Each
// change of what a key holds needs the next number.
const layout = 4

// encodeGeneration returns a generation as a shard stores it.
func encodeGeneration(generation int64) string {
	return fmt.Sprintf("%d.%d", generation, layout)
}

// decodeGeneration reads a stored generation. A generation without a layout has layout 1. For another layout
// than this build's it returns schedule.ErrOlder or schedule.ErrNewer.
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
		return 0, fmt.Errorf("%w: it has layout %d, and this build knows layouts up to %d: upgrade this "+
			"process", schedule.ErrNewer, written, layout)
	case written < layout:
		return 0, fmt.Errorf("%w: it has layout %d, and this build has layout %d", schedule.ErrOlder,
			written, layout)
	}
	return generation, nil
}

// readGeneration returns the generation of the shard with these keys; zero: it has none.
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

// SetGeneration sets the generation that the shards must have. Operations on a shard with another return
// schedule.ErrLost.
func (ix *Index) SetGeneration(generation int64) { ix.generation.Store(generation) }

// Generation returns the generation that the shard's last Reset gave, or zero. It returns schedule.ErrOlder
// or schedule.ErrNewer if a build with another layout wrote the shard.
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

// Reset empties the shard, with its locks and lane settings. It gives it the generation and closes it for
// claims. Reset and Generation work whatever generation the shard has. Redis frees the memory in the
// background.
func (ix *Index) Reset(ctx context.Context, shard int, generation int64) error {
	if generation < 0 {
		return fmt.Errorf("reset: generation %d: %w", generation, schedule.ErrInvalid)
	}
	return ix.runWith(ctx, "reset", shard, []any{encodeGeneration(generation)}, func(r *reply) { r.int() })
}

// Open allows claims after a rebuild.
func (ix *Index) Open(ctx context.Context, shard int) error {
	return ix.run(ctx, "open", shard, nil, func(r *reply) { r.tick() })
}

// Adopt puts running attempts in as leased, and takes their locks. An item that is leased under another token
// stays as it is. If another attempt holds the lock, the adopted one becomes its next holder (docs/adr/0014).
// The locks follow in a second call. If that fails, the rebuild fails, and starts again with a Reset.
func (ix *Index) Adopt(ctx context.Context, leases []schedule.Lease) error {
	_, err := each(ctx, ix, operation[schedule.Lease, struct{}]{
		script: "adopt", check: schedule.Lease.ValidateRunning, ref: schedule.Lease.Ref,
		encode: func(l schedule.Lease) []any {
			return []any{l.ID, l.Token, encodeTime(l.Until), encodeRecord(l.Item)}
		},
	}, leases)
	if err != nil {
		return err
	}
	unlocked := func(l schedule.Lease) bool { return l.Lock == "" }
	_, err = ix.acquire(ctx, "adopt", slices.DeleteFunc(slices.Clone(leases), unlocked))
	return err
}

// Remove deletes the index under the prefix at the URL, with its number of shards; zero means the default of
// Open. It is for a temporary index whose processes have all ended. A process that still uses the index finds
// it lost and rebuilds it. Remove leaves other prefixes alone. Redis frees the memory in the background.
func Remove(ctx context.Context, rawURL, prefix string, shards int) (err error) {
	a, err := parseURL(rawURL)
	if err != nil {
		return err
	}
	if prefix == "" {
		return errors.New("remove index: the prefix is empty")
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
		// One call for each shard, because the keys of a shard are in one slot.
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
