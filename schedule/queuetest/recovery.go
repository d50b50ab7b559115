package queuetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// attemptTime is how long every attempt of a recovery takes, and retryAfter when what got no answer is
	// due again: much sooner than any ladder says, so that something is always due.
	attemptTime = 500 * time.Millisecond
	retryAfter  = time.Second
	// perEndpoint is how many items each endpoint has.
	perEndpoint = 24
)

// Recovery lets so many endpoints fail in the same moment and come back in the same moment, with three owners
// that claim whatever they are given. While they are down each gets one probe at a time, and not all of them
// at once; when they are back each begins with one attempt at a time, and doubles with its answers.
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
	// No more than so many at a time, until the outage has lasted for long enough.
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
	f.quiet()
}

// A recovery is what is known of the endpoints and of what is in flight.
type recovery struct {
	*fixture
	lanes  map[int64]*endpoint
	flight []flying // in the order in which they end
	down   bool
	now    int64
	done   int
}

type endpoint struct {
	attempts, flying, most int
	answers                int
	ended                  int64 // when the last attempt ended
}

type flying struct {
	end   int64
	lease schedule.Lease
}

// runFor lets time pass from event to event, with a claim of each owner at every one.
func (r *recovery) runFor(d time.Duration) {
	r.Helper()
	for end := r.now + d.Milliseconds(); r.now < end; {
		r.land()
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

// claimAs claims until nothing more is given, and returns when the index has something to do again.
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

// begin is an attempt that begins. An endpoint has no more in flight than its answers allow.
func (r *recovery) begin(l schedule.Lease, now int64) {
	r.Helper()
	e := r.lanes[l.Lane]
	e.attempts++
	e.flying++
	e.most = max(e.most, e.flying)
	if allowed := 1 << max(e.answers-1, 0); !r.down && e.flying > allowed {
		r.Fatalf("an endpoint that is back and gave %d answers has %d in flight, want %d at most", e.answers,
			e.flying, allowed)
	}
	r.flight = append(r.flight, flying{now + attemptTime.Milliseconds(), l})
}

// land settles the attempts that have ended.
func (r *recovery) land() {
	r.Helper()
	for {
		var ended []schedule.Settlement
		for len(r.flight) > 0 && r.flight[0].end <= r.now && len(ended) < schedule.MaxBatch {
			l := r.flight[0].lease
			r.flight = r.flight[1:]
			e := r.lanes[l.Lane]
			e.flying--
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

// checkSpread: endpoints that failed together are not probed together.
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

// checkProbes: one probe at a time for each endpoint, as often as its breaker rests.
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

// checkBack: every endpoint is back, and nothing waits.
func (r *recovery) checkBack() {
	r.Helper()
	if want := len(r.lanes) * perEndpoint; r.done != want {
		r.Fatalf("%d of %d items are done", r.done, want)
	}
	if s := r.stats(); s.OpenBreakers != 0 || s.Delayed+s.Ready+s.Leased != 0 {
		r.Fatalf("when all are back: %+v", s)
	}
}
