package attempt

import (
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// prefetchTime is the time for which prefetched callbacks should last, at the rate at which attempts
	// begin. It sizes the prefetch of a lane and that of the process. maxPrefetch bounds both.
	prefetchTime = 20 * time.Millisecond
	maxPrefetch  = 256
	// minPrefetch is the least number of places of a lane that is prefetched. A smaller lane gains nothing.
	minPrefetch = 4
)

// laneLimits keep the running attempts of each lane within the lane's limit, and keep a full lane busy (ADR
// 0032). A lane with a limit of N has N places.
//
// The index counts leases, but a lease lasts longer than its attempt runs: the stamp comes before the
// attempt, and the result waits for its commit. Two rules keep that time from using up places:
//
//   - A claim names the leases whose attempts have ended with an answer. The index counts them no longer.
//   - A claim prefetches from a full lane: it brings leases beyond the lane's limit, which do not count. The
//     attempt of such a lease begins when another attempt of the lane has ended, in its place. The claim or
//     settlement that stops counting the ended lease names this one as its successor, and the index counts it
//     from the same script on.
//
// A lease of this process is in one of these states:
//
//	state                          counts in the index   kept in
//	prefetched, being stamped      no                    stamping
//	prefetched, stamped, waits     no                    waiting
//	has a place of its own         yes                   open only
//	has the place of an ended one  no                    uncounted
//	has ended, not named yet       yes                   ended
//	has ended and was named        no                    successors, if it has one
//
// Invariant: len(uncounted) <= len(ended). Each uncounted lease stands for one that has ended and still
// counts. So in each lane the leases that count are at least as many as the running attempts, as long as
// leases do not expire. While it is unknown whether the index got a name, the lease or its successor counts.
//
// Every message may be repeated, lost or late. Naming a lease twice changes nothing. A lease that is not
// named counts until it is settled. An attempt that timed out, got no answer, or got a Retry-After keeps its
// place until it is settled: the index must know this before the next attempt of the lane begins.
//
// A laneLimits has its own lock and calls no other part while it holds it. It is tested alone
// (TestLaneLimits), and with two processes on one index (TestLaneLimitsKeepConcurrency).
type laneLimits struct {
	shardOf func(lane int64) int

	mu     sync.Mutex
	shards []shardLimits
}

// shardLimits are the lanes of one shard.
type shardLimits struct {
	lanes map[int64]*laneLimit
	// claiming: a claim is under way. named are the ended leases that it names.
	claiming bool
	named    []schedule.EndedLease
	// successors maps a named lease to its successor, until the result of the named lease is settled.
	successors map[schedule.LeaseRef]successor
}

// A successor is the lease that the index counts in place of a named lease. known: a claim with that name was
// answered. Until then the settlement of the named lease names the successor again.
type successor struct {
	lease schedule.LeaseRef
	known bool
}

// A laneLimit is a lane of which this process has leases.
type laneLimit struct {
	// open counts the leases whose attempts have not ended.
	open int
	// stamping and waiting are the prefetched leases without a place.
	stamping map[schedule.LeaseRef]bool
	waiting  []ready
	// ended and uncounted are described at laneLimits. An uncounted lease whose attempt ended without an
	// answer stays in uncounted until it is settled.
	ended, uncounted []*schedule.Lease
	// stopped counts results that stop the lane and that the index does not have yet: a time-out, a
	// Retry-After or a poll's hold. Above 0 nothing begins. holdKnown is when the index got the last hold:
	// what was claimed before must not begin, because that claim did not respect it.
	stopped   int
	holdKnown time.Time
	// full: at the last claim the lane had more ready items and no place for them. requested: the claim under
	// way may bring some of these.
	full, requested bool
	// averageTime is the moving average of how long attempts take.
	averageTime time.Duration
}

func newLaneLimits(shardOf func(lane int64) int, shards int) *laneLimits {
	limits := &laneLimits{shardOf: shardOf, shards: make([]shardLimits, shards)}
	for i := range limits.shards {
		limits.shards[i].lanes = make(map[int64]*laneLimit)
		limits.shards[i].successors = make(map[schedule.LeaseRef]successor)
	}
	return limits
}

// prefetched returns how many leases have no place.
func (ln *laneLimit) prefetched() int { return len(ln.stamping) + len(ln.waiting) }

// placed returns how many leases have a place and an attempt that has not ended.
func (ln *laneLimit) placed() int { return ln.open - ln.prefetched() }

// free returns how many places are free: their attempts have ended, and no other lease has taken them.
func (ln *laneLimit) free() int { return len(ln.ended) - len(ln.uncounted) }

// prefetchSize returns how many leases should be prefetched: as many as the lane sends in prefetchTime.
func (ln *laneLimit) prefetchSize() int {
	places := ln.placed() + max(ln.free(), 0)
	if !ln.full || ln.stopped > 0 || ln.averageTime == 0 || places < minPrefetch {
		return 0
	}
	return min(int(time.Duration(places)*prefetchTime/ln.averageTime), maxPrefetch)
}

// wantsClaim returns whether a claim would bring a batch that is worth it: half of the prefetch has begun or,
// in a lane without prefetch, half of the places are free.
func (ln *laneLimit) wantsClaim() bool {
	if size := ln.prefetchSize(); size > 0 {
		return ln.prefetched() <= size/2
	}
	return ln.full && ln.stopped == 0 && ln.free() >= max(ln.placed(), 1)
}

// beginClaim returns the Ended and the Prefetch of the shard's next claim request. Its claimer calls it
// before each claim; endClaim or failClaim must follow, and a shard has one claim at a time. A lease is named
// once. If the claim fails, the settlement of the lease names its successor instead; without a successor the
// lease may count until it is settled. Naming comes before the size of the prefetch, because it moves
// successors to places that count. The returned leases are valid until the next beginClaim of the shard.
func (limits *laneLimits) beginClaim(
	shard int,
) (named []schedule.EndedLease, prefetch []schedule.LanePrefetch) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	s := &limits.shards[shard]
	s.claiming, s.named = true, s.named[:0]
	for lane, ln := range s.lanes {
		ln.requested = false
		if ln.stopped > 0 {
			continue // this process would put the leases of a stopped lane back
		}
		if count := min(len(ln.ended), schedule.MaxEnded-len(s.named)); count > 0 {
			s.name(ln, count)
			ln.requested = true
		}
		if more := ln.prefetchSize() - ln.prefetched(); more > 0 && len(prefetch) < schedule.MaxPrefetch {
			prefetch = append(prefetch, schedule.LanePrefetch{Lane: lane, Max: more})
			ln.requested = true
		}
	}
	return s.named, prefetch
}

// name moves count ended leases of the lane to the named ones. As far as this process knows, the index counts
// their successors from now on.
func (s *shardLimits) name(ln *laneLimit, count int) {
	for _, l := range ln.ended[:count] {
		e := schedule.EndedLease{LeaseRef: l.LeaseRef(), Next: ln.successor()}
		if e.Next.ID != "" {
			s.successors[e.LeaseRef] = successor{lease: e.Next}
		}
		s.named = append(s.named, e)
	}
	ln.ended = slices.Delete(ln.ended, 0, count)
}

// successor removes and returns the lease that the index should count in place of an ended one: an uncounted
// lease, or else a prefetched lease that is being stamped, which has a place from now on. The zero value:
// there is none.
func (ln *laneLimit) successor() schedule.LeaseRef {
	if len(ln.uncounted) > 0 {
		return pop(&ln.uncounted).LeaseRef()
	}
	for next := range ln.stamping {
		delete(ln.stamping, next)
		return next
	}
	return schedule.LeaseRef{}
}

func pop[T any](list *[]T) T {
	first := (*list)[0]
	*list = slices.Delete(*list, 0, 1)
	return first
}

// endClaim ends a claim of the shard that was answered, with its leases. short: the claim returned fewer
// leases than it had slots. endClaim returns whether to claim again at once, and the callbacks that the
// caller must put back.
func (limits *laneLimits) endClaim(
	shard int, leases []schedule.Lease, short bool,
) (again bool, back []ready) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	s := &limits.shards[shard]
	s.claiming = false
	for i := range s.named {
		if next, ok := s.successors[s.named[i].LeaseRef]; ok {
			next.known = true
			s.successors[s.named[i].LeaseRef] = next
		}
	}
	for i := range leases {
		l := &leases[i]
		ln := limits.laneOf(l.Lane)
		ln.open++
		ln.full, ln.requested = l.Full, false
		if l.Prefetched {
			ln.stamping[l.LeaseRef()] = true
		}
	}
	for lane, ln := range s.lanes {
		if ln.requested && short {
			ln.full = false // the claim had slots left, so the lane has nothing ready
		}
		again = again || ln.wantsClaim()
		back = append(back, s.releaseWaiting(lane, ln)...)
	}
	return again, back
}

// failClaim ends a claim that was not answered; the index may have executed it. So successors stay unknown,
// and the settlements name them again. It returns the callbacks that the caller must put back.
func (limits *laneLimits) failClaim(shard int) (back []ready) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	s := &limits.shards[shard]
	s.claiming = false
	for lane, ln := range s.lanes {
		back = append(back, s.releaseWaiting(lane, ln)...)
	}
	return back
}

// laneOf returns the lane, and creates it if this process has nothing of it.
func (limits *laneLimits) laneOf(lane int64) *laneLimit {
	s := &limits.shards[limits.shardOf(lane)]
	ln := s.lanes[lane]
	if ln == nil {
		ln = &laneLimit{stamping: make(map[schedule.LeaseRef]bool)}
		s.lanes[lane] = ln
	}
	return ln
}

// lookup returns the number of the lane's shard, the shard, and the lane; the lane is nil if this process has
// nothing of it.
func (limits *laneLimits) lookup(lane int64) (shard int, s *shardLimits, ln *laneLimit) {
	shard = limits.shardOf(lane)
	s = &limits.shards[shard]
	return shard, s, s.lanes[lane]
}

// releaseWaiting removes and returns the waiting callbacks if the lane is stopped, or if no place will become
// free for them. It forgets the lane if nothing of it is left.
func (s *shardLimits) releaseWaiting(lane int64, ln *laneLimit) (back []ready) {
	if ln.stopped > 0 || s.nothingEnds(ln) {
		back, ln.waiting = ln.waiting, nil
		ln.open -= len(back)
	}
	if ln.open == 0 && len(ln.ended) == 0 && ln.stopped == 0 && !s.claiming {
		delete(s.lanes, lane)
	}
	return back
}

// nothingEnds returns whether neither a running attempt nor a claim under way can give a waiting callback its
// place. Without this check callbacks would wait for ever in a drain.
func (s *shardLimits) nothingEnds(ln *laneLimit) bool { return ln.placed() == 0 && !s.claiming }

// drop removes a lease that is not attempted. It returns the other callbacks of the lane that the caller must
// put back. It compares leases by reference and token: the same callback may already be leased again.
func (limits *laneLimits) drop(l *schedule.Lease) (back []ready) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	_, s, ln := limits.lookup(l.Lane)
	dropped := l.LeaseRef()
	delete(ln.stamping, dropped)
	ln.uncounted = slices.DeleteFunc(ln.uncounted, func(u *schedule.Lease) bool {
		return u.LeaseRef() == dropped
	})
	ln.open--
	return s.releaseWaiting(l.Lane, ln)
}

// A turn says what a stamped callback does now.
type turn int

const (
	// begins: it has a place.
	begins turn = iota
	// waits: end returns it when another attempt of its lane has ended.
	waits
	// goesBack: its lane is stopped, or no place will become free. The caller drops the lease and puts the
	// callback back.
	goesBack
)

// start returns what a stamped callback does now. Only with mayWait the answer may be waits.
func (limits *laneLimits) start(r *ready, mayWait bool) turn {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	_, s, ln := limits.lookup(r.lease.Lane)
	lease := r.lease.LeaseRef()
	prefetched := ln.stamping[lease]
	switch {
	case ln.stops(r):
		return goesBack
	case !prefetched:
		return begins
	case ln.free() > 0:
		ln.uncounted = append(ln.uncounted, r.lease)
		delete(ln.stamping, lease)
		return begins
	case !mayWait || s.nothingEnds(ln):
		return goesBack
	}
	ln.waiting = append(ln.waiting, *r)
	delete(ln.stamping, lease)
	return waits
}

// stops returns whether a stamped callback of the lane must not begin.
func (ln *laneLimit) stops(r *ready) bool { return ln.stopped > 0 || r.claimed.Before(ln.holdKnown) }

// stopped returns whether the lane has stopped since start answered begins, so that the callback must not
// begin.
func (limits *laneLimits) stopped(r *ready) bool {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	_, _, ln := limits.lookup(r.lease.Lane)
	return ln.stops(r)
}

// end ends an attempt that took that long. It returns the waiting callback that takes its place, or the
// callbacks that the caller must put back. claim is the shard that should be claimed, or -1.
func (limits *laneLimits) end(out *ended, took time.Duration) (next *ready, back []ready, claim int) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	shard, s, ln := limits.lookup(out.lease.Lane)
	ln.open--
	if ln.averageTime == 0 {
		ln.averageTime = took
	}
	ln.averageTime += (took - ln.averageTime) / 8
	if out.stops() {
		ln.stopped++
	} else if out.signal == schedule.Answered {
		ln.freePlace(out.lease)
	}
	if len(ln.waiting) > 0 && ln.free() > 0 && ln.stopped == 0 {
		r := pop(&ln.waiting)
		ln.uncounted = append(ln.uncounted, r.lease)
		next = &r
	}
	claim = -1
	if !s.claiming && ln.wantsClaim() {
		claim = shard
	}
	return next, s.releaseWaiting(out.lease.Lane, ln), claim
}

// freePlace frees the place of a lease whose attempt got an answer. In a lane that is not full, no lease is
// named, so the place need not be recorded.
func (ln *laneLimit) freePlace(l *schedule.Lease) {
	if at := slices.Index(ln.uncounted, l); at >= 0 {
		ln.uncounted = slices.Delete(ln.uncounted, at, at+1)
	} else if ln.full || ln.prefetched() > 0 {
		ln.ended = append(ln.ended, l)
	}
}

// addSuccessors sets in settlements the successors of the leases that they end. The settler calls it before
// each settlement goes to the index, also if the index will get it later.
func (limits *laneLimits) addSuccessors(settlements []schedule.Settlement) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	for i := range settlements {
		t := &settlements[i]
		_, s, ln := limits.lookup(t.Lane)
		settled := schedule.LeaseRef{Ref: t.Ref(), Token: t.Token}
		if next, ok := s.successors[settled]; ok && !next.known {
			t.Next = next.lease
		}
		if ln == nil || len(ln.ended) == 0 {
			continue
		}
		// A full lane has hundreds of leases, and comparing ids first is cheaper.
		is := func(l *schedule.Lease) bool { return l.ID == t.ID && l.LeaseRef() == settled }
		ln.uncounted = slices.DeleteFunc(ln.uncounted, is) // its attempt got no answer
		if at := slices.IndexFunc(ln.ended, is); at >= 0 {
			ln.ended = slices.Delete(ln.ended, at, at+1)
			if len(ln.ended) < len(ln.uncounted) {
				t.Next = ln.successor()
			}
		}
	}
}

// resultsKnown notes that the index has these results, or will never get them: they stop their lanes no
// longer. It returns the callbacks that the caller must put back.
func (limits *laneLimits) resultsKnown(batch []ended) (back []ready) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	for i := range batch {
		b := &batch[i]
		_, s, ln := limits.lookup(b.lease.Lane)
		delete(s.successors, b.lease.LeaseRef())
		if ln == nil {
			continue
		}
		if b.stops() && ln.stopped > 0 {
			ln.stopped--
		}
		if b.hold != 0 {
			ln.holdKnown = time.Now()
		}
		back = append(back, s.releaseWaiting(b.lease.Lane, ln)...)
	}
	return back
}

// rolledBack notes that the shard went back to an older state. It may have lost successors, so all
// settlements name them again.
func (limits *laneLimits) rolledBack(shard int) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	s := &limits.shards[shard]
	for named, next := range s.successors {
		s.successors[named] = successor{lease: next.lease}
	}
}

// resetPlaces is called when SQL commits again after a failure. Leases may have expired meanwhile, so no
// callback takes the place of an ended one any more. It returns the callbacks that the caller must put back.
func (limits *laneLimits) resetPlaces() (back []ready) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	for i := range limits.shards {
		s := &limits.shards[i]
		for lane, ln := range s.lanes {
			named := len(s.named)
			s.name(ln, len(ln.uncounted)) // no claim carries these names, the settlements do
			s.named, ln.ended = s.named[:named], nil
			back = append(back, s.releaseWaiting(lane, ln)...)
		}
	}
	return back
}

// settingsChanged removes and returns the callbacks that wait in lanes whose settings have changed. The
// caller must put them back: the index granted them under the old settings.
func (limits *laneLimits) settingsChanged(settings []schedule.LaneSetting) (back []ready) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	for i := range settings {
		if _, _, ln := limits.lookup(settings[i].Lane); ln != nil {
			back = append(back, ln.waiting...)
			ln.open -= len(ln.waiting)
			ln.waiting = nil
		}
	}
	return back
}

// stops returns whether the result stops its lane: a Retry-After or a time-out.
func (b *ended) stops() bool { return b.hold != 0 || b.signal == schedule.TimedOut }
