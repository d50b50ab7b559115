package outbound

import (
	"slices"
	"sort"
	"sync"
	"time"
)

const (
	// idleTimeout is how long a connection is kept after its last use. Receivers that close idle connections
	// unannounced do so after longer than this, mostly; each one that is still in the pool then costs an
	// attempt whose fate is unknown.
	idleTimeout = 5 * time.Second
	// maxIdle bounds the connections kept over all destinations.
	maxIdle = 4096
	// sweepEvery is how often at most all of them are looked through. What is older meanwhile is not given
	// out.
	sweepEvery = 250 * time.Millisecond
)

// A place is what attempts have in common that can use the same connections, as far as it can be told from
// their URLs: the scheme, and host and port as they are spelled.
type place struct{ scheme, host string }

// A pool keeps idle connections. An attempt that finds none opens its own, and gives it back: so to a place
// there are never more connections than there were attempts at once.
type pool struct {
	// perPlace and total bound what is kept.
	perPlace, total int

	mu   sync.Mutex
	idle map[place][]*line // the one that was used last is last
	kept int
	// sweep closes what nobody used for too long; nil: nothing is kept.
	sweep *time.Timer
}

func newPool(perPlace int) *pool {
	return &pool{perPlace: perPlace, total: max(maxIdle, perPlace), idle: make(map[place][]*line)}
}

// take returns an idle connection, or nil.
func (p *pool) take(to place) *line {
	for {
		l, old := p.pop(to)
		for _, o := range old {
			o.close()
		}
		switch {
		case l == nil:
			return nil
		case l.probe.silent():
			return l
		}
		l.hangUp()
	}
}

// pop takes the connection that was used last out of the pool, or all if that was too long ago.
func (p *pool) pop(to place) (l *line, old []*line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.idle[to]
	n := len(lines)
	switch {
	case n == 0:
		return nil, nil
	case time.Since(lines[n-1].since) >= idleTimeout:
		return nil, p.leave(to, n)
	}
	l = lines[n-1]
	lines[n-1] = nil
	p.idle[to] = lines[:n-1]
	p.kept--
	return l, nil
}

// leave takes the n oldest of a place out. A place that pop has emptied is not forgotten before this: it
// mostly fills again.
func (p *pool) leave(to place, n int) []*line {
	lines := p.idle[to]
	old := slices.Clone(lines[:n])
	p.kept -= n
	p.idle[to] = slices.Delete(lines, 0, n)
	if n == len(lines) {
		delete(p.idle, to)
	}
	return old
}

// give keeps a connection for the next attempt, or closes it.
func (p *pool) give(l *line) {
	l.since = time.Now()
	if extra := p.push(l); extra != nil {
		extra.close()
	}
}

// push returns what cannot be kept for it: the line itself, or the oldest of some other place.
func (p *pool) push(l *line) (extra *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle[l.place]) >= p.perPlace {
		return l
	}
	if p.kept >= p.total {
		for to, lines := range p.idle { // any: the order of a map is as good as chance
			if len(lines) > 0 {
				extra = p.leave(to, 1)[0]
				break
			}
		}
	}
	p.idle[l.place] = append(p.idle[l.place], l)
	p.kept++
	if p.sweep == nil {
		p.sweep = time.AfterFunc(idleTimeout, p.expire)
	}
	return extra
}

// expire closes what nobody has used for too long, and looks again later if something is left.
func (p *pool) expire() {
	for _, l := range p.expired() {
		l.close()
	}
}

func (p *pool) expired() (old []*line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := idleTimeout
	for to, lines := range p.idle {
		n := sort.Search(len(lines), func(i int) bool { return time.Since(lines[i].since) < idleTimeout })
		if n < len(lines) {
			next = min(next, idleTimeout-time.Since(lines[n].since))
		}
		old = append(old, p.leave(to, n)...)
	}
	if p.kept == 0 {
		p.sweep = nil
	} else {
		p.sweep.Reset(max(next, sweepEvery))
	}
	return old
}

// close closes everything that is idle.
func (p *pool) close() {
	for _, l := range p.all() {
		l.close()
	}
}

func (p *pool) all() (all []*line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lines := range p.idle {
		all = append(all, lines...)
	}
	clear(p.idle)
	p.kept = 0
	if p.sweep != nil {
		p.sweep.Stop()
		p.sweep = nil
	}
	return all
}
