package index

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// SQLFailingSince returns since when SQL refuses commits: those of accepts, claims and results, or the ping,
// whichever failed first. Zero: SQL commits.
func (ix *Index) SQLFailingSince(ctx context.Context) time.Time {
	var since time.Time
	if ix.health.SQLIsDown() {
		since = ix.health.SQLDownSince()
	}
	if err := ix.PingSQL(ctx); err != nil {
		if failing := ix.ping.failingSince(); since.IsZero() || failing.Before(since) {
			since = failing
		}
	}
	return since
}

// failingSince returns since when the ping fails; the present time if it works.
func (p *sqlPing) failingSince() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing.IsZero() {
		return time.Now()
	}
	return p.failing
}

const (
	// pingMaxAge is how long the result of a ping is reused, so that health checks are no load of their own.
	pingMaxAge = time.Second
	// pingTimeout bounds a ping of SQL. SQLite does not interrupt a commit that it has begun.
	pingTimeout = 2 * time.Second
)

// A sqlPing is the result of the last ping of SQL.
type sqlPing struct {
	mu  sync.Mutex
	at  time.Time
	err error
	// failing is since when pings fail; zero: the last one succeeded.
	failing time.Time
	// down is true if the last ping failed. It is read without mu, which a ping holds.
	down atomic.Bool
}

// PingSQL makes a small commit, and returns nil or why it failed. The result is reused for pingMaxAge.
// Callers at the same time wait for one ping, also if their ctx ends. It writes, because a database may
// answer reads and still refuse commits.
func (ix *Index) PingSQL(ctx context.Context) error {
	ix.ping.mu.Lock()
	defer ix.ping.mu.Unlock()
	if !ix.ping.at.IsZero() && time.Since(ix.ping.at) < pingMaxAge {
		return ix.ping.err
	}
	// Callers share the result: a caller that hangs up must not make it a failure.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
	defer cancel()
	ix.ping.err = ix.o.Store.Ping(ctx)
	ix.ping.at = time.Now()
	ix.ping.down.Store(ix.ping.err != nil)
	if ix.ping.err == nil {
		ix.ping.failing = time.Time{}
	} else if ix.ping.failing.IsZero() {
		ix.ping.failing = ix.ping.at
	}
	return ix.ping.err
}
