package redisq_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// Whoever names a server of another kind than the URL says is refused with one line that says what to write instead.
func TestServersOfAnotherKind(t *testing.T) {
	needsServer(t)
	set := testserver.NewSentinel(t, testserver.SentinelOptions{})
	plain, sentinel := set.Servers[0].Address(), set.Sentinels[0]
	untrusted := httptest.NewTLSServer(nil)
	defer untrusted.Close()
	secure := strings.TrimPrefix(untrusted.URL, "https://")
	for _, c := range []struct{ url, want string }{
		{"redis://:s3cret@" + sentinel, "redis+sentinel://"},
		{"redis+sentinel://:s3cret@" + plain + "/payments", "redis://"},
		{"redis+sentinel://:s3cret@" + sentinel + "/orders", "name of the master"},
		{"redis+cluster://" + plain, "redis://"},
		{"rediss://" + secure, "SSL_CERT_FILE"},
		{"redis://" + plain + "/99", "0 to 15"},
		{"rediss+sentinel://" + secure + "/payments", "SSL_CERT_FILE"},
		{"rediss+cluster://" + secure, "SSL_CERT_FILE"},
	} {
		log := new(journal)
		ix, err := redisq.Open(context.Background(), redisq.Options{URL: c.url, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err == nil {
			t.Errorf("%s was accepted; the log says %s", c.url, log)
			ix.Close()
			continue
		}
		if text := err.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "s3cret") || strings.Contains(text, "\n") {
			t.Errorf("%s: %v; want one line with %q", c.url, err, c.want)
		}
	}
}

// With the one and without the other a server cannot be told from one that is away; the log says what it may be.
func TestServersWithAndWithoutTLS(t *testing.T) {
	needsServer(t)
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	for url, want := range map[string]string{
		"redis" + strings.TrimPrefix(secure.URL, "https"):                     "use rediss instead of redis",
		strings.Replace(testserver.StartRedis(t), "redis://", "rediss://", 1): "use redis instead of rediss",
	} {
		log := new(journal)
		ix, err := redisq.Open(context.Background(), redisq.Options{URL: url, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := ix.Close(); err != nil || log.count("WARN", want) != 1 {
			t.Errorf("%s: %v; the log says %s, want %q", url, err, log, want)
		}
	}
}
