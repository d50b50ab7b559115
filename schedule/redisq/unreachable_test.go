package redisq_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// A server that is away does not keep a process from starting; operations fail until it is there.
func TestOpenWithoutAServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
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
