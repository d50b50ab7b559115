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

// A proxy stands between the program and one server (Redis, PostgreSQL: anything on TCP) and breaks what goes
// through it. The program is given the proxy's address; tests look at the server itself. One fault is in
// force at a time, except that slow and swallow go with any; pass ends hang and refuse. What a client sent
// into a proxy that hangs is kept, and reaches the server when the proxy passes again, even if that client
// has long given up: so do packets after a real partition.
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

// A pair is one connection of a client and its own one to the server.
type pair struct {
	client, server net.Conn
	mu             sync.Mutex
	swallowing     bool
	left           int // bytes of the swallowed reply that still pass
}

// StartProxy listens on a port of its own and forwards everything, until the test's end.
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

// InFrontOf starts a proxy to the server of that URL, and returns it with the URL that leads through it.
func InFrontOf(tb testing.TB, raw string) (*Proxy, string) {
	tb.Helper()
	u, err := url.Parse(raw)
	Check(tb, err)
	p := StartProxy(tb, u.Host)
	u.Host = p.Address
	return p, u.String()
}

// Pass ends hang and refuse.
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

// Hang forwards nothing any more, in either direction; connections stay open and new ones are accepted.
func (p *Proxy) Hang() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default:
	}
}

// Refuse cuts all connections and closes the port, as a server that has ended.
func (p *Proxy) Refuse() {
	p.Mu.Lock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.Mu.Unlock()
	p.Cut()
}

// Cut ends all connections; new ones are welcome.
func (p *Proxy) Cut() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for c := range p.pairs {
		c.close()
	}
}

// Slow delays each piece of data; zero ends it.
func (p *Proxy) Slow(latency time.Duration) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.latency = latency
}

// Swallow lets each request that `when` picks be executed, passes `after` bytes of the reply, drops the rest,
// and cuts the connection: the client cannot know whether the server did it. It sees a request as the bytes
// that came at once, which is a whole command unless it is large. `when` is called under the proxy's lock;
// nil ends it.
func (p *Proxy) Swallow(when func(request []byte) bool, after int) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.when, p.after = when, after
}

// listen needs the lock, except at the start.
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
				return // refused from now on
			}
			p.group.Go(func() { p.forward(conn) })
		}
	})
	return nil
}

// forward serves one connection to its end.
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

// wait stops at a proxy that hangs, and says whether there is anything left to forward for.
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

// pump copies one direction. look sees each piece before it is passed on, and says how much of it is, and
// whether the connection goes on.
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
				tcp.CloseWrite() // the other direction may have more to say
			}
			return
		}
		if err != nil {
			break
		}
	}
	// Both ends: the other direction must not wait for what will not come.
	from.Close()
	to.Close()
}

// request looks at what goes to the server.
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

// reply looks at what goes to the client. An earlier reply has passed before the next request was made.
func (c *pair) reply(b []byte) (pass int, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.swallowing {
		return len(b), true
	}
	pass = min(len(b), c.left)
	c.left -= pass
	return pass, pass == len(b) && pass > 0 // the part that is dropped is still to come
}

func (c *pair) close() {
	c.client.Close() // closing twice does no harm
	c.server.Close()
}
