package queuetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// attemptTime is the duration of every attempt of a recovery. retryAfter is the wait after an attempt
	// without an answer: much shorter than any tiers, so that some item is always due.
	attemptTime = 500 * time.Millisecond
	retryAfter  = time.Second
	// perEndpoint is the number of items of each endpoint.
	perEndpoint = 24
)

// Recovery lets a number of endpoints fail and recover at the same time, with three owners that claim
// everything. While they are down, each gets one probe at a time, and the probes are spread. After the
// recovery each starts with one attempt at a time, and its answers double that.
func Recovery(t *testing.T, h Harness, endpoints int) {
	f := newFixture(t, h)
	f.findLanes(endpoints)
	r := &recovery{fixture: f, lanes: make(map[int64]*endpoint, endpoints)}
	for _, lane := range f.lanes {
		r.lanes[lane] = new(endpoint)
	}
	for i := range f.lanes {
		f.ensure(f.items(i, perEndpoint)...)
	}
	r.now = f.Now()
	r.down = true
	r.runFor(25 * time.Second)
	if open := f.stats().OpenBreakers; open != int64(endpoints) {
		f.Fatalf("25 s after %d endpoints went down %d breakers are open", endpoints, open)
	}
	// Until the outage has lasted for BreakerSpan, the concurrency limits the attempts.
	most := schedule.StartConcurrency*(int(schedule.BreakerSpan/attemptTime)+2) + 1
	for _, e := range r.lanes {
		if e.attempts < schedule.BreakerAttempts || e.attempts > most {
			f.Fatalf("an endpoint was attempted %d times before its breaker opened, want %d at most",
				e.attempts, most)
		}
		e.attempts, e.most = 0, 0
	}
	r.checkSpread()
	down := 60 * time.Second
	r.runFor(down)
	r.checkProbes(down)
	r.down = false
	r.runFor(30 * time.Second)
	r.checkBack()
	f.expectNoRepair()
}

// A recovery is the state of the endpoints and of the attempts.
type recovery struct {
	*fixture
	lanes  map[int64]*endpoint
	flight []attempt // in the order of their ends
	down   bool
	now    int64
	done   int
}

type endpoint struct {
	attempts, inFlight, most int
	answers                  int
	ended                    int64 // when the last attempt ended
}

type attempt struct {
	end   int64
	lease schedule.Lease
}

// runFor lets time pass from event to event. Every owner claims at each event.
func (r *recovery) runFor(d time.Duration) {
	r.Helper()
	for end := r.now + d.Milliseconds(); r.now < end; {
		r.settleEnded()
		next := end
		for owner := range 3 {
			next = min(next, r.claimAs(owner))
		}
		if len(r.flight) > 0 {
			next = min(next, r.flight[0].end)
		}
		if left := next - r.Now(); left > 0 {
			r.pass(time.Duration(left) * time.Millisecond)
		}
		r.now = max(r.Now(), r.now)
	}
}

// claimAs claims until the index gives nothing more, and returns the time of its next event.
func (r *recovery) claimAs(owner int) int64 {
	r.Helper()
	for {
		req := r.wide()
		req.Owner = fmt.Sprint("owner-", owner)
		c := r.claim(req)
		for _, l := range c.Leases {
			r.begin(l, c.Now)
		}
		if !c.More && len(c.Leases) == 0 {
			if c.Next == 0 {
				return c.Now + 1000
			}
			return c.Next
		}
	}
}

// begin begins an attempt. A recovered endpoint must not have more attempts in flight than its answers allow.
func (r *recovery) begin(l schedule.Lease, now int64) {
	r.Helper()
	e := r.lanes[l.Lane]
	e.attempts++
	e.inFlight++
	e.most = max(e.most, e.inFlight)
	if allowed := 1 << max(e.answers-1, 0); !r.down && e.inFlight > allowed {
		r.Fatalf("an endpoint that is back and gave %d answers has %d in flight, want %d at most", e.answers,
			e.inFlight, allowed)
	}
	r.flight = append(r.flight, attempt{now + attemptTime.Milliseconds(), l})
}

// settleEnded settles the attempts that have ended.
func (r *recovery) settleEnded() {
	r.Helper()
	for {
		var ended []schedule.Settlement
		for len(r.flight) > 0 && r.flight[0].end <= r.now && len(ended) < schedule.MaxBatch {
			l := r.flight[0].lease
			r.flight = r.flight[1:]
			e := r.lanes[l.Lane]
			e.inFlight--
			e.ended = r.now
			s := settled(l, schedule.Ack)
			s.Signal = schedule.Answered
			if r.down {
				s.Outcome, s.Signal, s.Due, s.Retry = schedule.Reschedule, schedule.Unanswered,
					r.now+retryAfter.Milliseconds(), true
			} else {
				e.answers++
				r.done++
			}
			ended = append(ended, s)
		}
		if len(ended) == 0 {
			return
		}
		r.apply(ended...)
	}
}

// checkSpread checks that endpoints that failed together are not probed together.
func (r *recovery) checkSpread() {
	r.Helper()
	tenths := make(map[int64]int)
	for _, s := range each(r.fixture, Index.LaneStates, r.fixture.lanes) {
		tenths[s.ProbeAt/100]++
	}
	for at, n := range tenths {
		if n > len(r.lanes)/3 {
			r.Fatalf("%d of %d probes are due within the tenth of a second from %d on", n, len(r.lanes),
				at*100)
		}
	}
}

// checkProbes checks that each endpoint had one probe at a time, each time its breaker had rested.
func (r *recovery) checkProbes(d time.Duration) {
	r.Helper()
	rest := schedule.BreakerRest + attemptTime
	least, most := int(d/(rest*12/10))-1, int(d/rest)+1
	for _, e := range r.lanes {
		if e.most > 1 {
			r.Fatalf("an endpoint whose breaker is open had %d in flight", e.most)
		}
		if e.attempts < least || e.attempts > most {
			r.Fatalf("an endpoint was probed %d times in %s, want %d to %d times", e.attempts, d, least, most)
		}
	}
}

// checkBack checks that every endpoint works again, and that no item is left.
func (r *recovery) checkBack() {
	r.Helper()
	if want := len(r.lanes) * perEndpoint; r.done != want {
		r.Fatalf("%d of %d items are done", r.done, want)
	}
	if s := r.stats(); s.OpenBreakers != 0 || s.Delayed+s.Ready+s.Leased != 0 {
		r.Fatalf("when all are back: %+v", s)
	}
}
