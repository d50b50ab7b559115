package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// redisFacts are the facts of Redis. survey is nil with the embedded index.
type redisFacts struct {
	err    error
	survey *redisq.Survey
}

// readRedis queries Redis.
func readRedis(ctx context.Context, s *config.Settings) redisFacts {
	if s.Embedded() {
		return redisFacts{}
	}
	shards, err := redisq.DefaultShards(s.RedisURL)
	if err != nil {
		return redisFacts{err: err}
	}
	survey, err := redisq.Look(ctx, s.RedisURL, s.RedisPrefix, shards)
	return redisFacts{err: err, survey: survey}
}

func checkRedis(f *facts) diagnosis {
	switch {
	case f.Embedded():
		return fine("not used: the index is embedded")
	case f.index.err != nil:
		return fails("start Redis, or fix host, port, user and password in redis_url; "+
			"until then callbacks are accepted, but not sent", "Redis cannot be used: %s", f.index.err)
	}
	return worst(f.index.survey, checkRedisServer)
}

// ofServers returns a check that runs on every Redis server.
func ofServers(check func(cluster bool, server *redisq.Server) diagnosis) func(*facts) diagnosis {
	return func(f *facts) (d diagnosis) {
		if !f.Embedded() && f.index.err == nil {
			d = worst(f.index.survey, check)
		}
		return d
	}
}

// worst checks each server and returns the worst diagnosis, with the address of the server.
func worst(survey *redisq.Survey, check func(cluster bool, server *redisq.Server) diagnosis) diagnosis {
	rank := []string{statusOK, statusWarning, statusError}
	var out diagnosis
	count := 0
	for i := range survey.Servers {
		server := &survey.Servers[i]
		f := check(survey.Cluster, server)
		if f.Status != statusOK {
			f.Found = server.Addr + ": " + f.Found
		}
		if f.Status == out.Status {
			count++
		}
		if i == 0 || slices.Index(rank, f.Status) > slices.Index(rank, out.Status) {
			out, count = f, 1
		}
	}
	if count > 1 {
		out.Found += fmt.Sprintf(" (and %d more servers)", count-1)
	}
	return out
}

const infoDeniedCure = "allow INFO for the user of redis_url; without it this is not checked: " +
	"Redis must be 6.2 or newer and have maxmemory-policy noeviction"

// checkRedisServer checks what the index needs of a server: its scripts, version 6.2, a master, and a URL
// of the right kind.
func checkRedisServer(cluster bool, server *redisq.Server) diagnosis {
	if server.Scripts != nil {
		return fails("allow scripts (EVAL, EVALSHA) and writes below redis_prefix for the user of redis_url",
			"scripts do not run: %s", server.Scripts)
	}
	if server.Info == nil {
		return warns(infoDeniedCure, "the version is not readable: %s", server.InfoErr)
	}
	version := server.Info["redis_version"]
	switch err := redisq.CheckVersion(version); {
	case err != nil:
		return fails("upgrade Redis to 6.2 or newer", "%s", err)
	case server.Info["role"] == "slave":
		return fails("put the master into redis_url, or use redis+sentinel://",
			"the server is a read-only replica")
	case !cluster && server.Info["redis_mode"] == "cluster":
		return fails("use redis+cluster:// in redis_url", "the server is a node of a Cluster")
	case server.Info["loading"] == "1":
		return warns("wait until Redis has loaded its file", "Redis %s is loading its data", version)
	}
	return fine("Redis %s, %s", version, cmp.Or(server.Info["redis_mode"], "standalone"))
}

// fullMemory is the share of maxmemory from which doctor warns.
const fullMemory = 0.8

// checkRedisMemory checks that Redis never evicts keys, because an eviction loses a part of the index, and
// that there is free memory.
func checkRedisMemory(_ bool, server *redisq.Server) diagnosis {
	if server.Info == nil {
		return warns(infoDeniedCure, "the eviction policy is not readable")
	}
	policy := server.Info["maxmemory_policy"]
	limit, errLimit := strconv.ParseUint(server.Info["maxmemory"], 10, 64)
	used, errUsed := strconv.ParseUint(server.Info["used_memory"], 10, 64)
	switch {
	case policy == "" || errLimit != nil || errUsed != nil:
		return warns(infoDeniedCure, "the eviction policy is not readable")
	case policy != "noeviction" && limit > 0:
		return fails("set maxmemory-policy noeviction; serve does not start without it, because evictions "+
			"damage the index",
			"maxmemory-policy %s with maxmemory %s", policy, console.SizeText(limit))
	case policy != "noeviction":
		return warns("set maxmemory-policy noeviction before maxmemory is set",
			"maxmemory-policy %s; harmless while maxmemory is 0", policy)
	case limit > 0 && float64(used) > fullMemory*float64(limit):
		return warns("raise maxmemory: while Redis is full, callbacks are accepted but not sent. An open "+
			"callback needs about 250 bytes; with the setting horizon, only if it is due within the horizon",
			"%s of %s are used", console.SizeText(used), console.SizeText(limit))
	case limit == 0:
		return fine("noeviction, %s used, no limit", console.SizeText(used))
	}
	return fine("noeviction, %s of %s used", console.SizeText(used), console.SizeText(limit))
}

// checkRedisPersistence checks that Redis can save if it must: else it refuses writes. The index itself
// needs no persistence, because it is rebuilt from SQL.
func checkRedisPersistence(_ bool, server *redisq.Server) diagnosis {
	if server.Info == nil {
		return warns(infoDeniedCure, "the persistence settings are not readable")
	}
	if server.Info["rdb_last_bgsave_status"] == "err" ||
		server.Info["aof_enabled"] == "1" && server.Info["aof_last_write_status"] == "err" {
		return fails("fix the disk of Redis, or turn persistence off (save \"\", appendonly no), which "+
			"dispatcher does not need: Redis refuses writes while it cannot save",
			"the last write to disk failed")
	}
	var kept []string
	if server.Info["aof_enabled"] == "1" {
		kept = append(kept, "AOF")
	}
	if server.Save != "" {
		kept = append(kept, "snapshots ("+server.Save+")")
	}
	switch {
	case len(kept) > 0:
		return fine("%s", strings.Join(kept, ", "))
	case !server.SaveKnown:
		return fine("no AOF; snapshots unknown; neither is needed")
	}
	return fine("off, which is fine: after a restart of Redis, the index is rebuilt from SQL, and " +
		"callbacks are some seconds late")
}

// checkRedisCluster checks that all slots of a Cluster are served: the shards of other slots send nothing.
func checkRedisCluster(f *facts) (d diagnosis) {
	if f.Embedded() || f.index.err != nil || !f.index.survey.Cluster {
		return d
	}
	return worst(f.index.survey, func(_ bool, server *redisq.Server) diagnosis {
		info := server.ClusterInfo
		if info == nil {
			return warns("allow CLUSTER INFO for the user of redis_url; without it this is not checked",
				"the state of the Cluster is not readable")
		}
		if info["cluster_state"] != "ok" || info["cluster_slots_assigned"] != "16384" ||
			info["cluster_slots_fail"] != "0" {
			return fails("repair the Cluster (redis-cli --cluster check, fix): until then, callbacks in the "+
				"lost slots are not sent",
				"state %s, %s of 16384 slots assigned, %s failed", info["cluster_state"],
				info["cluster_slots_assigned"], info["cluster_slots_fail"])
		}
		return fine("state ok, %s masters, all slots served", info["cluster_size"])
	})
}

// checkIndex compares the index of SQL's row with the settings and with the index on Redis.
func checkIndex(s *facts) (d diagnosis) {
	database, index := &s.sql, &s.index
	if s.Embedded() || database.err != nil && !database.absent || database.readErr != nil ||
		index.err != nil {
		return d
	}
	foreign := fmt.Sprintf("this database has no index on Redis, but there is one below the prefix %s",
		s.RedisPrefix)
	const chooseAnother = "the index belongs to another database, or this database replaces another one: " +
		"choose another redis_prefix, or start with --hold and run \"dispatcher verify\" " +
		"before the index is emptied"
	switch err := index.survey.Unread; {
	case errors.Is(err, schedule.ErrOlder) && (database.meta == nil || database.meta.Shards == 0):
		return fails(chooseAnother, "%s: %s", foreign, err)
	case errors.Is(err, schedule.ErrOlder):
		return warns("stop the processes of that build; the first start of this one rebuilds the index "+
			"from SQL", "%s", err)
	case errors.Is(err, schedule.ErrNewer):
		return fails("upgrade this program", "%s", err)
	case err != nil:
		return fails("fix Redis, or allow reads below redis_prefix for the user of redis_url",
			"the index cannot be read: %s", err)
	}
	newest := slices.Max(index.survey.Generations)
	meta := database.meta
	if meta == nil || meta.Shards == 0 {
		if newest > 0 {
			return fails(chooseAnother, "%s", foreign)
		}
		return fine("none yet: the first start creates it")
	}
	shards := len(index.survey.Generations)
	if meta.Prefix != s.RedisPrefix || meta.Shards != shards {
		return fails("use the redis_prefix and redis_url of the other processes of this database; "+
			"otherwise serve does not start",
			"the index of this database has %d shards below the prefix %q, the settings have %d below %q",
			meta.Shards, meta.Prefix, shards, s.RedisPrefix)
	}
	lost := 0
	for _, generation := range index.survey.Generations {
		if generation != meta.Generation {
			lost++
		}
	}
	switch {
	case newest > meta.Generation:
		return fails("if SQL was restored from a backup: start with --hold, run "+
			"\"dispatcher verify --unknown > ids.txt\", and see docs/guide/operations.md; "+
			"a start without --hold empties the index",
			"the index on Redis has a newer generation (%d) than SQL (%d): SQL was restored, or the index "+
				"belongs to another database", newest, meta.Generation)
	case lost > 0:
		return warns("nothing: serve rebuilds them from SQL",
			"%d of %d shards are empty or old: SQL has generation %d", lost, shards, meta.Generation)
	case meta.Built != meta.Generation:
		return warns("nothing: a rebuild is running, or serve continues it",
			"generation %d is not complete", meta.Generation)
	}
	return fine("generation %d in %d shards, as in SQL", meta.Generation, shards)
}

// Limits for the difference between clocks. The index's clock alone decides what is due. But receivers
// compare webhook-timestamp with their own clocks, and they refuse a difference of five minutes.
const (
	clockWarning = time.Second
	clockError   = time.Minute
)

// checkClocks compares the clocks of PostgreSQL and of each Redis server with this machine's clock.
func checkClocks(f *facts) (d diagnosis) {
	database, index := &f.sql, &f.index
	var parts []string
	most := time.Duration(0)
	add := func(name string, ahead, precision time.Duration) {
		parts = append(parts, fmt.Sprintf("%s %+d ms", name, ahead.Milliseconds()))
		most = max(most, ahead.Abs()-precision)
	}
	if database.err == nil && database.settings != nil {
		add("PostgreSQL", database.ahead, database.precision)
	}
	if index.err == nil && index.survey != nil {
		for i := range index.survey.Servers {
			server := &index.survey.Servers[i]
			name := "Redis"
			if len(index.survey.Servers) > 1 {
				name += " at " + server.Addr
			}
			add(name, server.ClockAhead, server.Precision)
		}
	}
	if len(parts) == 0 {
		return d
	}
	found := "compared with this machine: " + strings.Join(parts, ", ")
	const cure = "run a time service (chrony, systemd-timesyncd) on all machines: callbacks fall due by " +
		"the clock of Redis, and receivers refuse signatures that are minutes old"
	switch {
	case most >= clockError:
		return fails(cure, "%s", found)
	case most >= clockWarning:
		return warns(cure, "%s", found)
	}
	return fine("%s", found)
}
