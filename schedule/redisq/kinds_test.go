package redisq_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// A URL of a server of another kind, or of one that cannot be trusted, is refused with one line that says what to
// write instead.
func TestServersThatAreRefused(t *testing.T) {
	needsServer(t)
	set := testserver.NewSentinel(t, testserver.SentinelOptions{})
	plain, sentinel := set.Servers[0].Address(), set.Sentinels[0]
	evicting := testserver.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	guarded := strings.TrimPrefix(testserver.StartRedis(t, "--requirepass", "s3cret"), "redis://")
	untrusted := httptest.NewTLSServer(nil)
	defer untrusted.Close()
	secure := strings.TrimPrefix(untrusted.URL, "https://")
	for _, c := range []struct{ url, want string }{
		{"redis://:s3cret@" + sentinel, "redis+sentinel://"},
		{"redis+sentinel://:s3cret@" + plain + "/payments", "redis://"},
		{"redis+sentinel://:s3cret@" + sentinel + "/orders", "name of the master"},
		{"redis+cluster://" + plain, "redis://"},
		{"redis+cluster://:s3cret@" + guarded, "redis://"},
		{testserver.SharedCluster(t).Nodes[0].URL, "redis+cluster"},
		{"rediss://" + secure, "SSL_CERT_FILE"},
		{"redis://" + plain + "/99", "0 to 15"},
		{"rediss+sentinel://" + secure + "/payments", "SSL_CERT_FILE"},
		{"rediss+cluster://" + secure, "SSL_CERT_FILE"},
		{evicting, "allkeys-lru"},
		{"redis://" + guarded, "NOAUTH"},
		{"redis://:wr0ng@" + guarded, "WRONGPASS"},
	} {
		ix, err := redisq.Open(t.Context(), redisq.Options{URL: c.url})
		if err == nil {
			t.Errorf("%s was accepted", c.url)
			ix.Close()
			continue
		}
		text := err.Error()
		tells := strings.Contains(text, "s3cret") || strings.Contains(text, "wr0ng")
		if !strings.Contains(text, c.want) || tells || strings.Contains(text, "\n") {
			t.Errorf("%s: %v; want one line with %q", c.url, err, c.want)
		}
	}
	if err := openAs(t, redisq.Options{URL: "redis://default:s3cret@" + guarded}).Ping(t.Context()); err != nil {
		t.Error(err)
	}

	// Behind the Sentinels it is the master that is used, in the database of that number.
	ix := openAs(t, redisq.Options{URL: "redis+sentinel://" + sentinel + "/payments/3"})
	reset(t, ix, 1)
	n, token := 0, 0
	fill(t, ix, &n, 3, 1, 1)
	if got := claim(t, ix, &token, 3).Leases; len(got) != 3 {
		t.Errorf("claimed %d of 3", len(got))
	}
	direct := openAs(t, redisq.Options{URL: "redis://" + plain + "/3"})
	if generation, err := direct.Generation(context.Background(), 0); generation != 1 || err != nil {
		t.Errorf("the server itself has generation %d in database 3, %v", generation, err)
	}
}

// With the one and without the other a server cannot be told from one that is away; the log says what it may
// be.
func TestServersWithAndWithoutTLS(t *testing.T) {
	needsServer(t)
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	for url, want := range map[string]string{
		"redis" + strings.TrimPrefix(secure.URL, "https"):                      "use rediss instead of redis",
		strings.Replace(testserver.SharedRedis(t), "redis://", "rediss://", 1): "use redis instead of rediss",
	} {
		log := new(journal)
		if openAs(t, redisq.Options{URL: url, Logger: log.logger()}); log.count("WARN", want) != 1 {
			t.Errorf("%s: the log says %s, want %q", url, log, want)
		}
	}
}
