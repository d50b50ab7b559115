package outbound

import (
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A pooled connection records whether it was closed.
type pooled struct {
	*connection
	closed atomic.Bool
}

func newPooled(host string) *pooled {
	ours, theirs := net.Pipe()
	p := &pooled{connection: newConnection(ours, ours, poolKey{"https", host})}
	go func() {
		io.Copy(io.Discard, theirs)
		p.closed.Store(true)
	}()
	return p
}

// TestPool puts connections, named by a host and a number, into a pool and gets them. After each step it
// prints which connections are open and the pool's counts. The clock is fake.
func TestPool(t *testing.T) {
	t.Parallel()
	transcript.File(t, "testdata/pool.txt", func(t *testing.T, text string) string {
		return transcript.Cases(t, text, func(t *testing.T, _, body string) (text string) {
			synctest.Test(t, func(t *testing.T) {
				p, all := newPool(2), make(map[string]*pooled)
				text = transcript.Lines(body, func(line string) string {
					return playPool(p, all, strings.Fields(line))
				})
				for _, l := range all {
					l.close()
				}
			})
			return text
		})
	})
}

func playPool(p *pool, all map[string]*pooled, words []string) string {
	taken := ""
	switch words[0] {
	case "per-host":
		p.perHost, _ = strconv.Atoi(words[1])
	case "put":
		for _, name := range words[1:] {
			if all[name] == nil {
				all[name] = newPooled(strings.TrimRight(name, "0123456789"))
			}
			p.put(all[name].connection)
		}
	case "get":
		l := p.get(poolKey{words[1], words[2]})
		taken = "none; "
		for name, one := range all {
			if one.connection == l {
				taken = name + "; "
			}
		}
	case "pass":
		time.Sleep(duration(words[1]))
	case "sweep-is-late":
		p.mu.Lock()
		p.sweep.Stop()
		p.mu.Unlock()
	case "close":
		p.closeIdle()
	}
	synctest.Wait()
	isClosed := func(name string) bool { return all[name].closed.Load() }
	open := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), isClosed)
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := fmt.Sprintf("%d idle of %d hosts, timer set %v", p.count, len(p.idle), p.sweep != nil)
	return fmt.Sprintf("%sopen: %s; %s", taken, open, counts)
}

func TestPoolMakesRoomForOtherHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(2)
		p.total = 2
		all := []*pooled{newPooled("shop"), newPooled("bank"), newPooled("new")}
		for _, l := range all {
			p.put(l.connection)
		}
		synctest.Wait()
		if all[0].closed.Load() == all[1].closed.Load() || all[2].closed.Load() || p.count != 2 {
			t.Errorf("closed %v, %v and %v, %d idle; want one of the older two closed", all[0].closed.Load(),
				all[1].closed.Load(), all[2].closed.Load(), p.count)
		}
		p.closeIdle()
		if p.count != 0 {
			t.Errorf("%d idle connections after closeIdle", p.count)
		}
	})
}

func TestNoMoreConnectionsThanAttempts(t *testing.T) {
	t.Parallel()
	const atOnce, each = 16, 60
	_, pool := testCertificate(t)
	var conns atomic.Int32
	srv := serveTLS(t, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		conns.Add(1)
		time.Sleep(100 * time.Millisecond) // a slow handshake
		return nil, nil
	}})
	c := newTestClient(t, Options{MaxIdlePerHost: atOnce})
	c.transport.tls.RootCAs = pool
	send := func() {
		if r := c.Send(t.Context(), newRequest(srv.URL)); r.Class != store.ClassOK {
			t.Errorf("%s %s", r.Class, r.Error)
		}
	}
	send() // leaves an idle connection for the attempts to compete for while others are opened
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
		t.Errorf("%d connections for %d attempts, %d concurrent", n, atOnce*each, atOnce)
	}
}
