package harness

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A backend is a database and an index, and where they are. The same backend given to two launches is a
// restart.
type Backend struct {
	Name     string
	Postgres string // URL; empty: SQLite in dataDir
	Redis    string // URL; empty: the embedded index
	// Direct and redisBehind are the URLs that tests use themselves, where a proxy stands in front of the
	// program's.
	Direct, RedisBehind string
	// Server is the Redis of redis, to be killed, stopped and started again; nil with the embedded index.
	Server  *testserver.Redis
	Prefix  string
	DataDir string
}

// Args are the settings that are common to all processes on the backend.
func (b Backend) Args() []string {
	args := []string{"--data-dir", b.DataDir, "--egress-allow", "127.0.0.0/8", "--log-format", "json"}
	if b.Postgres != "" {
		args = append(args, "--database-url", b.Postgres)
	}
	if b.Redis != "" {
		args = append(args, "--redis-url", b.Redis, "--redis-prefix", b.Prefix)
	}
	return args
}

// A combination says which of the four a backend is.
type Combination struct{ Postgres, Redis bool }

func (c Combination) String() string {
	name := "sqlite"
	if c.Postgres {
		name = "postgres"
	}
	if c.Redis {
		return name + "+redis"
	}
	return name + "+embedded"
}

// The combinations of database and index.
var (
	SQLiteEmbedded = Combination{}
	SQLiteRedis    = Combination{Redis: true}
	PostgresOnly   = Combination{Postgres: true}
	PostgresRedis  = Combination{Postgres: true, Redis: true}
	AllFour        = []Combination{SQLiteEmbedded, SQLiteRedis, PostgresOnly, PostgresRedis}
	BothEnds       = []Combination{SQLiteEmbedded, PostgresRedis}
)

// NewBackend makes an empty backend of the combination: a database on the shared PostgreSQL or a file of its
// own, and a Redis of its own, so that a test may empty it.
func NewBackend(tb testing.TB, c Combination) Backend {
	tb.Helper()
	b := Backend{Name: c.String(), DataDir: tb.TempDir(), Prefix: "e2e"}
	if c.Postgres {
		b.Postgres = testserver.SharedPostgres(tb).Database(tb)
	}
	if c.Redis {
		b.Server = testserver.NewRedis(tb)
		b.Redis = b.Server.URL
	}
	return b
}

// OnEach runs a test on each of the combinations, one after another.
func OnEach(t *testing.T, combinations []Combination, test func(*testing.T, Backend)) {
	t.Helper()
	for _, c := range combinations {
		t.Run(c.String(), func(t *testing.T) { test(t, NewBackend(t, c)) })
	}
}
