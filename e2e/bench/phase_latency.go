package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// latencyRate is the callbacks a second at which latency is measured: the machine is not busy.
	latencyRate = 500
	// latencyCallbacks is how many there are.
	latencyCallbacks = 4 * latencyRate
)

// latency measures the time from a request to the arrival of its callback, and from the answer to the
// request. It may be less than zero from the answer: the dispatcher does not wait until the caller has read
// it.
func latency(s *session) {
	arriving := s.receiver.expect(latencyCallbacks)
	sent, err := openLoop(s.Context(), latencyRate, latencyCallbacks, func() func(int) error {
		p := s.newPoster("/v1/callbacks")
		return func(n int) error { return p.acceptOne(n, time.Time{}) }
	})
	s.check("open loop", err)
	sent.put(s.figures, s.arrived(arriving))
}

// queueLatency is the same of a queue, whose requests are calls of its Go client.
func queueLatency(r *run, q queue) {
	w := r.startWorker(q)
	arriving := r.receiver.expect(latencyCallbacks)
	r.check("go", w.say(wordGo))
	sent, err := openLoop(r.Context(), latencyRate, latencyCallbacks, func() func(int) error {
		return func(n int) error { return q.put(r.Context(), n) }
	})
	r.check("open loop", err)
	sent.put(r.figures, w.drained(r, arriving))
	r.check("what is left", q.done(r.Context(), latencyCallbacks))
}

// sending says when each request of an open loop began and was answered.
type sending struct{ began, answered []time.Time }

// openLoop makes n requests at a rate: each begins at its time, whether or not earlier ones were answered.
// newPost is called once for each connection.
func openLoop(ctx context.Context, rate float64, n int, newPost func() func(int) error) (sending, error) {
	sent := sending{make([]time.Time, n), make([]time.Time, n)}
	numbers := make(chan int)
	group, ctx := errgroup.WithContext(ctx)
	for range min(n, maxConnections) {
		group.Go(func() error {
			post := newPost()
			for i := range numbers {
				sent.began[i] = time.Now()
				if err := post(i); err != nil {
					return err
				}
				sent.answered[i] = time.Now()
			}
			return nil
		})
	}
	start := time.Now()
	for i := range n {
		time.Sleep(time.Until(start.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
		select {
		case numbers <- i:
		case <-ctx.Done():
			close(numbers)
			return sent, group.Wait()
		}
	}
	close(numbers)
	return sent, group.Wait()
}

func (s sending) put(f figures, arrived []time.Time) {
	fromRequest, fromAnswer := make([]float64, len(arrived)), make([]float64, len(arrived))
	for i, at := range arrived {
		fromRequest[i], fromAnswer[i] = milliseconds(at.Sub(s.began[i])), milliseconds(at.Sub(s.answered[i]))
	}
	f.putQuantiles("", fromRequest)
	f.putQuantiles(answered, fromAnswer)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
