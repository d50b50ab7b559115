package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Every call of a simulated process to SQL, to the index and to receivers passes through this file, which
// injects the faults of the plan.

// A process is one start of a dispatcher.
type process struct {
	sim  *simulation
	slot int
	// view is the process's own view of the index.
	view     *indexView
	engine   *dispatch.Engine
	registry *prometheus.Registry
	// counters are the counters before the first event.
	counters map[string]int
	started  time.Time
	// stop ends Run like SIGTERM; a crash closes died.
	stop  context.CancelFunc
	died  chan struct{}
	once  sync.Once
	ended chan struct{}
	// open: clients may call the process.
	open atomic.Bool

	mu          sync.Mutex
	pausedUntil time.Time
}

// crash ends the process like kill -9: nothing that it does later has any effect.
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

// pause stops the process for d, like SIGSTOP. Its timers continue, as they do for a stopped process: they
// have all fired when it resumes.
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

// pass waits while the process is stopped, and reports whether it is alive.
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
		case <-p.died: // a stopped process can be killed
		}
		timer.Stop()
	}
}

// errCut is the error of a call to the index without a reply, errSQLCut that of a call to SQL.
var (
	errCut    = errors.New("connection reset by peer")
	errSQLCut = fmt.Errorf("%w: %w", store.ErrUnavailable, errCut)
)

// around makes one call of a process. do makes the call; cut is the error of a call without a reply. The
// caller must not hold a mutex that another goroutine waits for: virtual time does not advance while a
// goroutine waits for a mutex.
func (p *process) around(ctx context.Context, op string, cut error, do work) (any, error) {
	if !p.pass() {
		return nil, cut
	}
	got, err := p.inject(ctx, op, cut, do)
	if !p.pass() {
		return nil, cut
	}
	return got, err
}

// inject makes the call with the fault that is planned for it, if any.
func (p *process) inject(ctx context.Context, op string, cut error, do work) (any, error) {
	s := p.sim
	f := s.faultOf(p, op)
	switch f.kind {
	case crashBefore:
		p.crash()
		return nil, cut
	case failed:
		return nil, cut
	case callLate:
		return s.late(ctx, f.lasts, do)
	case wipedBefore:
		s.check("wipe", s.shared().wipe(context.WithoutCancel(ctx)))
		time.Sleep(min(f.lasts, 3*time.Second)) // so that a rebuild may come between
	case stopBefore, drain:
		s.apply(p, f)
	case "":
		if works, err := s.away(ctx, p, op, cut); err != nil {
			if works {
				_, _ = do(ctx) // the call takes effect, and its reply is lost
			}
			return nil, err
		}
	}
	if f.kind != "" && !p.pass() {
		return nil, cut
	}
	got, err := do(ctx)
	switch f.kind {
	case crashAfter:
		p.crash()
		return got, cut
	case stopAfter:
		p.pause(f.lasts)
	case replyLost:
		return nil, cut
	case doubled:
		_, _ = do(ctx)
	case doubledLate:
		s.later(f.lasts, func() { _, _ = do(context.WithoutCancel(ctx)) })
	case replyLate:
		select {
		case <-time.After(f.lasts):
		case <-ctx.Done():
			return got, ctx.Err()
		}
	}
	return got, err
}

// late makes a call after a delay. It is made even if its caller gives up.
func (s *simulation) late(ctx context.Context, wait time.Duration, do work) (any, error) {
	type reply struct {
		value any
		err   error
	}
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

// later runs f after a delay. The simulation waits for it.
func (s *simulation) later(wait time.Duration, f func()) {
	s.pending.Add(1)
	s.delayed.Go(func() {
		defer s.pending.Add(-1)
		time.Sleep(wait)
		f()
	})
}

// faultOf returns the fault that is planned for a call of the process now, if any, and removes it.
func (s *simulation) faultOf(p *process, op string) (hit fault) {
	s.mu.Lock()
	i := slices.IndexFunc(s.faults, func(f fault) bool {
		return f.process == p.slot && f.op == op && f.at <= time.Since(s.began)
	})
	if i >= 0 {
		hit = s.faults[i]
		s.faults = slices.Delete(s.faults, i, i+1)
		s.met[string(hit.kind)]++
		s.note("%s of process %d: %s %s", op, p.slot, hit.kind, hit.lasts)
	}
	s.mu.Unlock()
	if i >= 0 {
		s.disturb(p, hit.lasts)
	}
	return hit
}

// An outage is a time in which SQL or the index is away.
type outage struct {
	fault
	until time.Time
}

var sqlOutages = []kind{sqlRefuses, sqlHangs, sqlMute}

// hangTime is how long a call hangs whose caller sets no timeout.
const hangTime = 2 * time.Second

// away returns the error of a call during an outage, and whether the call takes effect nevertheless. No
// error: there is no outage.
func (s *simulation) away(ctx context.Context, p *process, op string, cut error) (works bool, err error) {
	var met outage
	s.mu.Lock()
	for _, o := range s.outages {
		if slices.Contains(sqlOutages, o.kind) == errors.Is(cut, store.ErrUnavailable) &&
			(o.process < 0 || o.process == p.slot) && time.Now().Before(o.until) {
			met = o
		}
	}
	s.mu.Unlock()
	if met.kind == "" || op == "Send" {
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

// A disturbance is a time in which a process may miss its duties.
type disturbance struct {
	p        *process // nil: all
	from, to time.Time
}

// disturb records a disturbance of a process that lasts from now.
func (s *simulation) disturb(p *process, lasts time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disturbances = append(s.disturbances, disturbance{p, time.Now(), time.Now().Add(lasts)})
}

// disturbed reports whether the process was disturbed between the two times.
func (s *simulation) disturbed(p *process, from, to time.Time) bool {
	return met(s.disturbances, p, from, to)
}

// wasStopped reports whether the process was stopped between the two times. It may finish what it had begun
// at any later time.
func (s *simulation) wasStopped(p *process, from, to time.Time) bool {
	return met(s.pauses, p, from, to)
}

func met(list []disturbance, p *process, from, to time.Time) bool {
	return slices.ContainsFunc(list, func(d disturbance) bool {
		return (d.p == nil || d.p == p) && !d.from.After(to) && !d.to.Before(from)
	})
}

// A stampSeen is a claim that was committed to SQL.
type stampSeen struct {
	p      *process
	at     time.Time
	until  time.Time // end of the claim, by the bubble's clock
	fence  int64
	number int
}

type stampKey struct {
	id    string
	fence int64
}

// A processSQL is SQL as one process reaches it.
type processSQL struct{ *process }

// call makes a call to SQL. Schedules, endpoints, projects and lanes never change here, and maintenance that
// the plan omits counts as done by another process. So these calls of every second are skipped, which were
// more than half of the cost.
func (p processSQL) call(ctx context.Context, op string, args []any, do work) (any, error) {
	switch {
	case op == "NextSchedules", !p.sim.plan.folds &&
		(op == "Fold" || op == "TryLease" && (args[0] == "fold" || args[0] == "purge")):
		return nil, nil
	case slices.Contains([]string{"EndpointsChanged", "ProjectsChanged", "Lanes"}, op):
		do = func(context.Context) (any, error) { return nil, nil }
	}
	return p.around(ctx, op, fmt.Errorf("%s: %w", op, errSQLCut), func(ctx context.Context) (any, error) {
		got, err := do(ctx)
		switch got := got.(type) {
		case two[[]*store.Stamped, []store.Refusal]:
			p.sim.stamped(p.process, got.one)
		case []store.Committed:
			p.sim.committed(args[0].([]store.Result), got)
		}
		return got, err
	})
}

// stamped records committed claims.
func (s *simulation) stamped(p *process, list []*store.Stamped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range list {
		key := stampKey{w.ID, w.Fence}
		if _, again := s.stamps[key]; again {
			continue // a repetition with the same token
		}
		until := time.Now().Add(time.UnixMilli(w.ClaimUntil).Sub(s.now()))
		s.stamps[key] = stampSeen{p, time.Now(), until, w.Fence, w.AttemptSeq + 1}
	}
}

// committed records when the result of a claim first took effect.
func (s *simulation) committed(results []store.Result, got []store.Committed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range got {
		key := stampKey{results[i].ID, results[i].Fence}
		if _, known := s.results[key]; !known && got[i].Err == nil && got[i].Won {
			s.results[key] = time.Now()
		}
	}
}
