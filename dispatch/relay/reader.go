package relay

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

const (
	firstWait   = time.Second
	longestWait = 30 * time.Second
	// longestRetryAfter bounds what a server can ask for.
	longestRetryAfter = 5 * time.Minute
	// shutdownGrace is how long the page in hand may take after the shutdown began.
	shutdownGrace = 10 * time.Second

	sideSource     = "source"
	sideDispatcher = "dispatcher"
)

// A reader reads one source.
type reader struct {
	o       *Options
	c       SourceConfig
	sink    Sink
	log     *slog.Logger
	metrics *metrics

	lease lease
	state state
	acts  acts
	// wake ends a pause: the lease was taken or lost, or there is a new act.
	wake chan struct{}
	// failures counts errors since the last completed scan. failing limits their log lines, and refusing
	// those about refused rows.
	failures          int
	failing, refusing process.LogLimiter
	// A new connection does not bring upkeep forward.
	upkeep upkeep
}

func newReader(o *Options, m *metrics, c SourceConfig) *reader {
	return &reader{
		o: o, c: c, sink: o.Sink(c.Project), metrics: m, log: o.Logger.With("source", c.Label()),
		wake: make(chan struct{}, 1),
	}
}

// run reads the source until ctx ends, finishes the page in hand, and gives the lease back.
func (r *reader) run(ctx context.Context) {
	r.state.begin()
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var renewals sync.WaitGroup
	renewals.Go(func() { r.renewals(renewing) })
	r.readAll(ctx)
	stop()
	renewals.Wait()
	r.release(ctx)
}

// readAll connects and reads while this process has the lease, until ctx ends.
func (r *reader) readAll(ctx context.Context) {
	page, cancel := outlive(ctx, shutdownGrace)
	defer cancel()
	for ctx.Err() == nil {
		if !r.lease.held() {
			r.pause(ctx, renewEvery)
			continue
		}
		if err := r.session(ctx, page); err != nil && ctx.Err() == nil {
			r.failed(sideSource, err)
			r.pause(ctx, r.backoff(0))
		}
	}
}

// session reads through one connection while this process has the lease. Its error is that of the source.
func (r *reader) session(ctx, page context.Context) error {
	conn, err := r.o.Connect(ctx, r.c)
	r.state.connected(err == nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := newSession(r, conn, page)
	for ctx.Err() == nil && r.lease.held() {
		wait, err := s.turn(ctx)
		if err != nil {
			return err
		}
		if wait > 0 {
			r.pause(ctx, wait)
		}
	}
	r.upkeep = upkeep{}
	return nil
}

// outlive returns a context that ends grace after ctx.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		process.Sleep(longer, grace)
		cancel()
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// pause waits for d, the end of ctx, or an event.
func (r *reader) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-r.wake:
	}
}

// backoff returns the wait after a failure: at least what the server asks for.
func (r *reader) backoff(retryAfter time.Duration) time.Duration {
	wait := min(firstWait<<min(r.failures, 10), longestWait)
	r.failures++
	wait = wait/2 + rand.N(wait/2)
	return max(wait, min(retryAfter, longestRetryAfter))
}

// failed notes an error of one side.
func (r *reader) failed(side string, err error) {
	r.metrics.errors.WithLabelValues(r.c.Label(), side).Inc()
	r.state.failed(err.Error())
	if r.failing.Due(time.Now()) {
		r.log.Warn("relay failed", "side", side, "error", err)
	}
}

// since returns since when a row waits.
func (r *reader) since(row *source.Row) time.Time { return time.Now().Add(r.c.MinAge - row.Age) }

// scanned notes a completed scan.
func (r *reader) scanned(oldest time.Time, waiting int, problem string) {
	r.failures = 0
	r.state.completed(oldest, waiting, problem)
	if problem == "" && r.failing.Over() {
		r.log.Info("relay source is read again")
	}
}
