package outbound

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestNoMoreConnectionsThanAttempts(t *testing.T) {
	t.Parallel()
	const atOnce, each = 16, 60
	ours := newAuthority(t)
	var conns atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "success") }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	srv.TLS = &tls.Config{
		Certificates: []tls.Certificate{ours.issue(t, time.Now().Add(time.Hour), "127.0.0.1")},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			time.Sleep(100 * time.Millisecond) // how far away it is
			return nil, nil
		},
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	c := newTestClient(t, Options{MaxIdlePerHost: atOnce})
	c.transport.tls.RootCAs = ours.pool
	send := func() {
		if r := c.Send(t.Context(), newRequest(srv.URL)); r.Class != store.ClassOK {
			t.Errorf("%s %s", r.Class, r.Error)
		}
	}
	send() // so that there is a connection that can be passed around while others are opened
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for range each {
				send()
			}
		})
	}
	wg.Wait()
	if n := conns.Load(); n > atOnce {
		t.Errorf("%d connections for %d attempts, %d at once", n, atOnce*each, atOnce)
	}
}
