// Package redisq implements the index on Redis: one server, a server behind Sentinel, or a Cluster.
//
// It keeps every promise of package schedule. Each operation is one Lua script for each shard, which runs
// completely or not at all. All keys of a shard have one hash tag and are declared, so that a shard is in one
// slot. The server's clock decides what is due; docs/adr/0006 explains jumps of it. No key expires, no
// command blocks, and several processes may share one index.
//
// An operator can read the delay set in "<prefix>:{<prefix>:<shard>}:delay": ids scored by their due time in
// Unix milliseconds. keys.go lists the other structures. lua/include/records.lua and lua/include/lanes.lua
// define the formats of records and lanes, lua/include/flow.lua that of a lane's rate and breaker.
//
// The client never repeats a claim on its own: a repetition could lease items that no process knows of. It
// returns the error, and the caller repeats the claim with the same token. All other operations are
// idempotent, and the client repeats them. If a call spans shards and fails on some of them, it returns the
// replies of the others with the error; the missing replies are zero.
//
// Run checks every 15 s whether a server may evict keys and whether each shard has lost a key (see Warnings).
// An audit repairs what the other keys still show. Otherwise the shard becomes lost, and the dispatcher
// rebuilds it.
//
// The conformance suite, the comparison with memq, and the tests of damage, full memory and eviction run on
// redis-server, and also on valkey-server if it is in PATH.
//
// This package stores nothing that SQL does not have, creates no generations, and does not decide when to
// rebuild. It does not delete shards after their number has changed: such a change is a rebuild under another
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
	// defaultPrefix is the prefix of the keys and the channel if Options name none.
	defaultPrefix = "dispatcher"
	// clusterShards is the default number of shards on a Cluster: few enough to poll, enough to use all
	// masters.
	clusterShards = 16
	// checkTime bounds the check of the servers by Open.
	checkTime = 5 * time.Second
	// maxShards bounds the polling of one process.
	maxShards = 1024
)

// Options configure an index.
type Options struct {
	// URL is the address of Redis: redis://, rediss://, redis+sentinel://host1,host2/MASTER/db or
	// redis+cluster://host1,host2; the last two with rediss as well. user:password@ may stand before the
	// hosts. Sentinels with their own password get it from the parameters sentinel_username and
	// sentinel_password. The URL is required.
	URL string
	// Prefix begins the names of all keys; empty means "dispatcher".
	Prefix string
	// Shards is the number of shards; zero means 1, or 16 on a Cluster. All processes of an index must use
	// the same number.
	Shards int
	// Registerer gets the metrics, dispatcher_index_…; nil: none.
	Registerer prometheus.Registerer
	// Logger gets warnings about the servers and the subscription; nil: they are dropped.
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
	// offset is added to the server's clock, in milliseconds. Only tests set it.
	offset atomic.Int64
}

// CheckURL returns an error if the address is invalid. It does not connect. The error never repeats a part of
// the address, which may have a password.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

// Open connects. It returns an error if a server is older than 6.2, may evict keys, or is not of the URL's
// kind. An unreachable server is no error: Open logs a warning, and Run checks the server when it can. The
// index expects generation 0 until SetGeneration changes it, so until then its operations return
// schedule.ErrLost.
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
		watch:   watch{known: make(map[string]*Server)},

		watchEvery: watchEvery,
	}
	for shard := range ix.keys {
		ix.keys[shard] = keysOf(o.Prefix, shard)
	}
	ix.scripts, err = loadScripts()
	if err != nil {
		return nil, err
	}
	ix.metrics, err = newMetrics(o.Registerer, ix.scripts)
	if err != nil {
		return nil, err
	}
	ix.client, ix.cluster = a.dial(), a.cluster
	if err := registerAll(o.Registerer, newPoolGauges(ix.client)...); err != nil {
		return nil, errors.Join(err, ix.client.Close())
	}
	switch err := ix.survey(ctx, true); {
	case err == nil:
	case unreachable(err):
		// A process may start without its index: accepting needs none, and sending waits for it.
		ix.unchecked.Store(true)
		attributes := []any{"error", err}
		if hint := a.tlsHint(err); hint != "" {
			attributes = append(attributes, "hint", hint)
		}
		ix.log.WarnContext(ctx, "redis unreachable at start, trying again", attributes...)
	default:
		return nil, errors.Join(refusalOf(err), ix.client.Close())
	}
	return ix, nil
}

// checkLate checks servers that were unreachable at the start. It cannot refuse them any more; survey logs
// their problems.
func (ix *Index) checkLate(ctx context.Context) {
	if !ix.unchecked.Load() {
		return
	}
	if err := ix.survey(ctx, false); err == nil || !unreachable(err) {
		ix.unchecked.Store(false)
	}
}

// temporaryErrors are the beginnings of replies with which a server says that it cannot work at present: it
// starts, is a replica until a failover is over, cannot write, or is overloaded.
var temporaryErrors = []string{
	"LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "UNKILLABLE",
	"MISCONF", "OOM", "max number of clients",
}

// unreachable reports whether a server did not answer, or cannot work at present. Other errors are refusals.
func unreachable(err error) bool {
	var answer redis.Error
	if errors.As(err, &answer) {
		return slices.ContainsFunc(temporaryErrors, func(prefix string) bool {
			return redis.HasErrorPrefix(answer, prefix)
		})
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "connection refused")
}

// Close closes the connections. No call may be in progress, and Run must have returned.
func (ix *Index) Close() error {
	if err := ix.client.Close(); err != nil {
		return fmt.Errorf("close index: %w", err)
	}
	return nil
}

// Ping sends PING to every master.
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

// Clock returns the clock of the server of shard 0, in Unix milliseconds. It works in every state of the
// shard.
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
