package redisq

import (
	"context"
	"errors"
	"fmt"
)

// Remove removes everything that an index at the URL keeps under the prefix, in so many shards; zero means as many as Open
// makes of zero. It is for an index that was only lent, and whose processes have all ended: a process that still uses it
// finds it lost, and rebuilds it. What other prefixes keep is not touched. The memory is freed in the background.
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
	if shards == 0 {
		if shards = 1; a.cluster {
			shards = clusterShards
		}
	}
	if shards < 1 || shards > maxShards {
		return fmt.Errorf("%d shards: 1 to %d are possible", shards, maxShards)
	}
	client := a.dial()
	defer func() { err = errors.Join(err, client.Close()) }()
	for shard := range shards {
		// One call a shard: its keys are in one slot.
		keys := make([]string, 0, len(keyNames))
		for _, ending := range keyNames {
			keys = append(keys, string(keysOf(prefix, shard))+ending)
		}
		if err := client.Unlink(ctx, keys...).Err(); err != nil {
			return fmt.Errorf("remove shard %d of the index: %w", shard, err)
		}
	}
	return nil
}
