package bench

import (
	"fmt"
	"testing"
	"time"
)

const (
	// warmCallbacks open the connections and let the lane reach its concurrency.
	warmCallbacks = 2000
	// settleTime is how long the index may lag behind SQL before a backlog is due.
	settleTime = 30 * time.Second
	// preparations is how often a backlog is tried to be accepted before it is due.
	preparations = 3
	// farAhead is when what is only accepted is due: after the run.
	farAhead = 24 * time.Hour
)

func measureEmbedded(t *testing.T, r *round) figures {
	return measureDispatcher(t, r, embeddedArgs(t))
}

func measureFull(t *testing.T, r *round) figures { return measureDispatcher(t, r, fullArgs(t)) }

// A session is one dispatcher that is measured, phase by phase.
type session struct {
	*dispatcher
	*round
	t *testing.T
	f figures
	// succeeded and scheduled are how many it has delivered, and how many are accepted and not yet due.
	succeeded, scheduled int
	// batched is how long a callback of a batch took to be accepted.
	batched time.Duration
}

func measureDispatcher(t *testing.T, r *round, args []string) figures {
	d := startDispatcher(t, r.binary, r.concurrency, r.receiver, args)
	r.roles[d.pid] = roleDispatcher
	s := &session{dispatcher: d, round: r, t: t, f: figures{}}
	s.warm()
	if r.has(phaseDrain) {
		s.drain()
	}
	if r.concurrency == connections { // what follows does not depend on it
		if r.has(phaseAccept) {
			s.accept()
		}
		if r.has(phaseLatency) {
			s.latency()
		}
		if r.has(phaseLateness) {
			s.lateness()
		}
	}
	return s.f
}

// check ends the measurement with an error, if it is one.
func (s *session) check(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

func (s *session) warm() {
	s.receiver().expect(s.t, warmCallbacks)
	took, err := s.acceptBatches(warmCallbacks, dueAll(time.Time{}))
	s.check("warm up", err)
	s.batched = took / warmCallbacks
	s.arrived(warmCallbacks)
}

// receiver resolves that both the dispatcher and the round have one: the same.
func (s *session) receiver() *receiver { return s.round.receiver }

// arrived waits until all of a measurement have arrived and their results are committed, and returns when they arrived.
func (s *session) arrived(n int) []time.Time {
	s.t.Helper()
	at, err := s.receiver().arrivals(s.t.Context(), n, drainLimit)
	s.check("arrivals", err)
	s.succeeded += n
	s.check("commit", s.awaitStats(s.t.Context(), "every result is committed", time.Minute, func(st stats) bool {
		return st.States.Succeeded == s.succeeded && st.States.Scheduled == s.scheduled
	}))
	s.check("arrivals", s.receiver().once(s.t.Context()))
	return at
}

// drain accepts a backlog, all due at one time after the last accept, and lets it be delivered.
func (s *session) drain() {
	b := s.prepare(s.n, dueAll)
	s.f[batchAccepted] = float64(s.n) / b.took.Seconds()
	s.f.putCPU(batchCPU, b.before, b.after, s.n, s.counted)
	at := b.due(0)
	time.Sleep(time.Until(at)) // of the plan; polling meanwhile would cost CPU time
	idle := s.cpu(s.t)
	keep := s.profile("drain", s.n/5000)
	arrived := s.arrived(s.n)
	s.f.putCPU(deliverCPU, idle, s.cpu(s.t), s.n, s.counted)
	s.f[delivered] = rate(arrived, at)
	s.putMemory(s.t, s.f)
	keep()
}

// A backlog is accepted, and in the index, and not yet due.
type backlog struct {
	due           func(int) time.Time
	took          time.Duration      // to be accepted
	before, after map[string]float64 // CPU time
}

// prepare accepts n callbacks whose due times lie after a start, and returns when the index holds all of them. On a machine
// that was slower than foreseen, so that the start had come by then, it begins again.
func (s *session) prepare(n int, dueFrom func(start time.Time) func(int) time.Time) backlog {
	s.t.Helper()
	margin := s.batched*time.Duration(n)*3/2 + 1500*time.Millisecond
	for range preparations {
		s.receiver().expect(s.t, n)
		start := time.Now().Add(margin).Truncate(time.Millisecond)
		b := backlog{due: dueFrom(start), before: s.cpu(s.t)}
		var err error
		b.took, err = s.acceptBatches(n, b.due)
		s.check("accept a backlog", err)
		s.batched = b.took / time.Duration(n)
		s.indexed(s.scheduled+n, start)
		b.after = s.cpu(s.t)
		if time.Until(start) > 0 {
			return b
		}
		s.t.Logf("%d were accepted in %s and due in %s: again, with more time", n, b.took, margin)
		s.arrived(n)
		margin *= 3
	}
	s.t.Fatalf("a backlog was due before it was complete, %d times", preparations)
	return backlog{}
}

// indexed waits until the index holds so many that are not yet due, or until it is too late for that.
func (s *session) indexed(n int, until time.Time) {
	s.t.Helper()
	s.check("index", s.awaitStats(s.t.Context(), "the index holds what was accepted", settleTime, func(st stats) bool {
		return st.Index != nil && st.Index.Delayed == n || time.Now().After(until)
	}))
}

// accept posts callbacks one a request, which are never due here.
func (s *session) accept() {
	n := max(1, s.n/2)
	keep := s.profile("accept", s.n/10_000)
	before := s.cpu(s.t)
	due := time.Now().Add(farAhead).Truncate(time.Millisecond)
	took, err := s.acceptSingles(n, due)
	s.check("accept one by one", err)
	s.f[singleAccepted] = float64(n) / took.Seconds()
	s.scheduled += n
	s.indexed(s.scheduled, due)
	s.f.putCPU(singleCPU, before, s.cpu(s.t), n, s.counted)
	keep()
}

// profile begins a CPU profile of the dispatcher, if profiles are kept and this is the first round, and returns how
// to wait for its end. It may last longer than the phase: an idle process adds nothing to it.
func (s *session) profile(phase string, seconds int) (wait func()) {
	if s.profiles == "" || s.number > 1 {
		return func() {}
	}
	name := fmt.Sprintf("%s-%d-%s.pprof", s.key, s.concurrency, phase)
	done := make(chan error, 1)
	go func() { done <- s.keepProfile(s.profiles, name, max(1, seconds)) }()
	return func() {
		s.t.Helper()
		s.check("profile", <-done)
	}
}
