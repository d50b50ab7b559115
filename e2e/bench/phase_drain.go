package main

import "time"

// drain measures the delivery of a backlog, all of which falls due at one time. The clock starts at that time
// and stops at the last arrival; the CPU time ends when every result is committed.
func drain(s *session) {
	b := s.prepare(s.n, dueAll)
	start := b.due(0)
	time.Sleep(time.Until(start)) // of the plan; a poll would cost CPU time meanwhile
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
	at := w.drained(r, arriving)
	r.putCPU(cpuTime, before, r.cpu(), r.n)
	r.figures[rate] = perSecond(at, start)
	r.putMemory()
	r.check("what is left", q.done(r.Context(), r.n))
}
