package e2e

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A backend is a database and an index, and where they are. The same backend given to two launches is a restart.
type backend struct {
	name     string
	postgres string // URL; empty: SQLite in dataDir
	redis    string // URL; empty: the embedded index
	// direct and redisBehind are the URLs that tests use themselves, where a proxy stands in front of the program's.
	direct, redisBehind string
	// server is the Redis of redis, to be killed, stopped and started again; nil with the embedded index.
	server  *testserver.Redis
	prefix  string
	dataDir string
}

// args are the settings that are common to all processes on the backend.
func (b backend) args() []string {
	args := []string{"--data-dir", b.dataDir, "--egress-allow", "127.0.0.0/8", "--log-format", "json"}
	if b.postgres != "" {
		args = append(args, "--database-url", b.postgres)
	}
	if b.redis != "" {
		args = append(args, "--redis-url", b.redis, "--redis-prefix", b.prefix)
	}
	return args
}

// A combination says which of the four a backend is.
type combination struct{ postgres, redis bool }

func (c combination) String() string {
	name := "sqlite"
	if c.postgres {
		name = "postgres"
	}
	if c.redis {
		return name + "+redis"
	}
	return name + "+embedded"
}

// The combinations of database and index.
var (
	embedded     = combination{}
	sqliteRedis  = combination{redis: true}
	postgresOnly = combination{postgres: true}
	full         = combination{postgres: true, redis: true}
	allFour      = []combination{embedded, sqliteRedis, postgresOnly, full}
	bothEnds     = []combination{embedded, full}
)

// Servers are the real ones that backends share; each backend has a database and a Redis of its own.
type servers struct{ postgres *testserver.Postgres }

// startServers starts what the combination needs and what all backends of a test may share.
func startServers(tb testing.TB, c combination) servers {
	tb.Helper()
	var s servers
	if c.postgres {
		s.postgres = testserver.NewPostgres(tb)
	}
	return s
}

// backend makes an empty backend of the combination. Redis is one server for each, so that it can be emptied.
func (s servers) backend(tb testing.TB, c combination) backend {
	tb.Helper()
	b := backend{name: c.String(), dataDir: tb.TempDir(), prefix: "e2e"}
	if c.postgres {
		b.postgres = s.postgres.Database(tb)
	}
	if c.redis {
		b.server = testserver.NewRedis(tb)
		b.redis = b.server.URL
	}
	return b
}

// on runs a test on each of the combinations, one after another.
func on(t *testing.T, combinations []combination, test func(*testing.T, backend)) {
	t.Helper()
	for _, c := range combinations {
		t.Run(c.String(), func(t *testing.T) { test(t, startServers(t, c).backend(t, c)) })
	}
}

// redisClient opens the backend's Redis, to look into it or to break it.
func (b backend) redisClient(tb testing.TB) *redis.Client {
	tb.Helper()
	return redisClientOf(tb, b.redisDirect())
}

// redisClientOf opens the Redis of that URL.
func redisClientOf(tb testing.TB, url string) *redis.Client {
	tb.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		tb.Fatal(err)
	}
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c := redis.NewClient(options)
	tb.Cleanup(func() { c.Close() })
	return c
}
