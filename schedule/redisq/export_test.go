package redisq

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Advance puts the clock that this index sees forward.
func (ix *Index) Advance(d time.Duration) { ix.offset.Add(d.Milliseconds()) }

// Offset is by how many milliseconds it was put forward.
func (ix *Index) Offset() int64 { return ix.offset.Load() }

// Client is the index's connection, for looking at keys and for damaging them.
func (ix *Index) Client() redis.UniversalClient { return ix.client }

// Key returns the name of a shard's key as the operators see it.
func (ix *Index) Key(shard int, name string) string { return ix.keys[shard].named([]string{name})[0] }
