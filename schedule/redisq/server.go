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

// A Server is the state of one Redis server, as the server reports it.
type Server struct {
	Addr string
	// Info has the lines of INFO, by name. It is nil if the URL's user may not run INFO; InfoErr is the
	// reason.
	Info    map[string]string
	InfoErr error
	// Save is the configuration of snapshots. SaveKnown is false if the URL's user may not run CONFIG.
	Save      string
	SaveKnown bool
	// ClusterInfo has the lines of CLUSTER INFO; nil: the server is no node of a Cluster.
	ClusterInfo map[string]string
	// Scripts is the reason why the server runs no scripts; nil: it runs them.
	Scripts error
	// ClockAhead is the server's clock minus this process's, with an error of at most Precision.
	ClockAhead, Precision time.Duration
}

// A Survey is the state of an index and its servers.
type Survey struct {
	// Servers are all masters, sorted by address.
	Servers []Server
	// Cluster says that the URL names a Cluster.
	Cluster bool
	// Generations are those of the shards; zero: the shard has no index. Unread is the reason why they could
	// not be read although the servers answer.
	Generations []int64
	Unread      error
}

// DefaultShards returns the number of shards of an index at the URL if Options name none.
func DefaultShards(rawURL string) (int, error) {
	a, err := parseURL(rawURL)
	if err != nil {
		return 0, err
	}
	return a.shards(0)
}

// Look reads the state of the servers at the URL and of the index under the prefix. It changes nothing. It
// returns no error for servers that Open would refuse; the survey shows them. An error means that a server
// did not answer.
func Look(ctx context.Context, rawURL, prefix string, shards int) (*Survey, error) {
	a, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	client := a.dial()
	s := &Survey{Cluster: a.cluster}
	var mu sync.Mutex
	err = eachMaster(ctx, client, func(ctx context.Context, c *redis.Client) error {
		server, err := surveyServer(ctx, c)
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

// surveyServer reads the state of one server. It measures the clock three times, and keeps the measurement
// with the shortest round trip.
func surveyServer(ctx context.Context, c *redis.Client) (Server, error) {
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

// readInfo reads sections of a server's INFO. If the user may not run INFO, that is no error: info is nil,
// and denied is the reason.
func readInfo(ctx context.Context, c *redis.Client,
	sections ...string) (info map[string]string, denied, err error) {
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

// forbidden reports whether a server refuses this command, or refuses it to this user. The reply of a plain
// server that is used as a Sentinel is not meant: that is a mistake in the URL.
func forbidden(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") ||
		redis.HasErrorPrefix(err, "unknown command") && !strings.Contains(err.Error(), "sentinels")
}

// watchEvery is how often Run checks the servers and the shards.
const watchEvery = 15 * time.Second

// readServer reads what decides whether a server is safe for an index. A user who may not run INFO is no
// error.
func readServer(ctx context.Context, c *redis.Client) (s Server, err error) {
	s.Addr = c.Options().Addr
	s.Info, s.InfoErr, err = readInfo(ctx, c, "server", "memory", "stats")
	if err == nil && s.InfoErr == nil && (s.Info["maxmemory_policy"] == "" || s.Info["maxmemory"] == "") {
		s.InfoErr = errors.New("INFO has no maxmemory_policy")
	}
	return s, err
}

// refusal returns the reason why a server is not safe for an index; nil: it is safe, or the server does not
// say.
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
		return fmt.Errorf("redis at %s has maxmemory-policy %s and may evict parts of the index: set "+
			"maxmemory-policy noeviction", s.Addr, policy)
	}
	return nil
}

// problem returns what is, or may become, wrong with the server, and the fix; empty: nothing.
func (s *Server) problem(cluster bool) string {
	if err := s.refusal(cluster); err != nil {
		return err.Error()
	}
	switch policy := s.Info["maxmemory_policy"]; {
	case s.InfoErr != nil:
		return fmt.Sprintf("redis at %s does not report its version and eviction policy: it must be 6.2 or "+
			"newer with maxmemory-policy noeviction", s.Addr)
	case policy != "noeviction":
		return fmt.Sprintf("redis at %s has maxmemory-policy %s and may evict parts of the index once "+
			"maxmemory is set: set maxmemory-policy noeviction", s.Addr, policy)
	}
	return ""
}

// evictedSince returns how many keys the server evicted since the earlier reading. After a restart of the
// server, which resets its counters, it returns 0.
func (s *Server) evictedSince(before *Server) int64 {
	now, _ := strconv.ParseInt(s.Info["evicted_keys"], 10, 64)
	then, _ := strconv.ParseInt(before.Info["evicted_keys"], 10, 64)
	if s.Info["run_id"] != before.Info["run_id"] {
		return 0
	}
	return max(now-then, 0)
}

// A watch has the last reading of each server.
type watch struct {
	mu    sync.Mutex
	known map[string]*Server
}

// Warnings returns one sentence, with the fix, for each server that Open would refuse now, such as one that
// may evict keys. The index may then be lost although it answers. Nil: no problem is known. Run keeps the
// answer up to date.
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

// record stores a reading of a server and logs what has changed since the last one.
func (ix *Index) record(ctx context.Context, s *Server) {
	ix.watch.mu.Lock()
	before, known := ix.watch.known[s.Addr]
	ix.watch.known[s.Addr] = s
	unsafe := 0.0
	for _, one := range ix.watch.known {
		if one.refusal(ix.cluster) != nil {
			unsafe = 1
		}
	}
	ix.metrics.unsafe.Set(unsafe) // under the lock, so that it agrees with Warnings
	ix.watch.mu.Unlock()
	switch text := s.problem(ix.cluster); {
	case known && text == before.problem(ix.cluster):
	case s.refusal(ix.cluster) != nil:
		ix.log.ErrorContext(ctx, "redis server is unsafe for the index", "addr", s.Addr, "problem", text)
	case text != "":
		ix.log.WarnContext(ctx, "redis server may be unsafe for the index", "addr", s.Addr, "problem", text,
			"error", s.InfoErr)
	case known:
		ix.log.InfoContext(ctx, "redis server is safe for the index again", "addr", s.Addr)
	}
	if !known {
		return
	}
	if n := s.evictedSince(before); n > 0 {
		ix.metrics.evicted.Add(float64(n))
		// An audit, the sweep or a rebuild restores what the index lost.
		ix.log.ErrorContext(ctx, "redis evicted keys, maybe of the index", "addr", s.Addr, "keys", n,
			"hint", "set maxmemory-policy noeviction and raise maxmemory")
	}
}

// survey reads the state of every master. It returns the reasons to refuse servers, or the error of one that
// did not answer. With starting it records no refused server, because Open will not use it.
func (ix *Index) survey(ctx context.Context, starting bool) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	var mu sync.Mutex
	masters := make(map[string]bool)
	var refusals error
	err := eachMaster(ctx, ix.client, func(ctx context.Context, c *redis.Client) error {
		s, err := readServer(ctx, c)
		if err != nil {
			return err
		}
		refused := s.refusal(ix.cluster)
		mu.Lock()
		masters[s.Addr] = true
		refusals = errors.Join(refusals, refused)
		mu.Unlock()
		if refused == nil || !starting {
			ix.record(ctx, &s)
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

// watchIndex checks the servers and the shards until the context ends.
func (ix *Index) watchIndex(ctx context.Context) {
	ticker := time.NewTicker(ix.watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// survey has logged unsafe servers. Callers that need an unreachable server log that.
		if err := ix.survey(ctx, false); err != nil && ctx.Err() == nil {
			ix.log.DebugContext(ctx, "survey of the redis servers failed", "error", err)
		}
		for shard := range ix.keys {
			if err := ix.checkShard(ctx, shard); err != nil && ctx.Err() == nil {
				ix.log.DebugContext(ctx, "check of the shard failed", "shard", shard, "error", err)
			}
		}
	}
}

// checkShard checks whether a shard has lost a key. The script makes the shard lost if only SQL knows what
// was in the key. Otherwise an audit repairs the shard from the other keys.
func (ix *Index) checkShard(ctx context.Context, shard int) error {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	keys, err := ix.lostKeys(ctx, shard)
	switch {
	case err != nil || len(keys) == 0:
		return err
	case !slices.Equal(keys, []string{"items"}):
		ix.metrics.lost.Inc()
		ix.log.ErrorContext(ctx, "index keys are missing, rebuilding the shard from SQL", "shard", shard,
			"missing", keys, "hint", "if no person deleted them, set maxmemory-policy noeviction")
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
	ix.log.WarnContext(ctx, "index sizes were inconsistent, an audit repaired them", "shard", shard,
		"repaired", repaired)
	return nil
}

// lostKeys returns the keys of a shard that are missing, as far as the shard's sizes show it: a person
// deleted them, or the server evicted them. Only SQL can restore "records" and "lanes": the script makes the
// shard lost, so that every operation on it returns schedule.ErrLost. "items" stands for any key that an
// audit can repair.
func (ix *Index) lostKeys(ctx context.Context, shard int) ([]string, error) {
	var keys []string
	err := ix.run(ctx, "intact", shard, nil, func(r *reply) {
		r.tick()
		for r.more() {
			keys = append(keys, r.text())
		}
	})
	if errors.Is(err, schedule.ErrLost) {
		return nil, nil // callers that use the shard get the same error and start the rebuild
	}
	return keys, err
}

// A refusal is one line that says why the servers are not used, and the fix. It wraps the servers' replies.
type refusal struct {
	line   string
	answer error
}

// Error returns the line.
func (r refusal) Error() string { return r.line }

// Unwrap returns what the servers answered.
func (r refusal) Unwrap() error { return r.answer }

// cures are the fixes for replies. A cure applies if the line contains both texts; the first that applies is
// used.
var cures = []struct{ in, answer, cure string }{
	{"sentinels", "WRONGPASS", "redis_url takes the Sentinels' own user and password as " +
		"?sentinel_username=…&sentinel_password=…"},
	{"sentinels", "NOAUTH", "redis_url takes the Sentinels' own user and password as " +
		"?sentinel_username=…&sentinel_password=…"},
	{"", "WRONGPASS", "set the right user and password in redis_url"},
	{"", "NOAUTH", "set user and password in redis_url: redis://user:password@host"},
	{"sentinels", "unknown command", "these servers are no Sentinels; use redis:// for a server"},
	{"sentinels", "redis: nil", "the Sentinels have no master of that name; put its name after " +
		"the hosts in redis_url"},
	{"", "cluster support disabled", "this is no node of a Cluster; use redis:// for a single server"},
	{"", "unknown authority", "add the authority's certificate to the system's roots, or set " +
		"SSL_CERT_FILE in the environment to its file"},
	{"", "x509: ", "use the server's name from its certificate in redis_url"},
	{"", "DB index is out of range", "change the database number at the end of redis_url; by default " +
		"a server has 0 to 15"},
	{"", "NOPERM", "the user of redis_url needs the commands and keys of the index, see ACL SETUSER"},
}

// tlsHint returns advice for a server that closes the connection or stays silent: it may expect TLS, or not;
// empty: no advice.
func (a address) tlsHint(err error) string {
	switch {
	case a.tls && errors.Is(err, context.DeadlineExceeded):
		return "if the server runs without TLS at this port, use redis instead of rediss in redis_url"
	case !a.tls && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return "if the server runs with TLS at this port, use rediss instead of redis in redis_url"
	}
	return ""
}

// refusalOf turns an error of the check at the start into one line with a cure. The line is that of the first
// server; the refusal wraps the replies of all of them.
func refusalOf(err error) error {
	line, _, _ := strings.Cut(err.Error(), "\n")
	line = strings.TrimSuffix(line, ".")
	// The client uses this name instead of the address of a master behind Sentinels.
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
