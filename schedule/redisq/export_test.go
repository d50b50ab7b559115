package redisq

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Advance moves the clock of this index forward, or back.
func (ix *Index) Advance(d time.Duration) { ix.offset.Add(d.Milliseconds()) }

// Freeze stops the index's clock at a time in Unix milliseconds. Advance still moves it.
func (ix *Index) Freeze(at int64) {
	for _, s := range ix.scripts {
		s.setBody(strings.ReplaceAll(s.body, "call('TIME')", "{0, 0}"))
	}
	ix.offset.Store(at)
}

// Frozen returns the clock of an index after Freeze.
func (ix *Index) Frozen() int64 { return ix.offset.Load() }

// LostKeys returns the missing keys of a shard.
func (ix *Index) LostKeys(ctx context.Context, shard int) ([]string, error) {
	return ix.lostKeys(ctx, shard)
}

// WatchEvery sets how often Run checks the servers and shards. It is called before Run.
func (ix *Index) WatchEvery(d time.Duration) { ix.watchEvery = d }

// Client returns the index's client, so that tests can read and damage keys.
func (ix *Index) Client() redis.UniversalClient { return ix.client }

// Key returns the name of a shard's key.
func (ix *Index) Key(shard int, name string) string { return ix.keys[shard].named(name) }

// HasKey reports whether a shard has a key of that name.
func (ix *Index) HasKey(name string) bool { return keyNames[name] != "" }
