package redisq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// watchEvery is how often the servers are asked whether they can still be trusted with an index, and each shard whether it
// is whole.
const watchEvery = 15 * time.Second

// facts are what a server says of itself.
type facts struct {
	addr    string
	untold  error  // why it does not say
	run     string // its start: counters begin anew with each
	version string
	mode    string
	policy  string
	limit   string
	evicted int64
}

// ask reads a server's facts. A server that does not tell is no error.
func ask(ctx context.Context, c *redis.Client) (facts, error) {
	f := facts{addr: c.Options().Addr}
	info := make(map[string]string)
	for _, section := range []string{"server", "memory", "stats"} {
		text, err := c.Info(ctx, section).Result()
		if forbidden(err) {
			f.untold = err
			return f, nil
		}
		if err != nil {
			return f, fmt.Errorf("redis at %s: %w", f.addr, err)
		}
		for name, value := range parseInfo(text) {
			info[name] = value
		}
	}
	f.run, f.version, f.mode = info["run_id"], info["redis_version"], info["redis_mode"]
	f.policy, f.limit = info["maxmemory_policy"], info["maxmemory"]
	if n, err := strconv.ParseInt(info["evicted_keys"], 10, 64); err == nil {
		f.evicted = n
	}
	if f.policy == "" || f.limit == "" {
		f.untold = errors.New("INFO has no maxmemory_policy")
	}
	return f, nil
}

// refusal is why a server cannot be trusted with an index; nil: it can, as far as it tells.
func (f facts) refusal(cluster bool) error {
	if f.version == "" && f.untold != nil {
		return nil
	}
	if err := checkVersion(f.version); err != nil {
		return fmt.Errorf("redis at %s: %w", f.addr, err)
	}
	if f.mode == "sentinel" {
		return fmt.Errorf("redis at %s is a Sentinel: use redis+sentinel://host1,host2/MASTER/db", f.addr)
	}
	if f.mode == "cluster" && !cluster {
		return fmt.Errorf("redis at %s is a node of a Cluster: use redis+cluster://", f.addr)
	}
	if f.evicts() {
		return fmt.Errorf("redis at %s has maxmemory-policy %s and would drop parts of the index: set maxmemory-policy noeviction", f.addr, f.policy)
	}
	return nil
}

// evicts says that the server drops keys when its memory is full.
func (f facts) evicts() bool {
	return f.policy != "" && f.policy != "noeviction" && f.limit != "" && f.limit != "0"
}

// complaint says, with the cure, what is wrong with the server, or could be; empty: nothing.
func (f facts) complaint(cluster bool) string {
	if err := f.refusal(cluster); err != nil {
		return err.Error()
	}
	switch {
	case f.untold != nil:
		return fmt.Sprintf("redis at %s does not tell its version and eviction policy: it must be 6.2 or newer with maxmemory-policy noeviction", f.addr)
	case f.policy != "noeviction":
		return fmt.Sprintf("redis at %s has maxmemory-policy %s, which would drop parts of the index once it has a maxmemory: "+
			"set maxmemory-policy noeviction", f.addr, f.policy)
	}
	return ""
}

// A watch knows what was last heard of each server.
type watch struct {
	mu    sync.Mutex
	known map[string]facts
}

// Warnings says, in one sentence each that names the cure, why the index may be lost although it answers: a server would have
// been refused at the start, as one is that evicts keys. Nil: nothing is known to be wrong. Run keeps it up to date.
func (ix *Index) Warnings() []string {
	ix.watch.mu.Lock()
	defer ix.watch.mu.Unlock()
	var all []string
	for _, f := range ix.watch.known {
		if err := f.refusal(ix.cluster); err != nil {
			all = append(all, err.Error())
		}
	}
	slices.Sort(all)
	return all
}

// heard takes over what a server says, and logs what has changed in it.
func (ix *Index) heard(ctx context.Context, f facts) {
	ix.watch.mu.Lock()
	before, known := ix.watch.known[f.addr]
	ix.watch.known[f.addr] = f
	unsafe := 0.0
	for _, one := range ix.watch.known {
		if one.refusal(ix.cluster) != nil {
			unsafe = 1
		}
	}
	ix.metrics.unsafe.Set(unsafe) // under the lock: it agrees with Warnings, and the last change is set last
	ix.watch.mu.Unlock()
	switch text := f.complaint(ix.cluster); {
	case known && text == before.complaint(ix.cluster):
	case f.refusal(ix.cluster) != nil:
		ix.log.ErrorContext(ctx, text, "addr", f.addr)
	case text != "":
		ix.log.WarnContext(ctx, text, "addr", f.addr, "error", f.untold)
	case known:
		ix.log.InfoContext(ctx, "redis can be trusted with an index again", "addr", f.addr)
	}
	if known && f.run == before.run && f.evicted > before.evicted {
		n := f.evicted - before.evicted
		ix.metrics.evicted.Add(float64(n))
		ix.log.ErrorContext(ctx, "redis evicted keys, perhaps parts of the index; what is lost of it comes back by audit, sweep or rebuild: "+
			"set maxmemory-policy noeviction and give it enough memory", "addr", f.addr, "keys", n)
	}
}

// forget drops servers that are no masters any more.
func (ix *Index) forget(masters map[string]bool) {
	ix.watch.mu.Lock()
	defer ix.watch.mu.Unlock()
	for addr := range ix.watch.known {
		if !masters[addr] {
			delete(ix.watch.known, addr)
		}
	}
}

// survey asks every master. It returns the reasons to refuse one, or why one could not be asked. With starting, what is
// refused is only returned, for then it is not used.
func (ix *Index) survey(ctx context.Context, starting bool) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	var mu sync.Mutex
	masters := make(map[string]bool)
	var refusals error
	err := eachMaster(ctx, ix.client, func(ctx context.Context, c *redis.Client) error {
		f, err := ask(ctx, c)
		if err != nil {
			return err
		}
		refused := f.refusal(ix.cluster)
		mu.Lock()
		masters[f.addr] = true
		refusals = errors.Join(refusals, refused)
		mu.Unlock()
		if refused == nil || !starting {
			ix.heard(ctx, f)
		}
		return nil
	})
	if err != nil {
		return err
	}
	ix.forget(masters)
	return refusals
}

// keepWatch surveys the servers and the shards until the context ends.
func (ix *Index) keepWatch(ctx context.Context) {
	ticker := time.NewTicker(ix.watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// What would be refused is in the log and the metric; that a server does not answer is said by who needs it.
		if err := ix.survey(ctx, false); err != nil && ctx.Err() == nil {
			ix.log.DebugContext(ctx, "survey of the index's servers", "error", err)
		}
		for shard := range ix.keys {
			if err := ix.keepWhole(ctx, shard); err != nil && ctx.Err() == nil {
				ix.log.DebugContext(ctx, "survey of the index", "error", err)
			}
		}
	}
}

// keepWhole looks whether a key of the shard is gone. What only SQL knows makes the shard lost, so that it is rebuilt; the rest
// is mended from what is left.
func (ix *Index) keepWhole(ctx context.Context, shard int) error {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	keys, err := ix.gone(ctx, shard)
	switch {
	case err != nil || len(keys) == 0:
		return err
	case !slices.Equal(keys, []string{"items"}):
		ix.metrics.lost.Inc()
		ix.log.ErrorContext(ctx, "a part of the index is gone; the shard counts as lost and is rebuilt from SQL: "+
			"if nobody deleted keys, set maxmemory-policy noeviction", "shard", shard, "gone", keys)
		return nil
	}
	repaired := 0
	for cursor := ""; ; {
		page, err := ix.Audit(ctx, shard, cursor)
		if err != nil {
			return err
		}
		repaired += page.Repaired
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	ix.log.WarnContext(ctx, "the sizes of the index did not fit each other; an audit mended it", "shard", shard, "repaired", repaired)
	return nil
}

// gone says which keys of a shard are gone that must be there, as far as its sizes tell: somebody deleted them, or the server
// evicted them. "records" and "lanes" can only come from SQL: the shard then counts as lost, and every operation on it returns
// schedule.ErrLost. "items" is any of those that an item stands in; an audit mends them.
func (ix *Index) gone(ctx context.Context, shard int) ([]string, error) {
	if err := ix.checkShard("intact", shard); err != nil {
		return nil, err
	}
	r, err := ix.call(ctx, "intact", shard)
	if errors.Is(err, schedule.ErrLost) {
		return nil, nil // which somebody who needs the index has seen, too
	}
	if err != nil {
		return nil, err
	}
	r.tick()
	var keys []string
	for r.more() {
		keys = append(keys, r.text())
	}
	return keys, r.done()
}
