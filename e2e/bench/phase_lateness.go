package main

import (
	"slices"
	"time"
)

const (
	// latenessRate is how many delayed callbacks fall due in a second.
	latenessRate      = 400
	latenessCallbacks = 10 * latenessRate
)

// lateness measures how long after its due time a delayed callback arrives. One that arrives before it fails
// the run.
func lateness(s *session) {
	b := s.prepare(latenessCallbacks, spreadDue)
	late, tooEarly := lateBy(s.arrived(b.arriving), b.due)
	s.figures.putQuantiles("", late)
	s.figures[largest] = slices.Max(late)
	if tooEarly > 0 {
		s.Errorf("%d delayed callbacks arrived early, by up to %.3f ms", tooEarly, -slices.Min(late))
	}
}

// spreadDue spreads due times over ten seconds, in another order than that in which callbacks are accepted.
func spreadDue(start time.Time) func(int) time.Time {
	return func(i int) time.Time {
		const prime = 7919
		shuffled := int64(i) * prime % latenessCallbacks
		return start.Add(time.Duration(shuffled) * time.Second / latenessRate).Truncate(time.Millisecond)
	}
}

// lateBy is how many ms after its due time each callback arrived, and how many arrived before it.
func lateBy(arrived []time.Time, due func(int) time.Time) (late []float64, tooEarly int) {
	for i, at := range arrived {
		late = append(late, milliseconds(at.Sub(due(i))))
		if at.Before(due(i)) {
			tooEarly++
		}
	}
	return late, tooEarly
}
