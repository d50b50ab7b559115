package redisq_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// TestOpenRefusesServers checks the error, one line with a fix, for a server of the wrong kind or an unsafe
// one. An unreachable server is no error: operations fail until it answers. With the wrong choice of TLS a
// server looks unreachable, so the log has a hint.
func TestOpenRefusesServers(t *testing.T) {
	needsServer(t)
	set := testserver.NewSentinel(t, testserver.SentinelOptions{})
	plain, sentinel := set.Servers[0].Address(), set.Sentinels[0]
	evicting := testserver.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	guarded := strings.TrimPrefix(testserver.StartRedis(t, "--requirepass", "s3cret"), "redis://")
	untrusted := httptest.NewTLSServer(nil)
	defer untrusted.Close()
	secure := strings.TrimPrefix(untrusted.URL, "https://")
	names := []string{
		"SENTINEL", sentinel, "PLAIN", plain, "GUARDED", guarded, "SECURE", secure,
		"AWAY", freeAddress(t), "EVICTING", strings.TrimPrefix(evicting, "redis://"),
		"NODE", strings.TrimPrefix(testserver.SharedCluster(t).Nodes[0].URL, "redis://"),
	}
	addresses := strings.NewReplacer(names...)
	slices.Reverse(names)
	logged := regexp.MustCompile(`(?m)^.* level=(.*) msg="(.*?)" error=.*?( hint=".*")?\n$`)
	unknown := regexp.MustCompile(`ERR unknown command .*(: these)`) // servers word it in several ways
	transcript.Run(t, "testdata/refused/urls.txt", func(line string) string {
		log := new(journal)
		ix, err := redisq.Open(t.Context(), redisq.Options{URL: addresses.Replace(line),
			Logger: log.logger()})
		text := logged.ReplaceAllString(log.String(), "accepted, $1 $2$3")
		if err != nil {
			text = strings.NewReplacer(names...).Replace(err.Error())
		} else {
			if _, err := ix.Stats(t.Context(), 0); err == nil || errors.Is(err, schedule.ErrLost) {
				t.Errorf("%s: stats without a server: %v", line, err)
			}
			if err := ix.Close(); err != nil {
				t.Errorf("%s: close: %v", line, err)
			}
		}
		all := text + log.String()
		leaked := strings.Contains(all, "s3cret") || strings.Contains(all, "wr0ng")
		if leaked || strings.Contains(text, "\n") {
			t.Errorf("%s has a secret, or several lines: %s", line, all)
		}
		return unknown.ReplaceAllString(text, "ERR unknown command …$1")
	})
	withPassword := openAs(t, redisq.Options{URL: "redis://default:s3cret@" + guarded})
	if err := withPassword.Ping(t.Context()); err != nil {
		t.Error(err)
	}

	// Behind Sentinels the index uses the master, in the database of that number.
	ix := openAs(t, redisq.Options{URL: "redis+sentinel://" + sentinel + "/payments/3"})
	reset(t, ix, 1)
	ensure(t, ix, schedule.Item{ID: id(1), Lane: 1})
	direct := openAs(t, redisq.Options{URL: "redis://" + plain + "/3"})
	if generation, err := direct.Generation(context.Background(), 0); generation != 1 || err != nil {
		t.Errorf("the server itself has generation %d in database 3, %v", generation, err)
	}
}

// watched opens an index that checks its servers ten times a second, and runs it.
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

// TestPolicyIsWatched changes the eviction policy while the index runs. The log, the metric and the warnings
// show the problem once, with the fix, and its end once.
func TestPolicyIsWatched(t *testing.T) {
	// not a shared server, because it is reconfigured
	eachServer(t, watchesPolicy, "--maxmemory-policy", "noeviction")
}

func watchesPolicy(t *testing.T, url string) {
	ix, log, registry := watched(t, url, 1)
	reset(t, ix, 1)
	if got := ix.Warnings(); got != nil {
		t.Fatalf("warnings of a sound server: %v", got)
	}
	expectMetric(t, registry, "dispatcher_index_unsafe", 0)

	// Without maxmemory nothing is evicted yet.
	do(t, ix, "config", "set", "maxmemory-policy", "allkeys-lru")
	testserver.Until(t, "the policy to be noticed", func() bool {
		return log.count("WARN", "once maxmemory is set", "allkeys-lru") == 1
	})
	if got := ix.Warnings(); got != nil {
		t.Errorf("warnings without a limit: %v", got)
	}
	do(t, ix, "config", "set", "maxmemory", "200mb")
	testserver.Until(t, "the limit to be noticed", func() bool { return len(ix.Warnings()) == 1 })
	got := ix.Warnings()[0]
	if !strings.Contains(got, "set maxmemory-policy noeviction") || !strings.Contains(got, "allkeys-lru") {
		t.Errorf("the warning is %q", got)
	}
	expectMetric(t, registry, "dispatcher_index_unsafe", 1)
	do(t, ix, "config", "set", "maxmemory-policy", "noeviction")
	testserver.Until(t, "the cure to be noticed", func() bool { return ix.Warnings() == nil })
	testserver.Until(t, "the cure to be logged", func() bool { return log.count("INFO", "safe") == 1 })
	expectMetric(t, registry, "dispatcher_index_unsafe", 0)
	if log.count("ERROR", "may evict") != 1 || log.count("WARN", "once maxmemory is set") != 1 {
		t.Errorf("each change is logged once:\n%s", log)
	}
}

// TestServerThatDeniesInfo checks that an index works for a user who may not run INFO, and that the log says
// once that the policy is not watched. The index also works without the channel, when all hints are lost.
func TestServerThatDeniesInfo(t *testing.T) {
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
		const works = "ensure a1..a3\n  a1..a3: absent\nrounds 1\n  lane1: 3 fresh, 0 retries\n"
		if got := queuetest.NewTranscript(t, harness(t, ix)).Play(works); got != works {
			t.Errorf("%s: got\n%s", name, got)
		}
		refused := func() int {
			rejected, err := commands(t.Context(), admin, "rejected_calls")
			if err != nil {
				t.Fatal(err)
			}
			return rejected["info"]
		}
		before := refused()
		testserver.Until(t, "three more looks", func() bool { return refused() >= before+3 })
		if log.count("WARN", "does not report", "noeviction") != 1 || strings.Contains(log.String(), "pw@") {
			t.Errorf("%s: the log says\n%s", name, log)
		}
		if got := ix.Warnings(); got != nil {
			t.Errorf("%s: warnings without INFO: %v", name, got)
		}
		expectMetric(t, registry, "dispatcher_index_unsafe", 0)
	}
}

// freeAddress returns an address without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// TestAServerThatIsBackIsUsedAtOnce checks that an index uses a recovered server at once, however many calls
// failed before.
func TestAServerThatIsBackIsUsedAtOnce(t *testing.T) {
	t.Parallel()
	addr := freeAddress(t)
	ix, err := redisq.Open(t.Context(), redisq.Options{URL: "redis://" + addr})
	if err != nil {
		t.Fatal(err)
	}
	defer ix.Close()
	var asking sync.WaitGroup
	for range 20 * runtime.GOMAXPROCS(0) { // twice the connections of the pool
		asking.Go(func() {
			if err := ix.Ping(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("without a server: %v", err)
			}
		})
	}
	asking.Wait()
	startProxy(t, addr, testserver.SharedRedis(t))
	if err := ix.Ping(t.Context()); err != nil {
		t.Errorf("with a server: %v", err)
	}
}

// TestTemporaryErrors replays the error replies of servers that cannot work at present. Such a reply fails
// only the calls of that time, and a process can still start.
func TestTemporaryErrors(t *testing.T) {
	needsServer(t)
	p := startProxy(t, "127.0.0.1:0", testserver.SharedRedis(t))
	transcript.Run(t, "testdata/temporary/errors.txt", func(answer string) string {
		s := queuetest.NewTranscript(t, frozen(open(t, p.url, 1)))
		s.Play("ensure a\n")
		p.answerWith(answer)
		said := s.Play("ensure a\nclaim\nsettle a,ack\nacquire a,lock=k,token=t\nopen\nreset\n")
		log := new(journal)
		ix, err := redisq.Open(t.Context(), redisq.Options{URL: p.url, Logger: log.logger()})
		said += fmt.Sprintf("a start: %v, %d warnings\n", err, log.count("WARN", "unreachable at start"))
		p.answerWith("")
		if err == nil {
			said += fmt.Sprintln("close:", ix.Close())
		}
		testserver.Until(t, "the index to work again", func() bool {
			_, err := s.Index.Stats(t.Context(), 0)
			return err == nil
		})
		said += s.Play("ensure a\nclaim\naudit\n")
		return strings.NewReplacer(answer, "THAT", strings.TrimPrefix(p.url, "redis://"),
			"ADDRESS").Replace(said)
	})
}
