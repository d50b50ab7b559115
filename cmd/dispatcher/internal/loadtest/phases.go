package loadtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// dueMargin is how long before its due time a callback must be submitted. Half of it before the due time, the
// CPU time of accept is read.
const dueMargin = 250 * time.Millisecond

// sample is the CPU time of the processes, and the idle and total CPU time of the machine, at one time.
type sample struct {
	server, own serverUsage
	idle, all   uint64
}

func (b *bench) sample(ctx context.Context) (s sample, err error) {
	s.own = usageNow()
	s.idle, s.all, _ = machine.MachineTicks()
	if b.env != nil {
		s.server, err = b.env.server.usage(ctx)
	}
	return s, err
}

// measurement is a phase with samples at its begin, its end, and the time when its last work was done. took
// is the duration of the phase.
type measurement struct {
	began, ended, done sample
	took               time.Duration
}

// work returns the cost of a measurement for n callbacks.
func (s *measurement) work(n int) workFigures {
	w := workFigures{Callbacks: n, TookSeconds: rounded(s.took.Seconds(), 3)}
	if n == 0 || s.took <= 0 {
		return w
	}
	per1000 := func(from, to serverUsage) *float64 {
		if !from.Known || !to.Known {
			return nil
		}
		return new(rounded((to.CPU-from.CPU).Seconds()*1000/float64(n), 4))
	}
	w.OwnCPUSecondsPer1000 = per1000(s.began.own, s.done.own)
	w.ServerCPUSecondsPer1000 = per1000(s.began.server, s.done.server)
	share := func(cpu time.Duration) *float64 { return new(rounded(cpu.Seconds()/s.took.Seconds(), 2)) }
	if w.OwnCPUSecondsPer1000 != nil {
		w.OwnCPUsBusy = share(s.ended.own.CPU - s.began.own.CPU)
	}
	if w.ServerCPUSecondsPer1000 != nil {
		w.ServerCPUsBusy = share(s.ended.server.CPU - s.began.server.CPU)
	}
	if s.ended.all > s.began.all {
		idle, all := float64(s.ended.idle-s.began.idle), float64(s.ended.all-s.began.all)
		w.MachineIdleShare = new(rounded(idle/all, 2))
	}
	return w
}

// now is the time since the start of the ledger, the base of all times of a run.
func (b *bench) now() time.Duration { return time.Since(b.receiver.began) }

// serverTime converts a time of this process to the server's clock, in whole milliseconds as in due times.
// ownTime converts it back.
func (b *bench) serverTime(at time.Duration) time.Time {
	by, _ := b.gen.clock.ahead()
	return b.receiver.began.Add(at + by).Truncate(time.Millisecond)
}

func (b *bench) ownTime(at time.Time) time.Duration {
	by, _ := b.gen.clock.ahead()
	return at.Sub(b.receiver.began.Round(0)) - by
}

// warmUp checks that the server reaches the receiver, estimates the difference of the clocks, and measures
// how long a submission takes. It also makes the server open connections, lanes and statements before the
// phases.
func (b *bench) warmUp(ctx context.Context) error {
	if b.env != nil && b.plan.RedisURL == "" {
		// The embedded index uses this machine's clock.
		b.gen.clock = serverClock{known: true}
	}
	first := b.nextSpan(probes)
	for i := range probes {
		if err := b.probe(ctx, first.first+i); err != nil {
			return err
		}
		if i == 0 {
			if err := b.awaitFirst(ctx, first.first); err != nil {
				return err
			}
		}
	}
	n := b.plan.warm()
	if _, err := b.gen.send(ctx, load{span: b.nextSpan(n / 2)}); err != nil {
		return err
	}
	start := b.now()
	if _, err := b.gen.send(ctx, b.backlogLoad(b.nextSpan(n-n/2))); err != nil {
		return err
	}
	b.each = (b.now() - start) / time.Duration(n-n/2)
	return b.await(ctx, span{0, b.next}, b.now())
}

// probe submits one callback and compares the clocks.
func (b *bench) probe(ctx context.Context, number int) error {
	var cb client.Callback
	var sent time.Time
	_, err := retryBusy(ctx, func() error {
		sent = time.Now()
		in := json.RawMessage(b.gen.submission(nil, number, time.Time{}))
		_, err := b.cl.Call(ctx, http.MethodPost, "/v1/callbacks", in, &cb)
		return err
	})
	if refused, ok := errors.AsType[*client.Error](err); ok &&
		refused.Status == http.StatusUnprocessableEntity {
		return fmt.Errorf("the server does not send to %s: %w; allow it (egress_allow), or use --listen "+
			"and --receiver with an allowed address", b.receiver.base, err)
	}
	if err != nil {
		return err
	}
	came := time.Now()
	if b.env == nil || b.plan.RedisURL != "" {
		b.gen.clock.observe(cb.CreatedAt, sent.Round(0), came.Round(0))
	}
	b.receiver.ids[number] = cb.ID
	b.gen.accepted.Add(1)
	return nil
}

// awaitFirst waits for the first callback. Its error says why it does not arrive.
func (b *bench) awaitFirst(ctx context.Context, number int) error {
	id := b.receiver.ids[number]
	deadline := time.Now().Add(b.plan.timeout)
	for ; b.receiver.arrived[number].Load() == 0; console.Pause(ctx, 50*time.Millisecond) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var cb client.Callback
		if err := b.call(ctx, http.MethodGet, remote.CallbackPath(id), nil, &cb); err != nil {
			return err
		}
		failed, late := cb.AttemptCount > 0 || !cb.FinishedAt.IsZero(), time.Now().After(deadline)
		if (failed || late) && b.receiver.arrived[number].Load() == 0 {
			if !failed {
				hint := "is sending off (serve --hold), or is there no process with the role worker?"
				if b.env != nil {
					hint = "see the server's log"
				}
				return fmt.Errorf("the first callback is not sent within %s: %s (%s); %s",
					console.Brief(b.plan.timeout), id, b.describe(ctx, id), hint)
			}
			return fmt.Errorf("the first callback does not arrive: %s (%s); the server must reach bench's "+
				"receiver at %s, or at another address of --listen and --receiver",
				id, b.describe(ctx, id), b.receiver.base)
		}
	}
	return nil
}

// backlogLoad is how a backlog is submitted: as the plan says if accept is measured, else in batches over few
// connections.
func (b *bench) backlogLoad(s span) load {
	if b.plan.has(acceptPhase) {
		return load{span: s, batch: b.plan.Batch}
	}
	return load{span: s, batch: min(100, maxBenchRequest/(b.plan.Size+600)), connections: 4}
}

// leadTime is how long before its due time the submission of n callbacks starts.
func (b *bench) leadTime(n int) time.Duration {
	return b.each*time.Duration(n)*3/2 + 2*time.Second
}

// backlog runs the phases accept and drain: it submits callbacks with one due time, and waits until they are
// sent.
func (b *bench) backlog(ctx context.Context) error {
	s := b.nextSpan(b.plan.count)
	due := b.serverTime(b.now() + b.leadTime(s.n))
	at := b.ownTime(due)
	l := b.backlogLoad(s)
	l.due, l.until = func(int) time.Time { return due }, func(int) time.Duration { return at - dueMargin }
	var times []time.Duration
	work, err := b.during(ctx, b.named(acceptPhase, "backlog"), s.n, &b.gen.accepted, func() (err error) {
		times, err = b.gen.send(ctx, l)
		return err
	})
	if err != nil {
		return err
	}
	n := b.receiver.count(s)
	b.noteSlow("accept", n, s.n)
	if n == 0 {
		return errors.New("no callback was accepted before its due time")
	}
	// The server still passes accepted callbacks to the index for a moment.
	console.Pause(ctx, at-dueMargin/2-b.now())
	work.done, err = b.sample(ctx)
	if err != nil {
		return err
	}
	if b.plan.has(acceptPhase) {
		b.report.Phases.Accept = &acceptFigures{workFigures: work.work(n),
			AcceptedPerSecond: perSecond(n, work.took), Requests: len(times), RequestMs: quantilesOf(times)}
	}
	return b.drain(ctx, s, at)
}

// named returns the name of a phase, or otherwise if the plan does not have it.
func (b *bench) named(phase, otherwise string) string {
	if b.plan.has(phase) {
		return phase
	}
	return otherwise
}

// during runs a phase. It shows how many of its n callbacks are done, and takes samples before and after it.
func (b *bench) during(
	ctx context.Context, phase string, n int, done *atomic.Int64, run func() error,
) (w measurement, err error) {
	w.began, err = b.sample(ctx)
	if err != nil {
		return w, err
	}
	start, before := b.now(), done.Load()
	end := b.bar.begin(phase, n, func() int64 { return done.Load() - before })
	err = run()
	w.took = b.now() - start
	end(err)
	if err != nil {
		return w, err
	}
	w.ended, err = b.sample(ctx)
	w.done = w.ended
	return w, err
}

// drain measures how fast a due backlog is sent.
func (b *bench) drain(ctx context.Context, s span, due time.Duration) error {
	n := b.receiver.count(s)
	b.receiver.most.Store(0)
	work, err := b.during(ctx, b.named(drainPhase, "sending"), n, &b.receiver.arrivals, func() error {
		return b.await(ctx, s, due)
	})
	if err != nil || !b.plan.has(drainPhase) {
		return err
	}
	work.took = b.receiver.last(s) - due
	b.report.Phases.Drain = &drainFigures{workFigures: work.work(n),
		DeliveredPerSecond: perSecond(n, work.took), MostAtOnce: int(b.receiver.most.Load())}
	return nil
}

// steady measures callbacks at a rate. A request does not wait for earlier ones.
func (b *bench) steady(ctx context.Context) error {
	s := b.nextSpan(b.plan.steady())
	begin := time.Duration(0)
	start := func(i int) time.Duration { return begin + b.plan.interval(i) }
	var times []time.Duration
	var submitted time.Duration
	work, err := b.during(ctx, steadyPhase, s.n, &b.receiver.arrivals, func() (err error) {
		begin = b.now() + 50*time.Millisecond
		// A server that cannot keep the rate must not make the phase endless.
		last := begin + b.plan.duration + max(time.Second, b.plan.duration/10)
		times, err = b.gen.send(ctx, load{span: s, start: start, until: func(int) time.Duration {
			return last
		}})
		submitted = b.now() - begin
		if err != nil {
			return err
		}
		return b.await(ctx, s, b.now())
	})
	if err != nil {
		return err
	}
	n, r := b.receiver.count(s), b.receiver
	work.took = r.last(s) - begin
	f := &steadyFigures{workFigures: work.work(n), AcceptedPerSecond: perSecond(n, submitted),
		RequestMs: quantilesOf(times)}
	f.RequestStartToArriveMs = quantilesOf(r.times(s, func(i int, at time.Duration) time.Duration {
		return at - r.started[i]
	}))
	// A callback can arrive before bench has read its 202; then the time is zero.
	f.AcceptedToArriveMs = quantilesOf(r.times(s, func(i int, at time.Duration) time.Duration {
		return max(0, at-r.accepted[i])
	}))
	f.RequestStartedLateMs = quantilesOf(r.times(s, func(i int, _ time.Duration) time.Duration {
		return max(0, r.started[i]-start(i-s.first))
	}))
	b.report.Phases.Steady = f
	if n < s.n {
		b.note("steady: only %d of %d callbacks were submitted: the rate of %.0f/s is too high for %d "+
			"connections.", n, s.n, b.plan.rate, b.plan.Concurrency)
	}
	return nil
}

// delayed measures the lateness of callbacks that fall due one after the other, and counts early ones.
func (b *bench) delayed(ctx context.Context) error {
	s := b.nextSpan(b.plan.delayed())
	begin := time.Duration(0)
	due := func(i int) time.Time { return b.serverTime(begin + b.plan.interval(i)) }
	at := func(i int) time.Duration { return b.ownTime(due(i)) }
	work, err := b.during(ctx, delayedPhase, s.n, &b.receiver.arrivals, func() error {
		begin = b.now() + b.leadTime(s.n)
		l := b.backlogLoad(s)
		l.due, l.until = due, func(i int) time.Duration { return at(i) - dueMargin }
		if _, err := b.gen.send(ctx, l); err != nil {
			return err
		}
		return b.await(ctx, s, at(s.n-1))
	})
	if err != nil {
		return err
	}
	n := b.receiver.count(s)
	work.took = b.receiver.last(s) - begin
	late := b.receiver.times(s, func(i int, arrived time.Duration) time.Duration {
		return arrived - at(i-s.first)
	})
	_, precision := b.gen.clock.ahead()
	f := &delayedFigures{workFigures: work.work(n), Early: countEarly(late, precision),
		LatenessMs: quantilesOf(late)}
	b.report.Phases.Delayed, b.report.Tally.Early = f, f.Early
	b.noteSlow("delayed", n, s.n)
	return nil
}

// noteSlow adds a note if not all callbacks were accepted in time.
func (b *bench) noteSlow(phase string, n, of int) {
	if n < of {
		b.note("%s: only %d of %d callbacks were accepted before they fell due: the server was slower than "+
			"in the warm-up.", phase, n, of)
	}
}

// countEarly counts arrivals before the due time by more than the precision of the clocks.
func countEarly(lateness []time.Duration, precision time.Duration) (n int) {
	for _, d := range lateness {
		if d < -precision {
			n++
		}
	}
	return n
}
