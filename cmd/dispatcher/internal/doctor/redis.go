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

// redisFacts are what doctor learned of Redis; survey is nil with the embedded index.
type redisFacts struct {
	err    error
	survey *redisq.Survey
}

// readRedis asks Redis.
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

func judgeRedis(f *facts) diagnosis {
	switch {
	case f.Embedded():
		return fine("not used: the index is in the process")
	case f.index.err != nil:
		return fails("start Redis, or mend redis_url: host, port, user, password; until it answers "+
			"callbacks are accepted and none is sent", "Redis cannot be used: %s", f.index.err)
	}
	return worst(f.index.survey, judgeRedisServer)
}

// ofServers is a check of every server of Redis.
func ofServers(judge func(cluster bool, server *redisq.Server) diagnosis) func(*facts) diagnosis {
	return func(f *facts) (d diagnosis) {
		if !f.Embedded() && f.index.err == nil {
			d = worst(f.index.survey, judge)
		}
		return d
	}
}

// worst judges each server and returns the worst diagnosis, with the servers that it is about.
func worst(survey *redisq.Survey, judge func(cluster bool, server *redisq.Server) diagnosis) diagnosis {
	rank := []string{statusOK, statusWarning, statusError}
	var out diagnosis
	count := 0
	for i := range survey.Servers {
		server := &survey.Servers[i]
		f := judge(survey.Cluster, server)
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
		out.Found += fmt.Sprintf(" (and %d more servers alike)", count-1)
	}
	return out
}

const untoldCure = "let the user of redis_url run INFO to have this checked; it must be 6.2 or newer with " +
	"maxmemory-policy noeviction"

func judgeRedisServer(cluster bool, server *redisq.Server) diagnosis {
	if server.Scripts != nil {
		return fails("let the user of redis_url run scripts (EVAL, EVALSHA) and write keys under "+
			"redis_prefix", "it runs no scripts: %s", server.Scripts)
	}
	if server.Info == nil {
		return warns(untoldCure, "it does not tell its version: %s", server.InfoErr)
	}
	version := server.Info["redis_version"]
	switch err := redisq.CheckVersion(version); {
	case err != nil:
		return fails("upgrade Redis to 6.2 or newer", "%s", err)
	case server.Info["role"] == "slave":
		return fails("name the master in redis_url, or use redis+sentinel://",
			"it is a replica: it takes no writes")
	case !cluster && server.Info["redis_mode"] == "cluster":
		return fails("use redis+cluster:// in redis_url", "it is a node of a Cluster")
	case server.Info["loading"] == "1":
		return warns("wait: it answers when its file is read", "Redis %s is loading its data", version)
	}
	return fine("Redis %s, %s", version, cmp.Or(server.Info["redis_mode"], "standalone"))
}

// fullMemory is the share of maxmemory from which doctor warns.
const fullMemory = 0.8

func judgeRedisMemory(_ bool, server *redisq.Server) diagnosis {
	if server.Info == nil {
		return warns(untoldCure, "it does not tell its eviction policy")
	}
	policy := server.Info["maxmemory_policy"]
	limit, errLimit := strconv.ParseUint(server.Info["maxmemory"], 10, 64)
	used, errUsed := strconv.ParseUint(server.Info["used_memory"], 10, 64)
	switch {
	case policy == "" || errLimit != nil || errUsed != nil:
		return warns(untoldCure, "it does not tell its eviction policy")
	case policy != "noeviction" && limit > 0:
		return fails("set maxmemory-policy noeviction: an index that Redis evicts parts of loses its "+
			"order; serve refuses to start on it", "maxmemory-policy %s with maxmemory %s", policy,
			console.SizeText(limit))
	case policy != "noeviction":
		return warns("set maxmemory-policy noeviction before anybody sets maxmemory",
			"maxmemory-policy %s; harmless while maxmemory is 0", policy)
	case limit > 0 && float64(used) > fullMemory*float64(limit):
		return warns("raise maxmemory: a full Redis refuses writes; accepting goes on, and sending waits. "+
			"About 250 bytes are needed for each open callback, or with the setting horizon for each that is due within it",
			"%s of %s are used", console.SizeText(used), console.SizeText(limit))
	case limit == 0:
		return fine("noeviction, %s used, no limit", console.SizeText(used))
	}
	return fine("noeviction, %s of %s used", console.SizeText(used), console.SizeText(limit))
}

func judgeRedisPersistence(_ bool, server *redisq.Server) diagnosis {
	if server.Info == nil {
		return warns(untoldCure, "it does not tell whether it keeps its data")
	}
	if server.Info["rdb_last_bgsave_status"] == "err" ||
		server.Info["aof_enabled"] == "1" && server.Info["aof_last_write_status"] == "err" {
		return fails("mend the disk of Redis, or turn persistence off (save \"\", appendonly no): Redis "+
			"refuses writes while it cannot save, and nothing here needs it to",
			"its last write to disk failed")
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
		return fine("no AOF; it does not tell whether it takes snapshots, and neither is needed")
	}
	return warns("none needed: the index is rebuilt from SQL after a restart of Redis, which costs seconds "+
		"of lateness and nothing else", "off: a restart of Redis empties the index")
}

func judgeRedisCluster(f *facts) (d diagnosis) {
	if f.Embedded() || f.index.err != nil || !f.index.survey.Cluster {
		return d
	}
	return worst(f.index.survey, func(_ bool, server *redisq.Server) diagnosis {
		info := server.ClusterInfo
		if info == nil {
			return warns("let the user of redis_url run CLUSTER INFO to have this checked",
				"it does not tell the state of its Cluster")
		}
		if info["cluster_state"] != "ok" || info["cluster_slots_assigned"] != "16384" ||
			info["cluster_slots_fail"] != "0" {
			return fails("mend the Cluster (redis-cli --cluster check, fix): shards in lost slots send "+
				"nothing until they are back",
				"state %s, %s of 16384 slots assigned, %s failed", info["cluster_state"],
				info["cluster_slots_assigned"], info["cluster_slots_fail"])
		}
		return fine("state ok, %s masters, all slots served", info["cluster_size"])
	})
}

// judgeIndex compares what SQL says of the index with what the settings say and what Redis holds.
func judgeIndex(s *facts) (d diagnosis) {
	database, index := &s.sql, &s.index
	if s.Embedded() || database.err != nil && !database.absent || database.readErr != nil ||
		index.err != nil {
		return d
	}
	another := fmt.Sprintf("this database never had an index on Redis, and the prefix %s holds one",
		s.RedisPrefix)
	const chooseAnother = "another database's index is there, or this database is a new one in its place: " +
		"choose another redis_prefix, or start with --hold and look at \"dispatcher verify\" before anything is emptied"
	switch err := index.survey.Unread; {
	case errors.Is(err, schedule.ErrOlder) && (database.meta == nil || database.meta.Shards == 0):
		return fails(chooseAnother, "%s: %s", another, err)
	case errors.Is(err, schedule.ErrOlder):
		return warns("stop the processes of that build; the first start of this one fills the index anew "+
			"from SQL", "%s", err)
	case errors.Is(err, schedule.ErrNewer):
		return fails("upgrade this program", "%s", err)
	case err != nil:
		return fails("mend what is wrong with Redis, or let the user of redis_url read keys under "+
			"redis_prefix", "it cannot be read: %s", err)
	}
	held := slices.Max(index.survey.Generations)
	meta := database.meta
	if meta == nil || meta.Shards == 0 {
		if held > 0 {
			return fails(chooseAnother, "%s", another)
		}
		return fine("none yet: the first start makes it")
	}
	shards := len(index.survey.Generations)
	if meta.Prefix != s.RedisPrefix || meta.Shards != shards {
		return fails("set redis_prefix and redis_url as for the other processes of this database: serve "+
			"refuses to start otherwise",
			"this database's index has %d shards under prefix %q, the settings say %d under %q", meta.Shards,
			meta.Prefix, shards, s.RedisPrefix)
	}
	lost := 0
	for _, generation := range index.survey.Generations {
		if generation != meta.Generation {
			lost++
		}
	}
	switch {
	case held > meta.Generation:
		return fails("if SQL was restored from a backup: start with --hold, keep \"dispatcher verify "+
			"--unknown > ids.txt\", and see docs/guide/operations.md; a start without --hold empties the index",
			"the index on Redis is newer (generation %d) than SQL says (%d): SQL is older than it, or it is another database's", held, meta.Generation)
	case lost > 0:
		return warns("none needed: serve rebuilds it from SQL",
			"%d of %d shards are empty or old: SQL says generation %d", lost, shards, meta.Generation)
	case meta.Built != meta.Generation:
		return warns("none needed: a rebuild is under way, or serve goes on with it",
			"generation %d is not filled to the end", meta.Generation)
	}
	return fine("generation %d in %d shards, as SQL says", meta.Generation, shards)
}

// How far a clock may be off: what is due is decided by the index's clock alone, but receivers compare
// webhook-timestamp with theirs, and refuse from five minutes on.
const (
	clockWarning = time.Second
	clockError   = time.Minute
)

func judgeClocks(f *facts) (d diagnosis) {
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
	found := "against this machine: " + strings.Join(parts, ", ")
	const cure = "run a time service (chrony, systemd-timesyncd) on all of them: what is due follows " +
		"Redis's clock, and receivers refuse signatures that are minutes off"
	switch {
	case most >= clockError:
		return fails(cure, "%s", found)
	case most >= clockWarning:
		return warns(cure, "%s", found)
	}
	return fine("%s", found)
}
