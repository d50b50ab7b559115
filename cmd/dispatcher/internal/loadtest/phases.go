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

// hurry is how long before a due time the last callback with it may be handed over, and when the CPU time of
// what was before is counted.
const hurry = 250 * time.Millisecond

// A sample is what the processes had used at a time, and the whole machine.
type sample struct {
	server, own serverUsage
	idle, all   uint64
}

func (b *bench) sample(ctx context.Context) (s sample, err error) {
	s.own = usageNow()
	s.idle, s.all, _ = machine.MachineTicks()
	if b.own != nil {
		s.server, err = b.own.server.usage(ctx)
	}
	return s, err
}

// A stretch is a phase between samples: when it began and ended, which took so long, and when the last of its
// work was done.
type stretch struct {
	began, ended, done sample
	took               time.Duration
}

// work is what a stretch cost for n callbacks.
func (s *stretch) work(n int) workFigures {
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
		w.MachineIdleShare = new(rounded(float64(s.ended.idle-s.began.idle)/float64(s.ended.all-s.began.all),
			2))
	}
	return w
}

// now is the time since the ledger began, which all times of a run are counted from.
func (b *bench) now() time.Duration { return time.Since(b.receiver.began) }

// serverTime is a time of this process by the server's clock, in the whole milliseconds that due times have;
// ownTime is the reverse.
func (b *bench) serverTime(at time.Duration) time.Time {
	by, _ := b.gen.clock.ahead()
	return b.receiver.began.Add(at + by).Truncate(time.Millisecond)
}

func (b *bench) ownTime(at time.Time) time.Duration {
	by, _ := b.gen.clock.ahead()
	return at.Sub(b.receiver.began.Round(0)) - by
}

// warmUp finds out whether the server reaches the receiver, how far apart the clocks are, and how long
// handing a callback over takes; and it has connections, lanes and statements made before anything is
// measured.
func (b *bench) warmUp(ctx context.Context) error {
	if b.own != nil && b.plan.RedisURL == "" {
		// The server's clock, which its index decides by, is this machine's.
		b.gen.clock = serverClock{known: true}
	}
	first := b.take(greet)
	for i := range greet {
		if err := b.hello(ctx, first.first+i); err != nil {
			return err
		}
		if i == 0 {
			if err := b.reached(ctx, first.first); err != nil {
				return err
			}
		}
	}
	n := b.plan.warm()
	if _, err := b.gen.send(ctx, load{span: b.take(n / 2)}); err != nil {
		return err
	}
	start := b.now()
	if _, err := b.gen.send(ctx, b.backlogLoad(b.take(n-n/2))); err != nil {
		return err
	}
	b.each = (b.now() - start) / time.Duration(n-n/2)
	return b.await(ctx, span{0, b.next}, b.now())
}

// hello hands one callback over and compares the clocks.
func (b *bench) hello(ctx context.Context, number int) error {
	var cb client.Callback
	var sent time.Time
	_, err := patiently(ctx, func() error {
		sent = time.Now()
		in := json.RawMessage(b.gen.submission(nil, number, time.Time{}))
		_, err := b.cl.Call(ctx, http.MethodPost, "/v1/callbacks", in, &cb)
		return err
	})
	if refused, ok := errors.AsType[*client.Error](err); ok &&
		refused.Status == http.StatusUnprocessableEntity {
		return fmt.Errorf("the server does not send to %s: %w; let it (egress_allow), or name with "+
			"--listen and --receiver an address that it may send to", b.receiver.base, err)
	}
	if err != nil {
		return err
	}
	came := time.Now()
	if b.own == nil || b.plan.RedisURL != "" {
		b.gen.clock.observe(cb.CreatedAt, sent.Round(0), came.Round(0))
	}
	b.receiver.ids[number] = cb.ID
	b.gen.accepted.Add(1)
	return nil
}

// reached waits for the first callback, and says why it does not come.
func (b *bench) reached(ctx context.Context, number int) error {
	id := b.receiver.ids[number]
	for deadline := time.Now().Add(b.plan.timeout); b.receiver.arrived[number].Load() ==
		0; console.Pause(ctx, 50*time.Millisecond) {
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
				why := "Is sending held (serve --hold), or does no process with the role worker run?"
				if b.own != nil {
					why = "The server's log says why."
				}
				return fmt.Errorf("the first callback is not sent within %s: %s (%s). %s",
					console.Brief(b.plan.timeout), id, b.fate(ctx, id), why)
			}
			return fmt.Errorf("the first callback does not arrive: %s (%s). The server must reach bench's "+
				"receiver at %s; --listen and --receiver name another address",
				id, b.fate(ctx, id), b.receiver.base)
		}
	}
	return nil
}

// backlogLoad is how a backlog is handed over: as the plan says where that is measured, else without haste,
// in batches.
func (b *bench) backlogLoad(s span) load {
	if b.plan.has(acceptPhase) {
		return load{span: s, batch: b.plan.Batch}
	}
	return load{span: s, batch: min(100, mostBenchRequest/(b.plan.Size+600)), connections: 4}
}

// ahead is how long before its due time the handing over of n callbacks begins.
func (b *bench) ahead(n int) time.Duration {
	return b.each*time.Duration(n)*3/2 + 2*time.Second
}

// backlog is the phases accept and drain: callbacks that fall due at one time are handed over before it, and
// sent after it.
func (b *bench) backlog(ctx context.Context) error {
	s := b.take(b.plan.count)
	due := b.serverTime(b.now() + b.ahead(s.n))
	at := b.ownTime(due)
	l := b.backlogLoad(s)
	l.due, l.until = func(int) time.Time { return due }, func(int) time.Duration { return at - hurry }
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
		return errors.New("no callback could be handed over before its due time")
	}
	// What is handed over goes on to the index for a moment.
	console.Pause(ctx, at-hurry/2-b.now())
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

// named is what a phase is called that the plan may not have.
func (b *bench) named(phase, otherwise string) string {
	if b.plan.has(phase) {
		return phase
	}
	return otherwise
}

// during shows how many of a phase's n callbacks are counted as done while it goes on, and samples before and
// after it.
func (b *bench) during(ctx context.Context, phase string, n int, done *atomic.Int64,
	goOn func() error) (w stretch, err error) {
	w.began, err = b.sample(ctx)
	if err != nil {
		return w, err
	}
	start, before := b.now(), done.Load()
	end := b.bar.begin(phase, n, func() int64 { return done.Load() - before })
	err = goOn()
	w.took = b.now() - start
	end(err)
	if err != nil {
		return w, err
	}
	w.ended, err = b.sample(ctx)
	w.done = w.ended
	return w, err
}

// drain measures how a backlog that falls due is sent.
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

// steady measures callbacks that come at a rate, whatever becomes of those before them.
func (b *bench) steady(ctx context.Context) error {
	s := b.take(b.plan.steady())
	begin := time.Duration(0)
	start := func(i int) time.Duration { return begin + b.plan.interval(i) }
	var times []time.Duration
	var handed time.Duration
	work, err := b.during(ctx, steadyPhase, s.n, &b.receiver.arrivals, func() (err error) {
		begin = b.now() + 50*time.Millisecond
		// A server that is slower than the rate must not make the phase endless.
		last := begin + b.plan.duration + max(time.Second, b.plan.duration/10)
		times, err = b.gen.send(ctx, load{span: s, start: start, until: func(int) time.Duration {
			return last
		}})
		handed = b.now() - begin
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
	f := &steadyFigures{workFigures: work.work(n), AcceptedPerSecond: perSecond(n, handed),
		RequestMs: quantilesOf(times)}
	f.RequestStartToArriveMs = quantilesOf(r.times(s, func(i int, at time.Duration) time.Duration {
		return at - r.started[i]
	}))
	// One that came before bench had read its 202 waited for nothing.
	f.AcceptedToArriveMs = quantilesOf(r.times(s, func(i int, at time.Duration) time.Duration {
		return max(0, at-r.accepted[i])
	}))
	f.RequestStartedLateMs = quantilesOf(r.times(s, func(i int, _ time.Duration) time.Duration {
		return max(0, r.started[i]-start(i-s.first))
	}))
	b.report.Phases.Steady = f
	if n < s.n {
		b.note("steady: %d of %d callbacks could be handed over at that rate: %.0f each second is more "+
			"than this generator, over %d connections, gets accepted.", n, s.n, b.plan.rate,
			b.plan.Concurrency)
	}
	return nil
}

// delayed measures how late callbacks come that fall due one after the other, and that none comes early.
func (b *bench) delayed(ctx context.Context) error {
	s := b.take(b.plan.delayed())
	begin := time.Duration(0)
	due := func(i int) time.Time { return b.serverTime(begin + b.plan.interval(i)) }
	at := func(i int) time.Duration { return b.ownTime(due(i)) }
	work, err := b.during(ctx, delayedPhase, s.n, &b.receiver.arrivals, func() error {
		begin = b.now() + b.ahead(s.n)
		l := b.backlogLoad(s)
		l.due, l.until = due, func(i int) time.Duration { return at(i) - hurry }
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
	f := &delayedFigures{workFigures: work.work(n), Early: earlier(late, precision),
		LatenessMs: quantilesOf(late)}
	b.report.Phases.Delayed, b.report.Books.Early = f, f.Early
	b.noteSlow("delayed", n, s.n)
	return nil
}

// noteSlow notes that not all could be handed over in time.
func (b *bench) noteSlow(phase string, n, of int) {
	if n < of {
		b.note("%s: %d of %d callbacks could be handed over before they fell due: it went slower than in "+
			"the warm-up.", phase, n, of)
	}
}

// earlier counts those that came before they were due, beyond what the clocks leave open.
func earlier(lateness []time.Duration, precision time.Duration) (n int) {
	for _, d := range lateness {
		if d < -precision {
			n++
		}
	}
	return n
}
