package redisq

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Advance puts the clock that this index sees forward, or back.
func (ix *Index) Advance(d time.Duration) { ix.offset.Add(d.Milliseconds()) }

// Freeze has the index's clock stand at that time, in Unix milliseconds, until Advance moves it.
func (ix *Index) Freeze(at int64) {
	for _, s := range ix.scripts {
		s.setBody(strings.ReplaceAll(s.body, "call('TIME')", "{0, 0}"))
	}
	ix.offset.Store(at)
}

// Frozen is the clock of an index whose clock stands.
func (ix *Index) Frozen() int64 { return ix.offset.Load() }

// Gone looks which of a shard's keys are gone.
func (ix *Index) Gone(ctx context.Context, shard int) ([]string, error) { return ix.gone(ctx, shard) }

// WatchEvery is how often Run watches; it is set before Run.
func (ix *Index) WatchEvery(d time.Duration) { ix.watchEvery = d }

// Client is the index's connection, for looking at keys and for damaging them.
func (ix *Index) Client() redis.UniversalClient { return ix.client }

// Key returns the name of a shard's key as the operators see it.
func (ix *Index) Key(shard int, name string) string { return ix.keys[shard].named(name) }

// HasKey says whether a shard has a key of that name.
func (ix *Index) HasKey(name string) bool { return keyNames[name] != "" }
