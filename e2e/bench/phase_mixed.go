package main

import "time"

// mixed measures both at the same time: callbacks are accepted one a request, and each is delivered at once.
// The clock stops at the last arrival.
func mixed(s *session) {
	arriving := s.receiver.expect(s.n)
	before, start, profiled := s.cpu(), time.Now(), s.profile("mixed")
	s.acceptSingles(s.n, time.Time{})
	at := s.arrived(arriving)
	s.putCPU(cpuTime, before, s.cpu(), s.n)
	s.figures[rate] = perSecond(at, start)
	profiled()
}
