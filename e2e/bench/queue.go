package main

import (
	"context"
	"time"
)

// A queue is one of those that the dispatcher is compared with, as its producer sees it. Its worker is a
// process that posts as the floor does.
type queue interface {
	// worker returns the worker's role and the URL of what it works on.
	worker() (role, store string)
	// fill puts in n callbacks in the cheapest way that the queue has.
	fill(ctx context.Context, n int) error
	// put puts in callback n alone.
	put(ctx context.Context, n int) error
	// done fails unless n callbacks were worked on with success and nothing is left. No worker may run.
	done(ctx context.Context, n int) error
}

// A worker is a queue's process.
type worker struct{ conversation }

func (r *run) startWorker(q queue) worker {
	role, store := q.worker()
	cfg := processConfig{Receiver: r.receiver.url, Concurrency: r.concurrency, Count: r.n, Store: store}
	return worker{r.start(role, cfg)}
}

// drained waits until all callbacks have arrived and the worker has committed their results, and returns when
// each arrived.
func (w worker) drained(r *run, arriving *arrivals) []time.Time {
	at := arriving.await(r, arrivalLimit)
	w.stop(r)
	arriving.checkOnce(r)
	return at
}

// stop lets the worker finish what it has begun.
func (w worker) stop(r *run) {
	r.check("stop", w.say(wordStop))
	r.check("stop", w.await(wordStopped))
}

// work is the worker's process, but for the work itself, which start begins.
func work(words conversation, cfg processConfig, start func(*sender) (stop func() error, err error)) error {
	s := newSender(cfg.Receiver, cfg.Concurrency)
	if err := s.warmUp(cfg.Concurrency); err != nil {
		return err
	}
	if err := words.say(wordReady); err != nil {
		return err
	}
	if err := words.await(wordGo); err != nil {
		return err
	}
	stop, err := start(s)
	if err != nil {
		return err
	}
	if err := words.await(wordStop); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	if err := words.say(wordStopped); err != nil {
		return err
	}
	return words.awaitEnd()
}
