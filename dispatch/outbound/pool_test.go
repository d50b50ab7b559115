package outbound

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A pooled line is one whose other end tells whether it was closed.
type pooled struct {
	*line
	closed atomic.Bool
}

func newPooled(host string) *pooled {
	ours, theirs := net.Pipe()
	p := &pooled{line: newLine(ours, ours, place{"https", host})}
	go func() {
		io.Copy(io.Discard, theirs)
		p.closed.Store(true)
	}()
	return p
}

// open fails unless exactly those that should be open are.
func open(t *testing.T, all []*pooled, want ...bool) {
	t.Helper()
	synctest.Wait()
	for i, p := range all {
		if p.closed.Load() == want[i] {
			t.Errorf("line %d: open %v, want %v", i, !want[i], want[i])
		}
	}
}

func TestThePoolGivesWhatWasUsedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(2)
		all := []*pooled{newPooled("shop"), newPooled("shop"), newPooled("shop"), newPooled("bank")}
		for _, l := range all {
			p.give(l.line)
			time.Sleep(time.Second)
		}
		open(t, all, true, true, false, true) // two a place
		if got := p.take(place{"https", "shop"}); got != all[1].line {
			t.Error("not the one that was used last")
		}
		if p.take(place{"http", "shop"}) != nil || p.take(place{"https", "other"}) != nil {
			t.Error("a line to another place was given")
		}
		if got := p.take(place{"https", "shop"}); got != all[0].line || p.take(place{"https", "shop"}) != nil {
			t.Error("not the other one, and then none")
		}
		p.close()
		open(t, all, true, true, false, false) // what is in use stays open
		for _, l := range all[:2] {
			l.close()
		}
	})
}

func TestThePoolClosesWhatNobodyUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(8)
		all := []*pooled{newPooled("shop"), newPooled("shop"), newPooled("bank")}
		for _, l := range all {
			p.give(l.line)
			time.Sleep(2 * time.Second)
		}
		open(t, all, false, true, true) // after 6, 4 and 2 s
		time.Sleep(time.Second - time.Millisecond)
		open(t, all, false, true, true)
		time.Sleep(time.Millisecond)
		open(t, all, false, false, true)
		p.give(all[2].line) // twice, but for the test's sake: nothing is taken of it
		time.Sleep(idleTimeout)
		open(t, all, false, false, false)
		if p.kept != 0 || p.sweep != nil || len(p.idle) != 0 {
			t.Errorf("%d are counted, a sweep waits %v, %d places are remembered", p.kept, p.sweep != nil, len(p.idle))
		}
		old := newPooled("shop")
		p.give(old.line)
		p.sweep.Stop() // which is late
		time.Sleep(idleTimeout)
		if p.take(place{"https", "shop"}) != nil {
			t.Error("it was given though nobody had used it for too long")
		}
		open(t, []*pooled{old}, false)
	})
}

func TestThePoolMakesRoomForOtherPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(2)
		p.total = 2
		all := []*pooled{newPooled("shop"), newPooled("bank"), newPooled("new")}
		for _, l := range all {
			p.give(l.line)
		}
		synctest.Wait()
		if all[0].closed.Load() == all[1].closed.Load() || all[2].closed.Load() || p.kept != 2 {
			t.Errorf("closed %v, %v and %v, %d kept; want one of the older two closed", all[0].closed.Load(), all[1].closed.Load(), all[2].closed.Load(), p.kept)
		}
		p.close()
		if p.kept != 0 {
			t.Errorf("%d kept", p.kept)
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
		time.Sleep(100 * time.Millisecond) // how far away it is
		return nil, nil
	}})
	c := newTestClient(t, Options{MaxIdlePerHost: atOnce})
	c.transport.tls.RootCAs = pool
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
