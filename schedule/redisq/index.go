// Package redisq is the index on Redis: a single server, one behind Sentinel, or a Cluster.
//
// It keeps every promise of package schedule. Each operation is one Lua script a shard, which runs whole or
// not at all; all keys of a shard carry one hash tag and are declared, so that a shard is in one slot. The
// server's clock decides what is due; docs/adr/0006 says what happens where it jumps. Nothing expires by
// itself, no command blocks, and several processes may share one index.
//
// What is found there by looking: "<prefix>:{<prefix>:<shard>}:delay" is the delay set, ids scored by their
// due time in Unix milliseconds. keys.go names the other structures; lua/include/records.lua and
// lua/include/lanes.lua say how they are written, and lua/include/flow.lua what a lane has where its rate or
// its breaker bounds it.
//
// A claim is never repeated by the client on its own, because a repetition would lease items that nobody
// knows of: its error is returned, and the caller repeats it with the same token. Every other operation is
// idempotent and is repeated. Where a call that spans shards fails on some of them, the answers of the others
// are returned beside the error, and those that are missing have their zero value.
//
// While Run runs, the servers are asked every 15 s whether they may evict keys, and each shard whether a key
// of it is gone; see Warnings. What cannot be mended from the rest makes the shard lost, so that it is
// rebuilt.
//
// It is tested on Redis, and on Valkey where the system has it: the conformance suite, the comparison with
// memq, and the tests of damage, full memory and eviction run on redis-server, and again on valkey-server if
// that is in PATH.
//
// It does not keep anything that SQL does not have, does not create generations, and does not decide when to
// rebuild. It does not delete old shards after their number was changed: that is a rebuild into another
// prefix.
package redisq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

const (
	// defaultPrefix is where keys and the channel begin when Options name no prefix.
	defaultPrefix = "dispatcher"
	// clusterShards is the default number of shards on a Cluster: few enough to poll, and enough to spread
	// over masters.
	clusterShards = 16
	// checkTime bounds what Open waits for the servers.
	checkTime = 5 * time.Second
	// maxShards bounds what one process polls.
	maxShards = 1024
)

// Options of an index.
type Options struct {
	// URL says where Redis is: redis://, rediss://, redis+sentinel://host1,host2/MASTER/db,
	// redis+cluster://host1,host2; the last two with rediss as well; each with user:password@ before the
	// hosts. Sentinels that want a password of their own take it from the parameters sentinel_username and
	// sentinel_password. It is required.
	URL string
	// Prefix is where the names of all keys begin; empty means "dispatcher".
	Prefix string
	// Shards is into how many parts the index is split; zero means 1, or 16 on a Cluster. All processes of
	// one index must use the same number.
	Shards int
	// Registerer takes the metrics, all of them dispatcher_index_…; nil: none.
	Registerer prometheus.Registerer
	// Logger takes warnings about the server and the subscription; nil: they are dropped.
	Logger *slog.Logger
}

// An Index is the client of one index. Its methods may be called from any goroutine.
type Index struct {
	client  redis.UniversalClient
	scripts map[string]*script
	keys    []shardKeys
	channel string
	hints   chan int
	log     *slog.Logger
	metrics metrics

	cluster    bool
	unchecked  atomic.Bool
	watch      watch
	watchEvery time.Duration
	generation atomic.Int64
	// offset is added to the server's clock, in milliseconds. It is zero outside of tests.
	offset atomic.Int64
}

// CheckURL says what is wrong with an address, without connecting; its error never repeats the address.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

// Open connects, and refuses servers that are older than 6.2 or would evict keys. A server that cannot be
// reached is not refused: it is checked when it can be, and a warning is logged. The index expects generation
// 0 until SetGeneration says another, which means that its operations return schedule.ErrLost.
func Open(ctx context.Context, o Options) (*Index, error) {
	a, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if err := checkPrefix(o.Prefix); err != nil {
		return nil, err
	}
	o.Shards, err = a.shards(o.Shards)
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ix := &Index{
		channel: o.Prefix + ":hints",
		keys:    make([]shardKeys, o.Shards),
		hints:   make(chan int, 4*o.Shards),
		log:     o.Logger,
		watch:   watch{known: make(map[string]*Server)}, watchEvery: watchEvery,
	}
	for shard := range ix.keys {
		ix.keys[shard] = keysOf(o.Prefix, shard)
	}
	ix.scripts, err = loadScripts()
	if err != nil {
		return nil, err
	}
	ix.metrics, err = newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	ix.client, ix.cluster = a.dial(), a.cluster
	switch err := ix.survey(ctx, true); {
	case err == nil:
	case unreachable(err):
		// An index that is away is no reason not to start: accepting needs none, and sending waits for it in
		// any case.
		ix.unchecked.Store(true)
		ix.log.WarnContext(ctx, "the index cannot be reached; it is used as soon as it can"+a.mistaken(err),
			"error", err)
	default:
		return nil, errors.Join(refusalOf(err), ix.client.Close())
	}
	return ix, nil
}

// checkLate checks servers that could not be reached at the start. It is too late to refuse them: what is
// wrong is logged.
func (ix *Index) checkLate(ctx context.Context) {
	if !ix.unchecked.Load() {
		return
	}
	if err := ix.survey(ctx, false); err == nil || !unreachable(err) {
		ix.unchecked.Store(false)
	}
}

// passing are the beginnings of answers by which a server says that it cannot at present: it starts, is a
// replica until a failover is over, cannot write, or has too much to do.
var passing = []string{
	"LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "UNKILLABLE",
	"MISCONF", "OOM", "max number of clients",
}

// unreachable tells a server that did not answer, or not yet, from one whose answer was no.
func unreachable(err error) bool {
	var answer redis.Error
	if errors.As(err, &answer) {
		return slices.ContainsFunc(passing, func(prefix string) bool {
			return redis.HasErrorPrefix(answer, prefix)
		})
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "connection refused")
}

// Close closes the connections. No call may be under way, and Run must have returned.
func (ix *Index) Close() error {
	if err := ix.client.Close(); err != nil {
		return fmt.Errorf("close index: %w", err)
	}
	return nil
}

// Ping asks every master for an answer.
func (ix *Index) Ping(ctx context.Context) error {
	err := eachMaster(ctx, ix.client, func(ctx context.Context, c *redis.Client) error {
		return c.Ping(ctx).Err()
	})
	if err != nil {
		return fmt.Errorf("ping index: %w", err)
	}
	return nil
}

// Shards returns the number of shards.
func (ix *Index) Shards() int { return len(ix.keys) }

// Clock returns the clock of the server that has shard 0, in Unix milliseconds, whatever is in the shard.
func (ix *Index) Clock(ctx context.Context) (int64, error) {
	var c redis.Cmdable = ix.client
	if cluster, ok := ix.client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, ix.keys[0].named("META"))
		if err != nil {
			return 0, fmt.Errorf("master of shard 0: %w", err)
		}
		c = master
	}
	now, err := c.Time(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("time of shard 0: %w", err)
	}
	return now.UnixMilli() + ix.offset.Load(), nil
}

// ShardOf returns the shard that has the lane.
func (ix *Index) ShardOf(lane int64) int { return shardOfLane(lane, len(ix.keys)) }
