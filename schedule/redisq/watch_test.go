package redisq_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// watched opens an index that watches ten times a second, and lets it run.
func watched(t *testing.T, url string, shards int) (*redisq.Index, *journal, *prometheus.Registry) {
	t.Helper()
	j, registry := new(journal), prometheus.NewRegistry()
	ix, err := redisq.Open(context.Background(), redisq.Options{
		URL: url, Shards: shards, Registerer: registry, Logger: j.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ix.WatchEvery(100 * time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ix.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, ix.Close()); err != nil {
			t.Error(err)
		}
	})
	return ix, j, registry
}

func expectMetric(t *testing.T, registry *prometheus.Registry, name string, want float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			if got := m.GetGauge().GetValue() + m.GetCounter().GetValue(); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
			return
		}
	}
	t.Errorf("there is no %s", name)
}

// Somebody lets the server evict while it runs: it is said once, with the cure, in the log, the metric and
// the warnings; and once when it is over.
func TestPolicyIsWatched(t *testing.T) {
	eachServer(t, watchesPolicy, "--maxmemory-policy", "noeviction") // a server of its own: it is reconfigured
}

func watchesPolicy(t *testing.T, url string) {
	ix, log, registry := watched(t, url, 1)
	reset(t, ix, 1)
	if got := ix.Warnings(); got != nil {
		t.Fatalf("warnings of a sound server: %v", got)
	}
	expectMetric(t, registry, "dispatcher_index_unsafe", 0)

	// Without a limit nothing is dropped yet.
	do(t, ix, "config", "set", "maxmemory-policy", "allkeys-lru")
	testserver.Until(t, "the policy to be noticed", func() bool { return log.count("WARN", "once it has a maxmemory", "allkeys-lru") == 1 })
	if got := ix.Warnings(); got != nil {
		t.Errorf("warnings without a limit: %v", got)
	}
	do(t, ix, "config", "set", "maxmemory", "200mb")
	testserver.Until(t, "the limit to be noticed", func() bool { return len(ix.Warnings()) == 1 })
	if got := ix.Warnings()[0]; !strings.Contains(got, "set maxmemory-policy noeviction") || !strings.Contains(got, "allkeys-lru") {
		t.Errorf("the warning is %q", got)
	}
	expectMetric(t, registry, "dispatcher_index_unsafe", 1)
	do(t, ix, "config", "set", "maxmemory-policy", "noeviction")
	testserver.Until(t, "the cure to be noticed", func() bool { return ix.Warnings() == nil })
	testserver.Until(t, "the cure to be logged", func() bool { return log.count("INFO", "trusted") == 1 })
	expectMetric(t, registry, "dispatcher_index_unsafe", 0)
	if log.count("ERROR", "would drop") != 1 || log.count("WARN", "once it has") != 1 {
		t.Errorf("each change is logged once:\n%s", log)
	}
}

// A user that may not ask for the policy is served, and the log says once that it is not watched. Nor is a
// channel needed: hints may be lost, all of them.
func TestServerThatDoesNotTell(t *testing.T) {
	needsServer(t)
	raw := testserver.StartRedis(t)
	admin := openAs(t, redisq.Options{URL: raw, Prefix: "admin"})
	do(t, admin, "config", "set", "maxmemory", "200mb")
	do(t, admin, "config", "set", "maxmemory-policy", "allkeys-lru")
	for _, user := range [][]any{
		{"noinfo", "on", ">pw", "~*", "&*", "+@all", "-info", "-config"},
		{"strict", "on", ">pw", "~dispatcher:*", "&dispatcher:*", "+@all", "-@admin", "-@dangerous"},
		{"deaf", "on", ">pw", "~*", "resetchannels", "+@all", "-info", "-config"},
	} {
		do(t, admin, append([]any{"acl", "setuser"}, user...)...)
		name := user[0].(string)
		ix, log, registry := watched(t, strings.Replace(raw, "redis://", "redis://"+name+":pw@", 1), 1)
		reset(t, ix, 1)
		n, token := 0, 0
		fill(t, ix, &n, 3, 1, 1)
		settleAll(t, ix, claim(t, ix, &token, 3).Leases)
		refused := func() int { return commands(t, admin, "rejected_calls")["info"] }
		before := refused()
		testserver.Until(t, "three more looks", func() bool { return refused() >= before+3 })
		if log.count("WARN", "does not tell", "noeviction") != 1 || strings.Contains(log.String(), "pw@") {
			t.Errorf("%s: the log says\n%s", name, log)
		}
		if got := ix.Warnings(); got != nil {
			t.Errorf("%s: warnings of what cannot be known: %v", name, got)
		}
		expectMetric(t, registry, "dispatcher_index_unsafe", 0)
	}
}
