package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
)

const (
	// leaseLength is how long the dispatcher gives a lease for. renewEvery is less than a third of it.
	leaseLength = 10 * time.Second
	renewEvery  = 3 * time.Second
	renewWithin = 5 * time.Second
	// awayFor is longer than a standby takes to notice that the lease is free.
	awayFor = 15 * time.Second

	codeHeld   client.Code = "relay_held"
	codeOrigin client.Code = "relay_origin"
)

// A lease is the permission to read a source, until a time of this process's monotonic clock.
type lease struct {
	mu    sync.Mutex
	until time.Time
	// away is until when this process leaves the lease to another one. Only renewals use it.
	away time.Time
}

func (l *lease) set(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
}

func (l *lease) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until)
}

// renewals takes and renews the lease until ctx ends. They run beside the loop, so a page that takes long
// does not lose it.
func (r *reader) renewals(ctx context.Context) {
	process.Loop{
		Every: renewEvery, AtOnce: true, Log: r.log, Repeat: 10 * time.Minute,
		Failing: "relay lease cannot be renewed", Recovered: "relay lease is renewed again",
	}.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		err := r.renew(ctx)
		if err != nil && ctx.Err() == nil {
			r.metrics.errors.WithLabelValues(r.c.Label(), sideDispatcher).Inc()
		}
		return renewEvery - rand.N(renewEvery/6), err
	})
}

// renew takes or renews the lease, reports, and learns of an act.
func (r *reader) renew(ctx context.Context) error {
	if time.Now().Before(r.lease.away) {
		return nil
	}
	if r.state.givesWay() {
		r.log.Warn("relay source given back: it cannot be reached from here", "for", awayFor)
		r.lease.away = time.Now().Add(awayFor)
		r.release(ctx)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	sent := time.Now()
	report := r.state.report()
	if report != nil {
		report.Act = r.acts.progress()
	}
	reply, err := r.sink.Submit(ctx, r.c.Name, client.RelayBatch{
		Holder: r.o.Holder, Origin: r.c.Origin, Report: report,
	})
	switch {
	case err == nil:
		r.state.reported(report)
		r.hold(sent.Add(leaseLength), false, time.Duration(reply.LagMs)*time.Millisecond)
		if r.acts.take(reply.Act, reply.Now) {
			process.Wake(r.wake)
		}
		return nil
	case errors.Is(err, codeHeld):
		r.hold(time.Time{}, true, 0)
		return nil
	case errors.Is(err, codeOrigin):
		r.hold(time.Time{}, false, 0)
	case !r.lease.held():
		r.hold(time.Time{}, false, 0)
	}
	return err
}

// hold notes the end of the lease, and logs if this process begins or ends to read the source. lag is what
// the server knows as the lag of the source.
func (r *reader) hold(until time.Time, standby bool, lag time.Duration) {
	r.lease.set(until)
	leader := r.lease.held()
	wasLeader, wasStandby := r.state.lead(leader, standby, lag)
	if standby && !wasStandby {
		r.log.Info("another relay reads this source; dispatcher relay status shows which")
	}
	switch {
	case leader && !wasLeader:
		r.log.Info("relay source taken")
		process.Wake(r.wake)
	case !leader && wasLeader:
		r.log.Warn("relay source lost")
		process.Wake(r.wake)
	}
}

// release gives the lease back.
func (r *reader) release(ctx context.Context) {
	if !r.lease.held() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewWithin)
	defer cancel()
	report := r.state.report()
	if report != nil {
		report.Act = r.acts.progress()
	}
	_, err := r.sink.Submit(ctx, r.c.Name, client.RelayBatch{
		Holder: r.o.Holder, Origin: r.c.Origin, Release: true, Report: report,
	})
	r.lease.set(time.Time{})
	r.state.lead(false, false, 0)
	if err != nil {
		r.log.Warn("relay lease not given back; it expires", "error", err)
	}
}
