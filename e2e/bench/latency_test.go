package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// lowRate is the rate, in callbacks a second, at which latency is measured on a machine that has time.
	lowRate = 500
	// loopSeconds is how long an open loop lasts.
	loopSeconds = 4
	// spreadRate is how many delayed callbacks are due in a second.
	spreadRate = 400
)

// An openLoopRun says when each request of an open loop began and was answered.
type openLoopRun struct{ began, answered []time.Time }

// openLoop makes n requests at a rate: each begins when the clock says so, whether or not earlier ones were answered. The
// function newPost is called once for each connection.
func openLoop(ctx context.Context, rate float64, n int, newPost func() func(int) error) (openLoopRun, error) {
	run := openLoopRun{make([]time.Time, n), make([]time.Time, n)}
	numbers := make(chan int)
	group, ctx := errgroup.WithContext(ctx)
	for range min(n, maxConnections) {
		group.Go(func() error {
			post := newPost()
			for i := range numbers {
				run.began[i] = time.Now()
				if err := post(i); err != nil {
					return fmt.Errorf("callback %d: %w", i, err)
				}
				run.answered[i] = time.Now()
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
			return run, group.Wait()
		}
	}
	close(numbers)
	return run, group.Wait()
}

// put adds the quantiles of how long it took from the request, and from its answer, to the arrival; and the rate that the loop
// reached.
func (run openLoopRun) put(f figures, name string, arrived []time.Time) {
	fromRequest, fromAnswer := make([]float64, len(arrived)), make([]float64, len(arrived))
	for i, at := range arrived {
		fromRequest[i], fromAnswer[i] = milliseconds(at.Sub(run.began[i])), milliseconds(at.Sub(run.answered[i]))
	}
	f.putQuantiles(name, fromRequest)
	f.putQuantiles(name+afterAnswer, fromAnswer)
	took := slices.MaxFunc(run.began, time.Time.Compare).Sub(slices.MinFunc(run.began, time.Time.Compare))
	f[name+loopRate] = float64(len(arrived)-1) / took.Seconds()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// latency measures at the low rate and at half of what this dispatcher can accept and deliver at the same time.
func (s *session) latency() {
	s.loop(lowLatency, lowRate)
	accepted, sent := s.f[singleAccepted], s.f[delivered]
	if accepted > 0 && sent > 0 { // both phases were measured
		// Accepting and delivering share the machine: one callback takes the time of both.
		s.loop(halfLatency, 1/(1/accepted+1/sent)/2)
	}
}

func (s *session) loop(name string, rate float64) {
	n := int(rate * loopSeconds)
	s.receiver().expect(s.t, n)
	run, err := openLoop(s.t.Context(), rate, n, func() func(int) error {
		p := s.newPoster("/v1/callbacks")
		return func(n int) error { return p.one(n, time.Time{}) }
	})
	s.check("open loop", err)
	run.put(s.f, name, s.arrived(n))
}

// lateness accepts delayed callbacks whose due times are spread over some seconds, and measures how late they arrive. One
// that arrives early is a mistake.
func (s *session) lateness() {
	n := max(1, s.n*8/100)
	due := s.prepare(n, func(start time.Time) func(int) time.Time {
		return func(i int) time.Time {
			shuffled := int64(i) * 7919 % int64(n) // a prime: what is accepted next is not due next
			return start.Add(time.Duration(shuffled) * time.Second / spreadRate).Truncate(time.Millisecond)
		}
	}).due
	late, early := lateBy(s.arrived(n), due)
	s.f.putQuantiles(lateness, late)
	s.f[lateness+largest] = slices.Max(late)
	s.f[lateness+earlyOnes] = float64(early)
	if early > 0 {
		s.t.Errorf("%d of %d delayed callbacks arrived early, by up to %.3f ms", early, n, -slices.Min(late))
	}
}

// lateBy is how many ms after its due time each arrived, and how many arrived before it.
func lateBy(arrived []time.Time, due func(int) time.Time) (late []float64, early int) {
	for i, at := range arrived {
		late = append(late, milliseconds(at.Sub(due(i))))
		if at.Before(due(i)) {
			early++
		}
	}
	return late, early
}
