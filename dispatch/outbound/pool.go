package outbound

import (
	"slices"
	"sort"
	"sync"
	"time"
)

const (
	// idleTimeout is how long an unused connection is kept. Most receivers close idle connections later than
	// this. A connection that the receiver closes while it is in the pool can cost an attempt with an unknown
	// outcome.
	idleTimeout = 5 * time.Second
	// maxIdle bounds the idle connections of all hosts together.
	maxIdle = 4096
	// sweepEvery is the minimum interval between two sweeps. Until a sweep, expired connections are kept but
	// not used.
	sweepEvery = 250 * time.Millisecond
)

// A poolKey identifies connections that can serve the same requests: the scheme, and the host and port as
// written in the URL.
type poolKey struct{ scheme, host string }

// A pool keeps idle connections. An attempt that finds none opens one and puts it back afterwards. So a host
// never has more connections than it had concurrent attempts.
type pool struct {
	// perHost and total are the limits of idle connections.
	perHost, total int

	mu    sync.Mutex
	idle  map[poolKey][]*connection // the connection that was used last is last
	count int                       // of all connections in idle
	// sweep closes expired connections. It is nil if the pool is empty.
	sweep *time.Timer
}

func newPool(perHost int) *pool {
	return &pool{perHost: perHost, total: max(maxIdle, perHost), idle: make(map[poolKey][]*connection)}
}

// get returns an idle connection, or nil. It skips connections that the receiver has closed or written to.
func (p *pool) get(key poolKey) *connection {
	for {
		c, old := p.pop(key)
		for _, o := range old {
			o.close()
		}
		switch {
		case c == nil:
			return nil
		case c.idle.usable():
			return c
		}
		c.abort()
	}
}

// pop removes and returns the connection that was used last. If that one has expired, pop returns all of the
// host as expired. The caller closes them outside of the lock.
func (p *pool) pop(key poolKey) (c *connection, old []*connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := p.idle[key]
	n := len(conns)
	switch {
	case n == 0:
		return nil, nil
	case time.Since(conns[n-1].idleSince) >= idleTimeout:
		return nil, p.removeOldest(key, n)
	}
	c = conns[n-1]
	conns[n-1] = nil
	p.idle[key] = conns[:n-1]
	p.count--
	return c, nil
}

// removeOldest removes and returns the n oldest connections of a host. The caller holds p.mu. The entry of a
// host that pop has emptied stays in the map until here, because it usually fills again.
func (p *pool) removeOldest(key poolKey, n int) []*connection {
	conns := p.idle[key]
	old := slices.Clone(conns[:n])
	p.count -= n
	p.idle[key] = slices.Delete(conns, 0, n)
	if n == len(conns) {
		delete(p.idle, key)
	}
	return old
}

// put returns a connection to the pool. If a limit is reached it closes this or another idle connection.
func (p *pool) put(c *connection) {
	c.idleSince = time.Now()
	if extra := p.push(c); extra != nil {
		extra.close()
	}
}

// push adds a connection. It returns the one that the caller must close: the connection itself if its host is
// at the limit, or the oldest of another host if the pool is full. Else it returns nil.
func (p *pool) push(c *connection) (extra *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle[c.key]) >= p.perHost {
		return c
	}
	if p.count >= p.total {
		for key, conns := range p.idle { // the first of the map's random order
			if len(conns) > 0 {
				extra = p.removeOldest(key, 1)[0]
				break
			}
		}
	}
	p.idle[c.key] = append(p.idle[c.key], c)
	p.count++
	if p.sweep == nil {
		p.sweep = time.AfterFunc(idleTimeout, p.closeExpired)
	}
	return extra
}

// closeExpired runs when the sweep timer fires. It closes expired connections outside of the lock.
func (p *pool) closeExpired() {
	for _, c := range p.removeExpired() {
		c.close()
	}
}

// removeExpired removes and returns the expired connections. It sets the timer again if others are left.
func (p *pool) removeExpired() (old []*connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := idleTimeout
	for key, conns := range p.idle {
		n := sort.Search(len(conns), func(i int) bool { return time.Since(conns[i].idleSince) < idleTimeout })
		if n < len(conns) {
			next = min(next, idleTimeout-time.Since(conns[n].idleSince))
		}
		old = append(old, p.removeOldest(key, n)...)
	}
	if p.count == 0 {
		p.sweep = nil
	} else {
		p.sweep.Reset(max(next, sweepEvery))
	}
	return old
}

// closeIdle closes all idle connections.
func (p *pool) closeIdle() {
	for _, c := range p.removeAll() {
		c.close()
	}
}

// removeAll empties the pool and stops the timer. The caller closes the connections outside of the lock.
func (p *pool) removeAll() (all []*connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conns := range p.idle {
		all = append(all, conns...)
	}
	clear(p.idle)
	p.count = 0
	if p.sweep != nil {
		p.sweep.Stop()
		p.sweep = nil
	}
	return all
}
