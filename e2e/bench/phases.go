package main

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// drain measures the delivery of a backlog that falls due at one time. The clock starts at that time and
// stops at the last arrival. The CPU time ends when every result is committed.
func drain(s *session) {
	b := s.prepare(s.n, dueAll)
	start := b.due(0)
	time.Sleep(time.Until(start)) // the planned start; polling would cost CPU time
	before, profiled := s.cpu(), s.profile("drain")
	at := s.arrived(b.arriving)
	s.putCPU(cpuTime, before, s.cpu(), s.n)
	s.figures[rate] = perSecond(at, start)
	s.putMemory()
	profiled()
}

// drainQueue fills the queue before its worker starts, and drains it. The clock starts with the worker.
func drainQueue(r *run, q queue) {
	r.check("fill", q.fill(r.Context(), r.n))
	w := r.startWorker(q)
	before, start := r.cpu(), time.Now()
	arriving := r.receiver.expect(r.n)
	r.check("go", w.say(wordGo))
	at := r.drained(arriving, w)
	r.putCPU(cpuTime, before, r.cpu(), r.n)
	r.figures[rate] = perSecond(at, start)
	r.putMemory()
	r.check("check that the queue is empty", q.done(r.Context(), r.n))
}

// acceptSingly measures accepts with one callback a request. No callback falls due within the run. The CPU
// time ends when the index has all of them.
func acceptSingly(s *session) {
	s.accepting("single", func(due time.Time) time.Duration { return s.acceptSingles(s.n, due) })
}

// accepting measures one way of accepting n callbacks.
func (s *session) accepting(name string, accept func(due time.Time) time.Duration) {
	due := time.Now().Add(farAhead).Truncate(time.Millisecond)
	before, profiled := s.cpu(), s.profile(name)
	s.figures[rate] = float64(s.n) / accept(due).Seconds()
	s.scheduled += s.n
	s.indexed(s.scheduled, due)
	s.putCPU(cpuTime, before, s.cpu(), s.n)
	profiled()
}

// acceptInBatches is acceptSingly with a hundred callbacks a request.
func acceptInBatches(s *session) {
	s.accepting("batch", func(due time.Time) time.Duration { return s.acceptBatches(s.n, dueAll(due)) })
}

// mixed measures accept and delivery at the same time: each callback is accepted in its own request and
// delivered at once. The clock stops at the last arrival.
func mixed(s *session) {
	arriving := s.receiver.expect(s.n)
	before, start, profiled := s.cpu(), time.Now(), s.profile("mixed")
	s.acceptSingles(s.n, time.Time{})
	at := s.arrived(arriving)
	s.putCPU(cpuTime, before, s.cpu(), s.n)
	s.figures[rate] = perSecond(at, start)
	profiled()
}

const (
	// latencyRate is the rate of the latency phase in callbacks a second. It leaves the machine mostly idle.
	latencyRate = 500
	// latencyCallbacks is the number of callbacks of that phase.
	latencyCallbacks = 4 * latencyRate
)

// latency measures the time from a request, and from its response, to the arrival of the callback. The time
// from the response may be negative, because the dispatcher does not wait until the caller has read it.
func latency(s *session) {
	arriving := s.receiver.expect(latencyCallbacks)
	sent, err := openLoop(s.Context(), latencyRate, latencyCallbacks, func() func(int) error {
		p := s.newPoster("/v1/callbacks")
		return func(n int) error { return p.acceptOne(n, time.Time{}) }
	})
	s.check("open loop", err)
	sent.put(s.figures, s.arrived(arriving))
}

// queueLatency is latency for a queue, whose requests are calls of its Go client.
func queueLatency(r *run, q queue) {
	w := r.startWorker(q)
	arriving := r.receiver.expect(latencyCallbacks)
	r.check("go", w.say(wordGo))
	sent, err := openLoop(r.Context(), latencyRate, latencyCallbacks, func() func(int) error {
		return func(n int) error { return q.put(r.Context(), n) }
	})
	r.check("open loop", err)
	sent.put(r.figures, r.drained(arriving, w))
	r.check("check that the queue is empty", q.done(r.Context(), latencyCallbacks))
}

// A sending has the times at which each request of an open loop began and got its response.
type sending struct{ began, answered []time.Time }

// openLoop makes n requests at a rate. Each begins at its time, whether or not earlier ones have returned.
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

const (
	// latenessRate is how many delayed callbacks fall due in a second.
	latenessRate      = 400
	latenessCallbacks = 10 * latenessRate
)

// lateness measures how long after its due time a delayed callback arrives. An arrival before the due time
// fails the run.
func lateness(s *session) {
	b := s.prepare(latenessCallbacks, spreadDue)
	late, tooEarly := lateBy(s.arrived(b.arriving), b.due)
	s.figures.putQuantiles("", late)
	s.figures[largest] = slices.Max(late)
	if tooEarly > 0 {
		s.Errorf("%d delayed callbacks arrived early, by up to %.3f ms", tooEarly, -slices.Min(late))
	}
}

// spreadDue spreads due times over ten seconds, in another order than that of the accepts.
func spreadDue(start time.Time) func(int) time.Time {
	return func(i int) time.Time {
		const prime = 7919
		shuffled := int64(i) * prime % latenessCallbacks
		return start.Add(time.Duration(shuffled) * time.Second / latenessRate).Truncate(time.Millisecond)
	}
}

// lateBy returns how many ms after its due time each callback arrived, and how many arrived before it.
func lateBy(arrived []time.Time, due func(int) time.Time) (late []float64, tooEarly int) {
	for i, at := range arrived {
		late = append(late, milliseconds(at.Sub(due(i))))
		if at.Before(due(i)) {
			tooEarly++
		}
	}
	return late, tooEarly
}
