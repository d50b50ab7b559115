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

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// defaultPrefix is where keys and the channel begin when Options name no prefix.
	defaultPrefix = "dispatcher"
	// clusterShards is the default number of shards on a Cluster: few enough to poll, and enough to spread over masters.
	clusterShards = 16
	// checkTime bounds what Open waits for the servers.
	checkTime = 5 * time.Second
	// maxShards bounds what one process polls.
	maxShards = 1024
)

// Options of an index.
type Options struct {
	// URL says where Redis is: redis://, rediss://, redis+sentinel://host1,host2/MASTER/db, redis+cluster://host1,host2;
	// the last two with rediss as well; each with user:password@ before the hosts. Sentinels that want a password of
	// their own take it from the parameters sentinel_username and sentinel_password. It is required.
	URL string
	// Prefix is where the names of all keys begin; empty means "dispatcher".
	Prefix string
	// Shards is into how many parts the index is split; zero means 1, or 16 on a Cluster. All processes of one index
	// must use the same number.
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

// Open connects, and refuses servers that are older than 6.2 or would evict keys. A server that cannot be reached is not
// refused: it is checked when it can be, and a warning is logged. The index expects generation 0 until
// SetGeneration says another, which means that its operations return schedule.ErrLost.
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
	if o.Shards == 0 {
		if o.Shards = 1; a.cluster {
			o.Shards = clusterShards
		}
	}
	if o.Shards < 1 || o.Shards > maxShards {
		return nil, fmt.Errorf("%d shards: 1 to %d are possible", o.Shards, maxShards)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ix := &Index{
		channel: o.Prefix + ":hints",
		keys:    make([]shardKeys, o.Shards),
		hints:   make(chan int, 4*o.Shards),
		log:     o.Logger,
		watch:   watch{known: make(map[string]facts)}, watchEvery: watchEvery,
	}
	for shard := range ix.keys {
		ix.keys[shard] = keysOf(o.Prefix, shard)
	}
	if ix.scripts, err = loadScripts(); err != nil {
		return nil, err
	}
	if ix.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, err
	}
	ix.client, ix.cluster = a.dial(), a.cluster
	switch err := ix.survey(ctx, true); {
	case err == nil:
	case unreachable(err):
		// An index that is away is no reason not to start: accepting needs none, and sending waits for it in any case.
		ix.unchecked.Store(true)
		ix.log.WarnContext(ctx, "the index cannot be reached; it is used as soon as it can"+a.mistaken(err), "error", err)
	default:
		return nil, errors.Join(refusalOf(err), ix.client.Close())
	}
	return ix, nil
}

// checkLate checks servers that could not be reached at the start. It is too late to refuse them: what is wrong is logged.
func (ix *Index) checkLate(ctx context.Context) {
	if !ix.unchecked.Load() {
		return
	}
	if err := ix.survey(ctx, false); err == nil || !unreachable(err) {
		ix.unchecked.Store(false)
	}
}

// passing are the beginnings of answers by which a server says that it cannot at present: it starts, is a replica until a
// failover is over, cannot write, or has too much to do.
var passing = []string{
	"LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "UNKILLABLE", "MISCONF", "OOM", "max number of clients",
}

// unreachable tells a server that did not answer, or not yet, from one whose answer was no.
func unreachable(err error) bool {
	var answer redis.Error
	if errors.As(err, &answer) {
		return slices.ContainsFunc(passing, func(prefix string) bool { return redis.HasErrorPrefix(answer, prefix) })
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
		master, err := cluster.MasterForKey(ctx, string(ix.keys[0])+keyNames["META"])
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

// call runs one operation's script on a shard.
func (ix *Index) call(ctx context.Context, operation string, shard int, args ...any) (*reply, error) {
	s := ix.scripts[operation]
	return ix.send(ctx, s, shard, ix.arguments(s, shard, args))
}

// arguments fills in by name what every script may have. The others are the caller's, in the order of the header, and
// then those of the elements.
func (ix *Index) arguments(s *script, shard int, args []any) []any {
	all := make([]any, 0, len(s.argv)+len(args))
	for _, name := range s.argv {
		switch name {
		case "GENERATION":
			all = append(all, encodeGeneration(ix.generation.Load()))
		case "OFFSET":
			all = append(all, ix.offset.Load())
		case "CHANNEL":
			all = append(all, ix.channel)
		case "SHARD":
			all = append(all, shard)
		default:
			if len(args) > 0 {
				all, args = append(all, args[0]), args[1:]
			}
		}
	}
	return append(all, args...)
}

// send runs a script with all its arguments, and measures it.
func (ix *Index) send(ctx context.Context, s *script, shard int, args []any) (*reply, error) {
	began := time.Now()
	values, err := s.run(ctx, ix.client, s.name == "claim", ix.keys[shard].named(s.keys), args)
	ix.metrics.observe(s.name, time.Since(began), err)
	switch {
	case err == nil:
		return &reply{operation: s.name, shard: shard, values: values}, nil
	case redis.HasErrorPrefix(err, "LOST "):
		err = schedule.ErrLost
	case redis.HasErrorPrefix(err, "REBUILDING "):
		err = schedule.ErrRebuilding
	default:
		ix.lookAround(ctx)
	}
	return nil, fmt.Errorf("%s on shard %d: %w", s.name, shard, err)
}

// A reply is read value by value. The first that is not of the kind asked for is remembered, and ends what follows.
type reply struct {
	operation string
	shard     int
	values    []any
	at        int
	err       error
}

func (r *reply) next() any {
	if r.err != nil {
		return nil
	}
	if r.at >= len(r.values) {
		r.err = io.ErrUnexpectedEOF
		return nil
	}
	r.at++
	return r.values[r.at-1]
}

func (r *reply) more() bool { return r.err == nil && r.at < len(r.values) }

func (r *reply) int() int64 {
	v := r.next()
	n, ok := v.(int64)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("value %d is a %T, not a number", r.at, v)
	}
	return n
}

func (r *reply) text() string {
	v := r.next()
	s, ok := v.(string)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("value %d is a %T, not a text", r.at, v)
	}
	return s
}

func (r *reply) tick() schedule.Tick {
	return schedule.Tick{Now: r.int(), Next: r.int(), Seq: r.int()}
}

// done returns what was wrong with the reply, if anything.
func (r *reply) done() error {
	if r.err == nil && r.at < len(r.values) {
		r.err = fmt.Errorf("%d values more than expected", len(r.values)-r.at)
	}
	if r.err != nil {
		return fmt.Errorf("%s on shard %d: reply: %w", r.operation, r.shard, r.err)
	}
	return nil
}
