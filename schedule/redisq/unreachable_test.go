package redisq_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// freeAddress returns an address at which nothing listens.
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

// A server that is there again is used at once, however often it was asked for while it was away: what is due
// waits for it.
func TestAServerThatIsBackIsUsedAtOnce(t *testing.T) {
	t.Parallel()
	addr := freeAddress(t)
	ix, err := redisq.Open(t.Context(), redisq.Options{URL: "redis://" + addr})
	if err != nil {
		t.Fatal(err)
	}
	defer ix.Close()
	var asking sync.WaitGroup
	for range 20 * runtime.GOMAXPROCS(0) { // twice as often as there may be connections
		asking.Go(func() {
			if err := ix.Ping(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("without a server: %v", err)
			}
		})
	}
	asking.Wait()
	startProxyAt(t, addr, testserver.SharedRedis(t))
	if err := ix.Ping(t.Context()); err != nil {
		t.Errorf("with a server: %v", err)
	}
}

// A server that is away does not keep a process from starting; operations fail until it is there.
func TestOpenWithoutAServer(t *testing.T) {
	t.Parallel()
	addr := freeAddress(t)
	for _, scheme := range []string{"redis://", "redis+cluster://", "redis+sentinel://"} {
		log := new(journal)
		url := scheme + ":s3cret@" + addr
		if strings.Contains(scheme, "sentinel") {
			url += "/main/0"
		}
		ix, err := redisq.Open(t.Context(), redisq.Options{URL: url, Logger: log.logger()})
		if err != nil {
			t.Errorf("%s: %v", scheme, err)
			continue
		}
		if !strings.Contains(log.String(), "cannot be reached") || strings.Contains(log.String(), "s3cret") {
			t.Errorf("%s: the log says %q", scheme, log.String())
		}
		if _, err := ix.Stats(context.Background(), 0); err == nil || errors.Is(err, schedule.ErrLost) {
			t.Errorf("%s: stats without a server: %v", scheme, err)
		}
		if err := ix.Close(); err != nil {
			t.Errorf("%s: close: %v", scheme, err)
		}
	}
}
