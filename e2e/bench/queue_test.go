package bench

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// A queue is one of those that the dispatcher is compared with, as its producer sees it. Their workers are processes of
// their own, which post as the floor does.
type queue interface {
	// fill puts in n, in the cheapest way that the queue has.
	fill(ctx context.Context, n int) error
	// put puts in number n alone.
	put(ctx context.Context, n int) error
	// done fails unless n were worked on with success since the queue was made, and nothing is left. No worker may run.
	done(ctx context.Context, n int) error
}

// measureQueue fills the queue before its worker starts, and drains it. A worker that has stopped in order has committed
// every result.
func measureQueue(t *testing.T, r *round, role, store string, q queue) figures {
	f := figures{}
	total := 0
	if r.has(phaseDrain) {
		start := time.Now()
		if err := q.fill(t.Context(), r.n); err != nil {
			t.Fatalf("fill: %v", err)
		}
		total += r.n
		f[filled] = float64(r.n) / time.Since(start).Seconds()
		w := startWorker(t, r, role, store)
		r.receiver.expect(t, r.n)
		before := r.cpu(t)
		start = time.Now()
		w.tell(t, sayGo)
		at := w.drained(t, r, r.n)
		f.putCPU(deliverCPU, before, r.cpu(t), r.n, r.counted)
		f[delivered] = rate(at, start)
		r.putMemory(t, f)
	}
	if r.has(phaseLatency) && r.concurrency == connections {
		n := lowRate * loopSeconds
		w := startWorker(t, r, role, store)
		r.receiver.expect(t, n)
		w.tell(t, sayGo)
		loop, err := openLoop(t.Context(), lowRate, n, func() func(int) error {
			return func(n int) error { return q.put(t.Context(), n) }
		})
		if err != nil {
			t.Fatalf("put: %v", err)
		}
		loop.put(f, lowLatency, w.drained(t, r, n))
		total += n
	}
	if err := q.done(t.Context(), total); err != nil {
		t.Errorf("what is left: %v", err)
	}
	return f
}

// A worker is the process that works on a queue.
type worker struct{ *child }

func startWorker(t *testing.T, r *round, role, store string) worker {
	t.Helper()
	c := startChild(t, role, childConfig{Receiver: r.receiver.url, Concurrency: r.concurrency, Store: store})
	r.roles[c.pid] = role
	return worker{c}
}

// drained waits until all have arrived, stops the worker and returns when they arrived.
func (w worker) drained(t *testing.T, r *round, n int) []time.Time {
	t.Helper()
	at, err := r.receiver.arrivals(t.Context(), n, drainLimit)
	if err != nil {
		t.Fatal(err)
	}
	w.tell(t, sayStop)
	w.hear(t, sayStopped)
	if err := r.receiver.once(t.Context()); err != nil {
		t.Error(err)
	}
	return at
}

// work is a worker's process, but for what its queue does: it makes a sender, starts when it is told to, and stops.
func work(s stage, cfg childConfig, start func(*sender) (stop func() error, err error)) error {
	sender := newSender(cfg.Receiver, cfg.Concurrency)
	if err := sender.warmUp(cfg.Concurrency); err != nil {
		return err
	}
	if err := s.say(sayReady); err != nil {
		return err
	}
	if err := s.await(sayGo); err != nil {
		return err
	}
	stop, err := start(sender)
	if err != nil {
		return err
	}
	if err := s.await(sayStop); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	if err := s.say(sayStopped); err != nil {
		return err
	}
	return s.awaitEnd()
}

// inParallel calls a function with 0 to n-1, from so many goroutines, until one fails.
func inParallel(goroutines, n int, each func(int) error) error {
	var next atomic.Int64
	var group errgroup.Group
	for range goroutines {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := each(i); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}
