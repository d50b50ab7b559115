package dispatch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
)

// This file is what stands between a process and the rest of the world: every call of its engine to SQL, to the index and to
// the wire goes through it, and meets there what the plan has in store for it.

// A process is one start of one dispatcher.
type process struct {
	sim  *simulation
	slot int
	// view is the process's own of the index.
	view     *indexView
	engine   *dispatch.Engine
	registry *prometheus.Registry
	started  time.Time
	// stop ends Run as SIGTERM does; died is closed by a crash.
	stop  context.CancelFunc
	died  chan struct{}
	once  sync.Once
	ended chan struct{}
	// open: clients may call it.
	open atomic.Bool

	mu          sync.Mutex
	pausedUntil time.Time
}

// crash ends the process as kill -9 does: from now on nothing that it does has any effect.
func (p *process) crash() {
	p.once.Do(func() {
		p.open.Store(false)
		close(p.died)
		p.sim.disturb(p, 0)
		p.stop()
	})
}

func (p *process) dead() bool {
	select {
	case <-p.died:
		return true
	default:
		return false
	}
}

// pause stops the process for so long, as SIGSTOP does. Its timers go on, as they do for a process that is stopped: they have
// all fired when it goes on.
func (p *process) pause(d time.Duration) {
	until := time.Now().Add(d)
	p.mu.Lock()
	if until.After(p.pausedUntil) {
		p.pausedUntil = until
	}
	p.mu.Unlock()
	p.sim.disturb(p, d)
	p.sim.mu.Lock()
	p.sim.pauses = append(p.sim.pauses, disturbance{p, time.Now(), until})
	p.sim.mu.Unlock()
}

// pass waits while the process is stopped, and says whether it is alive.
func (p *process) pass() bool {
	for {
		p.mu.Lock()
		wait := time.Until(p.pausedUntil)
		p.mu.Unlock()
		if p.dead() {
			return false
		}
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.died: // Who is stopped can be killed.
		}
		timer.Stop()
	}
}

// errCut is what a call meets that gets no answer from the index.
var errCut = errors.New("connection reset by peer")

// A reply is what a call brought.
type reply struct {
	value any
	err   error
}

// around makes one call of a process, to SQL or elsewhere. Do is the call itself; cut is the error of one
// that gets no answer. No caller may hold a mutex that another one waits for: on that no time passes in a
// bubble.
func (p *process) around(ctx context.Context, op string, sql bool, cut error, do work) (any, error) {
	if !p.pass() {
		return nil, cut
	}
	got, err := p.befall(ctx, op, sql, cut, do)
	if !p.pass() {
		return nil, cut
	}
	return got, err
}

// befall makes the call as the fault wants it that is planned for it.
func (p *process) befall(ctx context.Context, op string, sql bool, cut error, do work) (any, error) {
	s := p.sim
	f := s.faultOf(p, op)
	switch f.kind {
	case crashBefore:
		p.crash()
		return nil, cut
	case failed:
		return nil, cut
	case callLate:
		return s.late(ctx, f.wait, do)
	case wipedBefore:
		s.mu.Lock()
		index := s.index
		s.mu.Unlock()
		if err := index.wipe(context.WithoutCancel(ctx)); err != nil {
			s.problem("wipe: %v", err)
		}
		time.Sleep(min(f.wait, 3*time.Second)) // so that a rebuild may come between
	case stopBefore:
		p.pause(f.wait)
	case "":
		if works, err := s.away(ctx, p, op, sql, cut); err != nil {
			if works {
				_, _ = do(ctx) // It took effect; nobody hears how.
			}
			return nil, err
		}
	}
	if (f.kind == wipedBefore || f.kind == stopBefore) && !p.pass() {
		return nil, cut
	}
	got, err := do(ctx)
	switch f.kind {
	case crashAfter:
		p.crash()
		return got, cut
	case stopAfter:
		p.pause(f.wait)
	case replyLost:
		return nil, cut
	case doubled:
		_, _ = do(ctx)
	case doubledLate:
		s.later(f.wait, func() { _, _ = do(context.WithoutCancel(ctx)) })
	case replyLate:
		select {
		case <-time.After(f.wait):
		case <-ctx.Done():
			return got, ctx.Err()
		}
	}
	return got, err
}

// late makes a call that is on its way for so long. Its caller may give up; the call is made all the same.
func (s *simulation) late(ctx context.Context, wait time.Duration, do work) (any, error) {
	done := make(chan reply, 1)
	s.later(wait, func() {
		value, err := do(context.WithoutCancel(ctx))
		done <- reply{value, err}
	})
	select {
	case got := <-done:
		return got.value, got.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// later runs f after a while. The simulation does not end before.
func (s *simulation) later(wait time.Duration, f func()) {
	s.pending.Add(1)
	s.lates.Go(func() {
		defer s.pending.Add(-1)
		time.Sleep(wait)
		f()
	})
}

// faultOf counts the call and returns the fault that is planned for it, if any.
func (s *simulation) faultOf(p *process, op string) fault {
	s.mu.Lock()
	key := callKey{p.slot, op}
	s.calls[key]++
	n := s.calls[key]
	var hit fault
	if s.faulty {
		for _, f := range s.plan.faults {
			if f.process == p.slot && f.op == op && f.n == n {
				hit = f
			}
		}
	}
	if hit.kind != "" {
		s.met[string(hit.kind)]++
		s.note("%s number %d of process %d: %s %s", op, n, p.slot, hit.kind, hit.wait)
	}
	s.mu.Unlock()
	if hit.kind != "" {
		s.disturb(p, hit.wait)
	}
	return hit
}

// A callKey counts the calls of one operation by one process.
type callKey struct {
	process int
	op      string
}

// An outage is SQL or the index being away for a while.
type outage struct {
	kind  eventKind
	sql   bool
	slot  int // -1: for all
	until time.Time
}

// hangTime is how long a call hangs that nobody answers and whose caller sets no limit.
const hangTime = 2 * time.Second

// away says what becomes of a call while what it asks is away: its error, and whether it takes effect all the
// same. Without an error nothing is away.
func (s *simulation) away(
	ctx context.Context, p *process, op string, sql bool, cut error,
) (works bool, err error) {
	s.mu.Lock()
	var met *outage
	for i := range s.outages {
		o := &s.outages[i]
		if o.sql == sql && (o.slot < 0 || o.slot == p.slot) && time.Now().Before(o.until) {
			met = o
		}
	}
	s.mu.Unlock()
	if met == nil || op == "Send" {
		return false, nil
	}
	switch met.kind {
	case sqlMute, indexMute:
		return true, cut
	case sqlHangs, indexHangs:
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(hangTime):
		}
	}
	return false, cut
}

// A disturbance is a time in which a process may fail to do what it should.
type disturbance struct {
	p        *process // nil: all
	from, to time.Time
}

// disturb notes that something befalls a process for so long from now on.
func (s *simulation) disturb(p *process, lasts time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disturbances = append(s.disturbances, disturbance{p, time.Now(), time.Now().Add(lasts)})
}

// disturbed says whether anything befell the process between the two times.
func (s *simulation) disturbed(p *process, from, to time.Time) bool {
	return met(s.disturbances, p, from, to)
}

// wasStopped says whether the process was stopped between the two times.
// What it had begun it may end at any time later.
func (s *simulation) wasStopped(p *process, from, to time.Time) bool {
	return met(s.pauses, p, from, to)
}

func met(list []disturbance, p *process, from, to time.Time) bool {
	return slices.ContainsFunc(list, func(d disturbance) bool {
		return (d.p == nil || d.p == p) && !d.from.After(to) && !d.to.Before(from)
	})
}
