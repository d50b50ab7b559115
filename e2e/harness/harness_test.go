package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestMain(m *testing.M) { Main(m) }

// Reconciliation finds a callback that the API accepted and SQL does not have.
func TestReconciliationFindsMissingCallbacks(t *testing.T) {
	b := NewBackend(t, SQLiteEmbedded)
	r := NewReceiver(t, Always(Reply{}))
	p := Serve(t, Launch{On: b})
	for i := range 20 {
		ref := fmt.Sprint("order-", i)
		p.Post("/v1/callbacks", Submission{"url": r.URL, "ref": ref, "payload": Payload(ref)}, nil)
	}
	// The result callback of a poll is in SQL without a separate response. It must not make up for a
	// missing callback.
	p.Post("/v1/polls", Submission{
		"ref": "order-poll", "request": Submission{"url": r.URL}, "policy": Tiers("1s", "1h"),
		"until":     Submission{"success": []Submission{{"status": []int{200}}}},
		"on_result": Submission{"url": r.URL},
	}, nil)
	Await(t, p.Client, time.Minute)
	Eventually(t, reconcileTimeout, "the counts agree",
		func() error { return p.compareCounts(t.Context(), p.accounts) })
	var wrong accounts
	wrong.accepted.Store(22)
	if err := p.compareCounts(t.Context(), &wrong); err == nil {
		t.Error("a missing callback is not found")
	}
	// The counters find a callback that is missing in SQL.
	db := b.Database(t)
	_, err := db.ExecContext(t.Context(), `DELETE FROM callbacks
		WHERE id IN (SELECT id FROM requests WHERE ref = 'order-7')`)
	Check(t, err)
	if err := p.compareCounts(t.Context(), &accounts{}); err == nil {
		t.Error("a callback deleted in SQL is not found")
	}
	b.SkipReconciliation("the test deletes a callback in SQL")
}

var errNotBroken = errors.New("not yet")

// The proxy breaks exactly what its methods promise.
func TestProxyFaults(t *testing.T) {
	server := testserver.StartRedis(t)
	p, through := InFrontOf(t, server)
	direct, client := proxyClient(t, server), proxyClient(t, through)
	increase := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return client.Incr(ctx, "n").Err()
	}
	holds := func(want int) {
		t.Helper()
		Eventually(t, 5*time.Second, "the server counts", func() error {
			if n, err := direct.Get(t.Context(), "n").Int(); err != nil || n != want {
				return errors.Join(err, errNotBroken)
			}
			return nil
		})
	}
	Check(t, increase(5*time.Second))
	holds(1)

	p.Swallow(func(request []byte) bool { return bytes.Contains(request, []byte("incr")) }, 0)
	if err := increase(5 * time.Second); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a swallowed reply gave %v, want a connection that was cut", err)
	}
	holds(2) // executed, though its reply was swallowed
	p.Swallow(nil, 0)

	Check(t, increase(5*time.Second)) // on a connection that was open before
	holds(3)
	p.Hang()
	if err := increase(200 * time.Millisecond); err == nil {
		t.Error("a reply came through a proxy that hangs")
	}
	holds(3)
	p.Pass()
	holds(4) // as after a partition, the server gets what was sent
	Check(t, increase(5*time.Second))
	holds(5)

	p.Refuse()
	if _, err := net.DialTimeout("tcp", p.Address, time.Second); err == nil {
		t.Error("a proxy that refuses took a connection")
	}
	p.Pass()
	Check(t, increase(5*time.Second))
	holds(6)

	p.Slow(100 * time.Millisecond)
	began := time.Now()
	Check(t, increase(5*time.Second))
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("100 ms each way took %s", took)
	}
	p.Slow(0)
	holds(7)
	// The Redis client checks an idle connection before use and would open another, so this part uses a plain
	// one.
	conn, err := net.Dial("tcp", p.Address)
	Check(t, err)
	defer conn.Close()
	Check(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	answer := make([]byte, len("+PONG\r\n"))
	_, err = io.WriteString(conn, "PING\r\n")
	Check(t, err)
	_, err = io.ReadFull(conn, answer)
	Check(t, err)
	p.Cut()
	if n, err := conn.Read(answer); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that was cut gave %d bytes and %v, want its end", n, err)
	}
	Check(t, increase(5*time.Second))
	holds(8)
}

// proxyClient never retries, and has one connection.
func proxyClient(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	Check(t, err)
	options.MaxRetries, options.PoolSize, options.ContextTimeoutEnabled, options.Protocol,
		options.DisableIdentity = -1, 1, true, 2, true
	c := redis.NewClient(options)
	t.Cleanup(func() { c.Close() })
	return c
}
