package harness

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Proxy stands between the program and one TCP server, such as Redis or PostgreSQL, and breaks the
// connections. The program gets the proxy's address, while tests connect to the server directly. Only one of
// Hang and Refuse is in force at a time, and Pass ends both; Slow and Swallow combine with either. A hung
// proxy keeps what a client sent, and the server gets it after Pass, even if the client gave up long ago.
// Packets after a real partition arrive in the same way.
type Proxy struct {
	tb      testing.TB
	Address string // host:port that it listens on
	Server  string // host:port that it forwards to

	Mu       sync.Mutex
	listener net.Listener  // nil: refused
	gate     chan struct{} // closed: everything passes
	pairs    map[*pair]struct{}
	latency  time.Duration
	when     func(request []byte) bool
	after    int
	group    sync.WaitGroup
	done     chan struct{}
}

// A pair is a client's connection and the matching one to the server.
type pair struct {
	client, server net.Conn
	mu             sync.Mutex
	swallowing     bool
	left           int // bytes of the swallowed reply that still pass
}

// StartProxy listens on a free port and forwards everything until the test's end.
func StartProxy(tb testing.TB, server string) *Proxy {
	tb.Helper()
	p := &Proxy{
		tb: tb, Server: server, pairs: map[*pair]struct{}{}, gate: make(chan struct{}),
		done:    make(chan struct{}),
		Address: "127.0.0.1:" + testserver.FreePort(tb),
	}
	close(p.gate)
	if err := p.listen(); err != nil {
		tb.Fatalf("start a proxy: %v", err)
	}
	tb.Cleanup(func() {
		close(p.done)
		p.Refuse()
		p.group.Wait()
	})
	return p
}

// InFrontOf starts a proxy to the server of a URL, and returns it with the URL of the proxy.
func InFrontOf(tb testing.TB, raw string) (*Proxy, string) {
	tb.Helper()
	u, err := url.Parse(raw)
	Check(tb, err)
	p := StartProxy(tb, u.Host)
	u.Host = p.Address
	return p, u.String()
}

// Pass ends Hang and Refuse.
func (p *Proxy) Pass() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
	if p.listener == nil {
		if err := p.listen(); err != nil {
			p.tb.Errorf("the proxy cannot listen again: %v", err)
		}
	}
}

// Hang stops forwarding in both directions. Connections stay open, and new ones are accepted.
func (p *Proxy) Hang() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default:
	}
}

// Refuse cuts all connections and closes the port, as if the server had ended.
func (p *Proxy) Refuse() {
	p.Mu.Lock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.Mu.Unlock()
	p.Cut()
}

// Cut ends all connections. New ones are accepted.
func (p *Proxy) Cut() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for c := range p.pairs {
		c.close()
	}
}

// Slow delays each piece of data by latency. Zero ends the delay.
func (p *Proxy) Slow(latency time.Duration) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.latency = latency
}

// Swallow hides replies: the server executes each request that `when` picks, the client gets `after` bytes of
// the reply, and the connection is cut. So the client cannot know whether the request was executed. A request
// is the bytes of one read, which is a whole command unless it is large. `when` runs under the proxy's lock.
// nil ends the fault.
func (p *Proxy) Swallow(when func(request []byte) bool, after int) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.when, p.after = when, after
}

// listen requires the lock, except in StartProxy.
func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.Address)
	if err != nil {
		return err
	}
	p.listener = l
	p.group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // Refuse closed the listener
			}
			p.group.Go(func() { p.forward(conn) })
		}
	})
	return nil
}

// forward serves one connection until its end.
func (p *Proxy) forward(client net.Conn) {
	defer client.Close()
	if !p.wait() {
		return
	}
	server, err := net.Dial("tcp", p.Server)
	if err != nil {
		return // the client sees its connection end, as behind any proxy
	}
	c := &pair{client: client, server: server}
	p.Mu.Lock()
	p.pairs[c] = struct{}{}
	refused := p.listener == nil
	p.Mu.Unlock()
	if refused {
		c.close()
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(client, server, c.request(p)) })
	both.Go(func() { p.pump(server, client, c.reply) })
	both.Wait()
	c.close()
	p.Mu.Lock()
	delete(p.pairs, c)
	p.Mu.Unlock()
}

// wait blocks while the proxy hangs. It returns false at the test's end.
func (p *Proxy) wait() bool {
	p.Mu.Lock()
	gate := p.gate
	p.Mu.Unlock()
	select {
	case <-gate:
		return true
	case <-p.done:
		return false
	}
}

// pump copies one direction. look gets each piece and returns how many bytes to pass on, and whether the
// connection stays open.
func (p *Proxy) pump(from, to net.Conn, look func([]byte) (pass int, on bool)) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !p.wait() {
				break
			}
			p.Mu.Lock()
			pause := p.latency
			p.Mu.Unlock()
			if pause > 0 {
				time.Sleep(pause)
			}
			pass, on := look(buffer[:n])
			if _, err := to.Write(buffer[:pass]); err != nil || !on {
				break
			}
		}
		if err == io.EOF {
			if tcp, ok := to.(*net.TCPConn); ok {
				tcp.CloseWrite() // the other direction may still send
			}
			return
		}
		if err != nil {
			break
		}
	}
	// Close both ends: otherwise the other direction would wait for data that never comes.
	from.Close()
	to.Close()
}

// request inspects the data for the server.
func (c *pair) request(p *Proxy) func([]byte) (int, bool) {
	return func(b []byte) (int, bool) {
		p.Mu.Lock()
		hide, after := p.when != nil && p.when(b), p.after
		p.Mu.Unlock()
		if hide {
			c.mu.Lock()
			c.swallowing, c.left = true, after
			c.mu.Unlock()
		}
		return len(b), true
	}
}

// reply inspects the data for the client. The client sends its next request only after the reply to the last
// one.
func (c *pair) reply(b []byte) (pass int, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.swallowing {
		return len(b), true
	}
	pass = min(len(b), c.left)
	c.left -= pass
	return pass, pass == len(b) && pass > 0 // cut only when the dropped part has arrived
}

func (c *pair) close() {
	c.client.Close() // a second close is harmless
	c.server.Close()
}
