package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// doctorOn examines PostgreSQL and Redis with keys that are set.
func doctorOn(t *testing.T, database, redis string, more ...string) []diagnosis {
	t.Helper()
	return examine(t, append([]string{"--database-url=" + database, "--redis-url=" + redis, "--admin-key=0123456789abcdef", "--master-key=" + someKey('m')}, more...)...)
}

func TestDoctorOnPostgresAndRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	postgres, redis := testserver.NewPostgres(t), testserver.StartRedis(t)
	fresh := doctorOn(t, postgres.Database(t), redis)
	for _, check := range []string{"database", "database writes", "connections", "redis", "redis memory", "index", "clocks", "admin key", "master key"} {
		want(t, fresh, check, statusOK)
	}
	want(t, fresh, "migrations", statusWarning, "serve applies them")
	want(t, fresh, "redis persistence", statusWarning, "rebuilt from SQL")

	r := startServer(t, testSettings(t, "--database-url="+postgres.URL(), "--redis-url="+redis, "--admin-key=0123456789abcdef", "--master-key="+someKey('m')))
	if _, err := r.cl.call(t.Context(), "GET", "/v1/secret?lane=x", nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.cl.call(t.Context(), "POST", "/v1/endpoints", map[string]string{"url": "https://example.com/"}, nil); err != nil {
		t.Fatal(err) // it has a secret of its own
	}
	until(t, "the index is there", func() bool { return len(r.engine.Health(t.Context()).Degraded) == 0 })
	serving := doctorOn(t, postgres.URL(), redis)
	want(t, serving, "migrations", statusOK, "all")
	want(t, serving, "index", statusOK, "as SQL says")
	want(t, serving, "master key", statusOK, "decrypts all 2 stored secrets")
	want(t, serving, "durability", statusOK, "fsync on")
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
	want(t, examine(t, "--database-url="+postgres.URL(), "--redis-url="+redis, "--admin-key=0123456789abcdef", "--master-key="+someKey('w')), "master key", statusError, "cannot be decrypted")
	want(t, doctorOn(t, postgres.URL(), redis, "--redis-prefix=other"), "index", statusError, "redis_prefix")
	want(t, doctorOn(t, postgres.Database(t), redis), "index", statusError, "--hold")

	for statement, tc := range map[string]struct{ check, word string }{
		"SET default_transaction_read_only = on": {"database writes", "read-only"},
		"SET synchronous_commit = off":           {"durability", "synchronous_commit"},
		"CONNECTION LIMIT 5":                     {"connections", "lower database_max_conns"},
	} {
		address := postgres.Database(t)
		if err := postgres.Exec(t.Context(), "ALTER DATABASE "+strings.TrimPrefix(mustURL(t, address).Path, "/")+" "+statement); err != nil {
			t.Fatal(err)
		}
		want(t, doctorOn(t, address, redis), tc.check, statusError, tc.word)
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestDoctorOnOtherRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs real Redis servers")
	}
	ask := func(url string) []diagnosis { return examine(t, "--redis-url="+url) }
	evicting := ask(testserver.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
	want(t, evicting, "redis memory", statusError, "allkeys-lru", "noeviction")
	dir := t.TempDir()
	keeping := ask(testserver.StartRedis(t, "--appendonly", "yes", "--dir", dir))
	want(t, keeping, "redis persistence", statusOK, "AOF")
	nodes := testserver.NewCluster(t, testserver.ClusterOptions{})
	cluster := ask(nodes.URL())
	want(t, cluster, "redis cluster", statusOK, "3 masters")
	want(t, cluster, "redis", statusOK)
	want(t, cluster, "index", statusOK)
	want(t, ask(nodes.Nodes[0].URL), "redis", statusError, "redis+cluster://")
}
