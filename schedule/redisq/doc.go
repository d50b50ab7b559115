// Package redisq is the index on Redis: a single server, one behind Sentinel, or a Cluster.
//
// It keeps every promise of package schedule. Each operation is one Lua script a shard, which runs whole or not at
// all; all keys of a shard carry one hash tag and are declared, so that a shard is in one slot. The server's clock
// decides what is due; docs/adr/0006 says what happens where it jumps. Nothing expires by itself, no command blocks, and
// several processes may share one index.
//
// What is found there by looking: "<prefix>:{<prefix>:<shard>}:delay" is the delay set, ids scored by their due time
// in Unix milliseconds. keys.go names the other structures; lua/include/records.lua and lua/include/lanes.lua say how
// they are written, and lua/include/flow.lua what a lane has where its rate or its breaker bounds it.
//
// A claim is never repeated by the client on its own, because a repetition would lease items that nobody knows of: its
// error is returned, and the caller repeats it with the same token. Every other operation is idempotent and is
// repeated. Where a call that spans shards fails on some of them, the answers of the others are returned beside the
// error, and those that are missing have their zero value.
//
// While Run runs, the servers are asked every 15 s whether they may evict keys, and each shard whether a key of it is gone; see
// Warnings. What cannot be mended from the rest makes the shard lost, so that it is rebuilt.
//
// It is tested on Redis, and on Valkey where the system has it: the conformance suite, the comparison with memq, and the tests
// of damage, full memory and eviction run on redis-server, and again on valkey-server if that is in PATH.
//
// It does not keep anything that SQL does not have, does not create generations, and does not decide when to rebuild.
// It does not delete old shards after their number was changed: that is a rebuild into another prefix.
package redisq
