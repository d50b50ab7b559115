package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestDoctorOnPostgresAndRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	postgres, index := testserver.SharedPostgres(t), apptest.OwnIndex(t)
	on := func(database string, more ...string) []diagnosis {
		return examine(t, slices.Concat(cmdtest.BothKeys(), index, []string{"--database-url=" + database},
			more)...)
	}
	empty, served := postgres.Database(t), apptest.Migrated(t)
	fresh := on(empty)
	for _, check := range []string{
		"database", "database writes", "connections", "redis", "redis memory", "index", "clocks", "admin key",
		"master key",
	} {
		want(t, fresh, check, statusOK)
	}
	want(t, fresh, "migrations", statusWarning, "serve applies them")
	want(t, fresh, "redis persistence", statusOK, "rebuilt from SQL")
	want(t, fresh, "durability", statusError, "fsync") // of the shared server

	r := apptest.Start(t, apptest.Settings(t,
		slices.Concat(cmdtest.BothKeys(), index, []string{"--database-url=" + served})...))
	makeSecrets(t, r)
	testserver.Until(t, "the index is there", func() bool {
		return len(r.Engine.Health(t.Context()).Degraded) == 0
	})
	serving := on(served)
	want(t, serving, "migrations", statusOK, "all")
	want(t, serving, "index", statusOK, "as in SQL")
	want(t, serving, "master key", statusOK, "decrypts all stored secrets")
	r.End(t)
	keys := []string{"--admin-key=0123456789abcdef01234567", "--master-key=" + cmdtest.SomeKey('w')}
	wrong := slices.Concat(index, keys, []string{"--database-url=" + served})
	want(t, examine(t, wrong...), "master key", statusError, "which is missing in the settings")
	want(t, on(served, "--redis-prefix=other"), "index", statusError, "redis_prefix")
	want(t, on(empty), "index", statusError, "--hold")

	for statement, tc := range map[string]struct{ check, word string }{
		"SET default_transaction_read_only = on": {"database writes", "read-only"},
		"CONNECTION LIMIT 5":                     {"connections", "lower database_max_conns"},
	} {
		address := postgres.Database(t)
		if err := postgres.Exec(t.Context(), "ALTER DATABASE "+
			strings.TrimPrefix(apptest.MustURL(t, address).Path, "/")+" "+statement); err != nil {
			t.Fatal(err)
		}
		want(t, on(address), tc.check, statusError, tc.word)
	}
}

func TestDoctorOnOtherRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs real Redis servers")
	}
	ask := func(url string) []diagnosis { return examine(t, "--redis-url="+url) }
	keeping := ask(testserver.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru",
		"--appendonly", "yes"))
	want(t, keeping, "redis memory", statusError, "allkeys-lru", "noeviction")
	want(t, keeping, "redis persistence", statusOK, "AOF")
	nodes := testserver.NewCluster(t, testserver.ClusterOptions{})
	cluster := ask(nodes.URL())
	want(t, cluster, "redis cluster", statusOK, "3 masters")
	want(t, cluster, "redis", statusOK)
	want(t, cluster, "index", statusOK)
	want(t, ask(nodes.Nodes[0].URL), "redis", statusError, "redis+cluster://")
}
