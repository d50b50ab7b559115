package main

import "time"

// acceptSingly measures how callbacks are accepted one a request. None falls due within the run. The CPU time
// ends when the index holds them too.
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
