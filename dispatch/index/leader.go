package index

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A Leader elects one process for a task by a lease row in SQL, which is counted by the index's clock. With
// an embedded index this process always leads.
//
// A lease is no lock: a slow leader may overlap with the next one, and each task must bear that. A rebuild
// has its generation for this, and the loader has the token of the watermark.
type Leader struct {
	ix    *Index
	name  string
	lasts time.Duration

	mu sync.Mutex
	// leads: this process had the lease when it last tried. renewed is when it tried.
	leads   bool
	renewed time.Time
}

// NewLeader returns a Leader for the lease of that name, which lasts that long after each renewal.
func (ix *Index) NewLeader(name string, lasts time.Duration) *Leader {
	return &Leader{ix: ix, name: name, lasts: lasts}
}

// Lead takes or renews the lease, and returns whether this process leads. A lease that was renewed less than
// a quarter of its time ago is not renewed again.
func (l *Leader) Lead(ctx context.Context) (bool, error) {
	if l.ix.o.Embedded {
		return true, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leads && time.Since(l.renewed) < l.lasts/4 {
		return true, nil
	}
	return l.renew(ctx)
}

// renew takes or renews the lease. The caller holds l.mu.
func (l *Leader) renew(ctx context.Context) (bool, error) {
	if err := l.ix.readClock(ctx); err != nil {
		return false, err
	}
	tried := time.Now()
	leads, err := l.ix.o.Store.TryLease(ctx, l.name, l.ix.o.Name, l.ix.clock.Now(), l.lasts)
	if err != nil {
		return false, fmt.Errorf("lease for %s: %w", l.name, err)
	}
	l.leads, l.renewed = leads, tried
	return leads, nil
}

// Leads returns whether this process had the lease when it last tried.
func (l *Leader) Leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads
}

// Resign gives the lease back, so that the next leader need not wait until it expires. If that fails, it
// expires.
func (l *Leader) Resign(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads {
		return
	}
	l.leads = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := l.ix.o.Store.TryLease(ctx, l.name, l.ix.o.Name, l.ix.clock.Now(), 0); err != nil {
		l.ix.log.Debug("lease could not be given back; it expires", "lease", l.name, "error", err)
	}
}

// KeepRenewed renews the lease in the background until end is called, however long a step of the task takes.
// The context that it returns ends when another process has the lease, with lost as its cause. If the lease
// cannot be renewed for longer than it lasts, the cause is the error of the last try.
func (l *Leader) KeepRenewed(ctx context.Context, lost error) (leading context.Context, end func()) {
	leading, cancel := context.WithCancelCause(ctx)
	if l.ix.o.Embedded {
		return leading, func() { cancel(nil) }
	}
	var renewer sync.WaitGroup
	renewer.Go(func() {
		ticker := time.NewTicker(l.lasts / 4)
		defer ticker.Stop()
		renewed := time.Now()
		for {
			select {
			case <-leading.Done():
				return
			case <-ticker.C:
			}
			l.mu.Lock()
			leads, err := l.renew(leading)
			l.mu.Unlock()
			switch {
			case err == nil && leads:
				renewed = time.Now()
			case err == nil:
				cancel(lost)
			case time.Since(renewed) > l.lasts:
				cancel(err)
			}
		}
	})
	return leading, func() {
		cancel(nil)
		renewer.Wait()
	}
}
