package redisq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A Server is what one Redis server says of itself.
type Server struct {
	Addr string
	// Info are the lines of INFO, by name. It is nil where the user of the URL may not ask; Untold says why.
	Info    map[string]string
	InfoErr error
	// Save is the configuration of snapshots; SaveTold is false where CONFIG may not be asked.
	Save      string
	SaveKnown bool
	// ClusterInfo are the lines of CLUSTER INFO; nil: it is no node of a Cluster.
	ClusterInfo map[string]string
	// Scripts is why a script cannot be run; nil: it can.
	Scripts error
	// ClockAhead is the server's clock less this process's, to within Precision.
	ClockAhead, Precision time.Duration
}

// A Survey is what the servers of an index say of themselves, and of the index.
type Survey struct {
	// Servers are all masters, in the order of their addresses.
	Servers []Server
	// Cluster says that the URL names a Cluster.
	Cluster bool
	// Generations are those of the shards; zero: the shard holds no index. Unread is why they could not be
	// read although the servers answer.
	Generations []int64
	Unread      error
}

// DefaultShards is into how many parts an index at the URL is split unless Options say otherwise.
func DefaultShards(rawURL string) (int, error) {
	a, err := parseURL(rawURL)
	if err != nil {
		return 0, err
	}
	return a.shards(0)
}

// Look asks the servers at the URL about themselves, and about the index under the prefix. It changes
// nothing, and refuses nothing: what Open would refuse is in the survey. Its error is that a server did not
// answer.
func Look(ctx context.Context, rawURL, prefix string, shards int) (*Survey, error) {
	a, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	client := a.dial()
	s := &Survey{Cluster: a.cluster}
	var mu sync.Mutex
	err = eachMaster(ctx, client, func(ctx context.Context, c *redis.Client) error {
		server, err := lookAt(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		s.Servers = append(s.Servers, server)
		return err
	})
	slices.SortFunc(s.Servers, func(a, b Server) int { return strings.Compare(a.Addr, b.Addr) })
	for shard := 0; err == nil && s.Unread == nil && shard < shards; shard++ {
		generation, failed := readGeneration(ctx, client, keysOf(prefix, shard))
		if failed != nil {
			failed = fmt.Errorf("read the index's generation: %w", failed)
		}
		if failed != nil && unreachable(failed) {
			err = failed
		}
		s.Unread = failed
		s.Generations = append(s.Generations, generation)
	}
	return s, errors.Join(err, client.Close())
}

func lookAt(ctx context.Context, c *redis.Client) (Server, error) {
	s := Server{Addr: c.Options().Addr}
	var best time.Duration
	for try := range 3 {
		sent := time.Now()
		at, err := c.Time(ctx).Result()
		trip := time.Since(sent)
		if err != nil {
			return s, fmt.Errorf("redis at %s: %w", s.Addr, err)
		}
		if try == 0 || trip < best {
			best = trip
			s.ClockAhead, s.Precision = at.Sub(sent.Add(trip/2)), trip/2
		}
	}
	var err error
	s.Info, s.InfoErr, err = readInfo(ctx, c, "server", "memory", "persistence", "replication",
		"cluster")
	if err != nil {
		return s, err
	}
	if config, err := c.ConfigGet(ctx, "save").Result(); err == nil {
		s.Save, s.SaveKnown = config["save"], true
	}
	if s.Info["cluster_enabled"] == "1" {
		if text, err := c.ClusterInfo(ctx).Result(); err == nil {
			s.ClusterInfo = parseInfo(text)
		}
	}
	s.Scripts = c.Eval(ctx, "return 1", nil).Err()
	return s, nil
}

// readInfo asks a server for the sections of its INFO. That it does not tell the user is no error: then there
// is none of it, and untold says why.
func readInfo(ctx context.Context, c *redis.Client,
	sections ...string) (info map[string]string, untold, err error) {
	info = make(map[string]string)
	for _, section := range sections {
		text, err := c.Info(ctx, section).Result()
		if forbidden(err) {
			return nil, err, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("redis at %s: %w", c.Options().Addr, err)
		}
		maps.Copy(info, parseInfo(text))
	}
	return info, nil, nil
}

// forbidden says that a server answers, but not this command, or not to this user. What a server says that is
// asked for a master as if it were a Sentinel is no such answer.
func forbidden(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") ||
		redis.HasErrorPrefix(err, "unknown command") && !strings.Contains(err.Error(), "sentinels")
}

// watchEvery is how often the servers are asked whether they can still be trusted with an index, and each
// shard whether it is whole.
const watchEvery = 15 * time.Second

// ask reads what decides whether a server can be trusted. A server that does not tell is no error.
func ask(ctx context.Context, c *redis.Client) (s Server, err error) {
	s.Addr = c.Options().Addr
	s.Info, s.InfoErr, err = readInfo(ctx, c, "server", "memory", "stats")
	if err == nil && s.InfoErr == nil && (s.Info["maxmemory_policy"] == "" || s.Info["maxmemory"] == "") {
		s.InfoErr = errors.New("INFO has no maxmemory_policy")
	}
	return s, err
}

// refusal is why a server cannot be trusted with an index; nil: it can, as far as it tells.
func (s *Server) refusal(cluster bool) error {
	version, mode, policy, limit := s.Info["redis_version"], s.Info["redis_mode"], s.Info["maxmemory_policy"],
		s.Info["maxmemory"]
	if version == "" && s.InfoErr != nil {
		return nil
	}
	if err := CheckVersion(version); err != nil {
		return fmt.Errorf("redis at %s: %w", s.Addr, err)
	}
	switch {
	case mode == "sentinel":
		return fmt.Errorf("redis at %s is a Sentinel: use redis+sentinel://host1,host2/MASTER/db", s.Addr)
	case mode == "cluster" && !cluster:
		return fmt.Errorf("redis at %s is a node of a Cluster: use redis+cluster://", s.Addr)
	case policy != "" && policy != "noeviction" && limit != "" && limit != "0":
		return fmt.Errorf("redis at %s has maxmemory-policy %s and would drop parts of the index: set "+
			"maxmemory-policy noeviction", s.Addr, policy)
	}
	return nil
}

// complaint says, with the cure, what is wrong with the server, or could be; empty: nothing.
func (s *Server) complaint(cluster bool) string {
	if err := s.refusal(cluster); err != nil {
		return err.Error()
	}
	switch policy := s.Info["maxmemory_policy"]; {
	case s.InfoErr != nil:
		return fmt.Sprintf("redis at %s does not tell its version and eviction policy: it must be 6.2 or "+
			"newer with maxmemory-policy noeviction", s.Addr)
	case policy != "noeviction":
		return fmt.Sprintf("redis at %s has maxmemory-policy %s, which would drop parts of the index once "+
			"it has a maxmemory: "+
			"set maxmemory-policy noeviction", s.Addr, policy)
	}
	return ""
}

// evictedSince returns how many keys the server has evicted since it was asked before. Counters begin anew
// with each start.
func (s *Server) evictedSince(before *Server) int64 {
	now, _ := strconv.ParseInt(s.Info["evicted_keys"], 10, 64)
	then, _ := strconv.ParseInt(before.Info["evicted_keys"], 10, 64)
	if s.Info["run_id"] != before.Info["run_id"] {
		return 0
	}
	return max(now-then, 0)
}

// A watch knows what was last heard of each server.
type watch struct {
	mu    sync.Mutex
	known map[string]*Server
}

// Warnings says, in one sentence each that names the cure, why the index may be lost although it answers: a
// server would have been refused at the start, as one is that evicts keys. Nil: nothing is known to be wrong.
// Run keeps it up to date.
func (ix *Index) Warnings() []string {
	ix.watch.mu.Lock()
	defer ix.watch.mu.Unlock()
	var all []string
	for _, s := range ix.watch.known {
		if err := s.refusal(ix.cluster); err != nil {
			all = append(all, err.Error())
		}
	}
	slices.Sort(all)
	return all
}

// heard takes over what a server says, and logs what has changed in it.
func (ix *Index) heard(ctx context.Context, s *Server) {
	ix.watch.mu.Lock()
	before, known := ix.watch.known[s.Addr]
	ix.watch.known[s.Addr] = s
	unsafe := 0.0
	for _, one := range ix.watch.known {
		if one.refusal(ix.cluster) != nil {
			unsafe = 1
		}
	}
	ix.metrics.unsafe.Set(unsafe) // under the lock: it agrees with Warnings, and the last change is set last
	ix.watch.mu.Unlock()
	switch text := s.complaint(ix.cluster); {
	case known && text == before.complaint(ix.cluster):
	case s.refusal(ix.cluster) != nil:
		ix.log.ErrorContext(ctx, text, "addr", s.Addr)
	case text != "":
		ix.log.WarnContext(ctx, text, "addr", s.Addr, "error", s.InfoErr)
	case known:
		ix.log.InfoContext(ctx, "redis can be trusted with an index again", "addr", s.Addr)
	}
	if !known {
		return
	}
	if n := s.evictedSince(before); n > 0 {
		ix.metrics.evicted.Add(float64(n))
		ix.log.ErrorContext(ctx, "redis evicted keys, perhaps parts of the index; what is lost of it comes "+
			"back by audit, sweep or rebuild: "+
			"set maxmemory-policy noeviction and give it enough memory", "addr", s.Addr, "keys", n)
	}
}

// survey asks every master. It returns the reasons to refuse one, or why one could not be asked. With
// starting, what is refused is only returned, for then it is not used.
func (ix *Index) survey(ctx context.Context, starting bool) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	var mu sync.Mutex
	masters := make(map[string]bool)
	var refusals error
	err := eachMaster(ctx, ix.client, func(ctx context.Context, c *redis.Client) error {
		s, err := ask(ctx, c)
		if err != nil {
			return err
		}
		refused := s.refusal(ix.cluster)
		mu.Lock()
		masters[s.Addr] = true
		refusals = errors.Join(refusals, refused)
		mu.Unlock()
		if refused == nil || !starting {
			ix.heard(ctx, &s)
		}
		return nil
	})
	if err != nil {
		return err
	}
	ix.watch.mu.Lock()
	defer ix.watch.mu.Unlock()
	maps.DeleteFunc(ix.watch.known, func(addr string, _ *Server) bool { return !masters[addr] })
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
		// What would be refused is in the log and the metric; that a server does not answer is said by who
		// needs it.
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

// keepWhole looks whether a key of the shard is gone. What only SQL knows makes the shard lost, so that it is
// rebuilt; the rest is mended from what is left.
func (ix *Index) keepWhole(ctx context.Context, shard int) error {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	keys, err := ix.gone(ctx, shard)
	switch {
	case err != nil || len(keys) == 0:
		return err
	case !slices.Equal(keys, []string{"items"}):
		ix.metrics.lost.Inc()
		ix.log.ErrorContext(ctx, "a part of the index is gone; the shard counts as lost and is rebuilt "+
			"from SQL: "+
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
		cursor = page.Next
		if cursor == "" {
			break
		}
	}
	ix.log.WarnContext(ctx, "the sizes of the index did not fit each other; an audit mended it", "shard",
		shard, "repaired", repaired)
	return nil
}

// gone says which keys of a shard are gone that must be there, as far as its sizes tell: somebody deleted
// them, or the server evicted them. "records" and "lanes" can only come from SQL: the shard then counts as
// lost, and every operation on it returns schedule.ErrLost. "items" is any of those that an item stands in;
// an audit mends them.
func (ix *Index) gone(ctx context.Context, shard int) ([]string, error) {
	var keys []string
	err := ix.ask(ctx, "intact", shard, nil, func(r *reply) {
		r.tick()
		for r.more() {
			keys = append(keys, r.text())
		}
	})
	if errors.Is(err, schedule.ErrLost) {
		return nil, nil // which somebody who needs the index has seen, too
	}
	return keys, err
}

// A refusal says on one line why servers are not used, and what to do about it. What they answered is behind
// it.
type refusal struct {
	line   string
	answer error
}

// Error returns the line.
func (r refusal) Error() string { return r.line }

// Unwrap returns what the servers answered.
func (r refusal) Unwrap() error { return r.answer }

// cures are what to do about an answer that begins so. The first one that fits is told.
var cures = []struct{ in, answer, cure string }{
	{"sentinels", "WRONGPASS", "redis_url takes the Sentinels' own user and password as " +
		"?sentinel_username=…&sentinel_password=…"},
	{"sentinels", "NOAUTH", "redis_url takes the Sentinels' own user and password as " +
		"?sentinel_username=…&sentinel_password=…"},
	{"", "WRONGPASS", "set the right user and password in redis_url"},
	{"", "NOAUTH", "set user and password in redis_url: redis://user:password@host"},
	{"sentinels", "unknown command", "these are no Sentinels; redis:// is the form for a server"},
	{"sentinels", "redis: nil", "the Sentinels know no master of that name: the name of the master follows " +
		"the hosts in redis_url"},
	{"", "cluster support disabled", "this is no node of a Cluster; redis:// is the form for a single " +
		"server"},
	{"", "unknown authority", "add the authority's certificate to the system's roots, or name its file in " +
		"the environment variable SSL_CERT_FILE"},
	{"", "x509: ", "redis_url must name the server as its certificate does"},
	{"", "DB index is out of range", "the number at the end of redis_url is that of a database, 0 to 15 " +
		"unless the server is set to more"},
	{"", "NOPERM", "the user of redis_url needs the commands and keys of the index, see ACL SETUSER"},
}

// mistaken adds to a complaint what a server that hangs up, or says nothing, may mean by it; empty: nothing.
func (a address) mistaken(err error) string {
	switch {
	case a.tls && errors.Is(err, context.DeadlineExceeded):
		return "; if it runs without TLS at this port, use redis instead of rediss in redis_url"
	case !a.tls && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return "; if it runs with TLS at this port, use rediss instead of redis in redis_url"
	}
	return ""
}

// refusalOf makes one line of an error of the check at the start. Several servers that answered alike are
// told of once.
func refusalOf(err error) error {
	line, _, _ := strings.Cut(err.Error(), "\n")
	line = strings.TrimSuffix(line, ".")
	// The client has this name for the address of a master that it asked Sentinels for.
	line = strings.Replace(line, "redis at FailoverClient", "redis behind the Sentinels", 1)
	if !strings.HasPrefix(line, "redis") {
		line = "redis: " + line
	}
	for _, c := range cures {
		if strings.Contains(line, c.in) && strings.Contains(line, c.answer) {
			line += ": " + c.cure
			break
		}
	}
	return refusal{line: line, answer: err}
}
