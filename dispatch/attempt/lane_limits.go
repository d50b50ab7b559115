package attempt

import (
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// prefetchTime is for how long prefetched callbacks last, of a lane and of the process, at the rate at
	// which attempts begin; maxPrefetch bounds them.
	prefetchTime = 20 * time.Millisecond
	maxPrefetch  = 256
	// minPrefetch is from how many attempts at once on a lane is prefetched: one that has fewer gains
	// nothing.
	minPrefetch = 4
)

// laneLimits keep attempts within the concurrency of their lanes, and lanes that are full busy (ADR 0032).
//
// The index counts leases, and a lease lasts longer than its attempt is on the wire: it is stamped before,
// and its result waits to be committed afterwards. So that neither takes a place of its lane:
//
//   - A claim names the leases whose attempts have ended with an answer. They count no longer.
//   - A claim prefetches from a lane that is full: it brings leases beyond the lane's room, which do not
//     count. The
//     attempt of one begins in the place of another that has ended. The message that stops counting that one,
//     a claim
//     or a settlement, counts its successor in the same script.
//
// A lease of this process is in one of these states:
//
//	state                        counts in the index   kept in
//	prefetched, being stamped    no                    stamping
//	prefetched, waits            no                    waiting
//	has a place                  yes                   open alone
//	has the place of another     no                    uncounted
//	has ended                    yes                   ended
//	has ended and was named      no                    successors, if it has one
//
// For each uncounted lease there is one that has ended and still counts: len(uncounted) <= len(ended). So
// while leases live, and for each lane, the leases that count are at least as many as the attempts on the
// wire. While it is not known whether the index has heard a name, the lease or its successor counts.
//
// Every message can be repeated, be lost, or come late: a lease that is named twice changes nothing, and one
// that is not named counts until it is settled. An attempt that times out, gets no answer, or asks for a
// hold, keeps its place until it is settled: what it says of its lane must be known before the next one
// begins.
type laneLimits struct {
	shardOf func(lane int64) int

	mu     sync.Mutex
	shards []shardLimits
}

// shardLimits are the lanes of one shard.
type shardLimits struct {
	lanes map[int64]*laneLimit
	// claiming: a claim is under way. named is what it names.
	claiming bool
	named    []schedule.EndedLease
	// successors are those of leases that were named and are not settled yet.
	successors map[schedule.LeaseRef]successor
}

// A successor counts in the index instead of a lease that was named. Until the index is known to have heard
// of it, the settlement of that lease names it again.
type successor struct {
	lease schedule.LeaseRef
	known bool
}

// A laneLimit is a lane of which this process has leases.
type laneLimit struct {
	// open are the leases whose attempts have not ended.
	open int
	// stamping and waiting are prefetched leases.
	stamping map[schedule.LeaseRef]bool
	waiting  []ready
	// An uncounted lease stays in its list if its attempt ends without an answer, until it is settled.
	ended, uncounted []*schedule.Lease
	// stopped are results that stop the lane, and that the index does not know yet: until then nothing
	// begins. held is when it knew of the last hold: what was claimed before would break it.
	stopped   int
	holdKnown time.Time
	// full: the lane had more that was ready, and no room for it. asked: the claim under way may bring some
	// of that.
	full, requested bool
	// took is how long attempts take, as a moving average.
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

// prefetched are the leases that have no place.
func (ln *laneLimit) prefetched() int { return len(ln.stamping) + len(ln.waiting) }

// placed are the leases that have a place and whose attempts have not ended.
func (ln *laneLimit) placed() int { return ln.open - ln.prefetched() }

// free are the places whose attempts have ended, and that no other has.
func (ln *laneLimit) free() int { return len(ln.ended) - len(ln.uncounted) }

// wanted returns how many should be prefetched: what the lane sends in prefetchTime.
func (ln *laneLimit) prefetchSize() int {
	places := ln.placed() + max(ln.free(), 0)
	if !ln.full || ln.stopped > 0 || ln.averageTime == 0 || places < minPrefetch {
		return 0
	}
	return min(int(time.Duration(places)*prefetchTime/ln.averageTime), maxPrefetch)
}

// wantsClaim says whether a claim would bring a batch.
func (ln *laneLimit) wantsClaim() bool {
	if size := ln.prefetchSize(); size > 0 {
		return ln.prefetched() <= size/2
	}
	return ln.full && ln.stopped == 0 && ln.free() >= max(ln.placed(), 1)
}

// beginClaim returns what a claim of the shard names, valid until the next one, and what it prefetches.
func (limits *laneLimits) beginClaim(shard int) (named []schedule.EndedLease, prefetch []schedule.LanePrefetch) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	s := &limits.shards[shard]
	s.claiming, s.named = true, s.named[:0]
	for lane, ln := range s.lanes {
		ln.requested = false
		if ln.stopped > 0 {
			continue // what a claim brought would go back
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

// name moves ended leases of the lane to what is named. A successor counts from now on, as far as this
// process knows.
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

// successor takes the lease that counts instead of one that has ended: one that has a place already, or else
// one that is being stamped, and has a place from now on. The zero value is none.
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

// pop removes the first of a list.
func pop[T any](list *[]T) T {
	first := (*list)[0]
	*list = slices.Delete(*list, 0, 1)
	return first
}

// endClaim ends a claim of a shard that was answered. Short says that it had slots left. It returns whether
// to claim again, and what has to be put back.
func (limits *laneLimits) endClaim(shard int, leases []schedule.Lease, short bool) (again bool, back []ready) {
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
			ln.full = false // it gave nothing
		}
		again = again || ln.wantsClaim()
		back = append(back, s.releaseWaiting(lane, ln)...)
	}
	return again, back
}

// failClaim ends a claim that was not answered: it may have been executed or not. It returns what has to be
// put back.
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

// add returns a lane, made if it is new.
func (limits *laneLimits) laneOf(lane int64) *laneLimit {
	s := &limits.shards[limits.shardOf(lane)]
	ln := s.lanes[lane]
	if ln == nil {
		ln = &laneLimit{stamping: make(map[schedule.LeaseRef]bool)}
		s.lanes[lane] = ln
	}
	return ln
}

// of returns a lane, nil if this process has nothing of it, and its shard.
func (limits *laneLimits) lookup(lane int64) (shard int, s *shardLimits, ln *laneLimit) {
	shard = limits.shardOf(lane)
	s = &limits.shards[shard]
	return shard, s, s.lanes[lane]
}

// releaseWaiting returns what waits for a place that nothing will free, and forgets a lane of which this
// process has nothing.
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

// idle says that neither an attempt that ends nor a claim will have what waits begin.
func (s *shardLimits) nothingEnds(ln *laneLimit) bool { return ln.placed() == 0 && !s.claiming }

// drop removes a lease that is not attempted. It returns what has to be put back.
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

// A turn is what becomes of a stamped attempt.
type turn int

const (
	// begins: it has a place.
	begins turn = iota
	// waits for another of its lane to end, which returns it.
	waits
	// goesBack: its lane is stopped, or nothing is left that could free a place.
	goesBack
)

// start says what becomes of a stamped attempt; only with mayWait it waits. What goes back is to be dropped.
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

// stops says whether a stamped attempt of the lane must not begin.
func (ln *laneLimit) stops(r *ready) bool { return ln.stopped > 0 || r.claimed.Before(ln.holdKnown) }

// stopped says whether a stamped attempt that was to begin must not begin by now.
func (limits *laneLimits) stopped(r *ready) bool {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	_, _, ln := limits.lookup(r.lease.Lane)
	return ln.stops(r)
}

// end says that an attempt has ended after so long. It returns the one that has its place now, or those that
// have to be put back, and the shard that should claim, or -1.
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

// freePlace frees the place of a lease. Of a lane that is not full nothing is named, so its places need no
// account.
func (ln *laneLimit) freePlace(l *schedule.Lease) {
	if at := slices.Index(ln.uncounted, l); at >= 0 {
		ln.uncounted = slices.Delete(ln.uncounted, at, at+1)
	} else if ln.full || ln.prefetched() > 0 {
		ln.ended = append(ln.ended, l)
	}
}

// addSuccessors gives settlements the successors of the leases that they end.
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
		// A full lane has hundreds of leases. Nearly all differ in their ids, which cost less to compare.
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

// resultsKnown says that the index knows of results, or never will: those that stopped their lanes do so no
// longer. It returns what has to be put back.
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

// rolledBack says that a shard went back in time: it may not know any more which leases count instead of
// others.
func (limits *laneLimits) rolledBack(shard int) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	s := &limits.shards[shard]
	for named, next := range s.successors {
		s.successors[named] = successor{lease: next.lease}
	}
}

// reset is called when results have waited for SQL, so that leases may have run out: the place of an attempt
// that has ended is given to no other any more. It returns what has to be put back.
func (limits *laneLimits) resetPlaces() (back []ready) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	for i := range limits.shards {
		s := &limits.shards[i]
		for lane, ln := range s.lanes {
			named := len(s.named)
			s.name(ln, len(ln.uncounted)) // no claim carries these names; the settlements do
			s.named, ln.ended = s.named[:named], nil
			back = append(back, s.releaseWaiting(lane, ln)...)
		}
	}
	return back
}

// changed says that lanes have new settings. It returns what waits in them, which has to be put back: it was
// claimed by the old ones.
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

// stops says whether the result stops its lane.
func (b *ended) stops() bool { return b.hold != 0 || b.signal == schedule.TimedOut }
