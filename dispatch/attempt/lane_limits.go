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
	stopped int
	held    time.Time
	// full: the lane had more that was ready, and no room for it. asked: the claim under way may bring some
	// of that.
	full, asked bool
	// took is how long attempts take, as a moving average.
	took time.Duration
}

func newLaneLimits(shardOf func(lane int64) int, shards int) *laneLimits {
	w := &laneLimits{shardOf: shardOf, shards: make([]shardLimits, shards)}
	for i := range w.shards {
		w.shards[i].lanes = make(map[int64]*laneLimit)
		w.shards[i].successors = make(map[schedule.LeaseRef]successor)
	}
	return w
}

// prefetched are the leases that have no place.
func (n *laneLimit) prefetched() int { return len(n.stamping) + len(n.waiting) }

// placed are the leases that have a place and whose attempts have not ended.
func (n *laneLimit) placed() int { return n.open - n.prefetched() }

// free are the places whose attempts have ended, and that no other has.
func (n *laneLimit) free() int { return len(n.ended) - len(n.uncounted) }

// wanted returns how many should be prefetched: what the lane sends in prefetchTime.
func (n *laneLimit) wanted() int {
	places := n.placed() + max(n.free(), 0)
	if !n.full || n.stopped > 0 || n.took == 0 || places < minPrefetch {
		return 0
	}
	return min(int(time.Duration(places)*prefetchTime/n.took), maxPrefetch)
}

// wantsClaim says whether a claim would bring a batch.
func (n *laneLimit) wantsClaim() bool {
	if wanted := n.wanted(); wanted > 0 {
		return n.prefetched() <= wanted/2
	}
	return n.full && n.stopped == 0 && n.free() >= max(n.placed(), 1)
}

// beginClaim returns what a claim of the shard names, valid until the next one, and what it prefetches.
func (w *laneLimits) beginClaim(shard int) (named []schedule.EndedLease, prefetch []schedule.LanePrefetch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.shards[shard]
	s.claiming, s.named = true, s.named[:0]
	for lane, n := range s.lanes {
		n.asked = false
		if n.stopped > 0 {
			continue // what a claim brought would go back
		}
		if count := min(len(n.ended), schedule.MaxEnded-len(s.named)); count > 0 {
			s.name(n, count)
			n.asked = true
		}
		if more := n.wanted() - n.prefetched(); more > 0 && len(prefetch) < schedule.MaxPrefetch {
			prefetch = append(prefetch, schedule.LanePrefetch{Lane: lane, Max: more})
			n.asked = true
		}
	}
	return s.named, prefetch
}

// name moves ended leases of the lane to what is named. A successor counts from now on, as far as this
// process knows.
func (s *shardLimits) name(n *laneLimit, count int) {
	for _, l := range n.ended[:count] {
		e := schedule.EndedLease{LeaseRef: l.LeaseRef(), Next: n.successor()}
		if e.Next.ID != "" {
			s.successors[e.LeaseRef] = successor{lease: e.Next}
		}
		s.named = append(s.named, e)
	}
	n.ended = slices.Delete(n.ended, 0, count)
}

// successor takes the lease that counts instead of one that has ended: one that has a place already, or else
// one that is being stamped, and has a place from now on. The zero value is none.
func (n *laneLimit) successor() schedule.LeaseRef {
	if len(n.uncounted) > 0 {
		return pop(&n.uncounted).LeaseRef()
	}
	for next := range n.stamping {
		delete(n.stamping, next)
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
func (w *laneLimits) endClaim(shard int, leases []schedule.Lease, short bool) (again bool, back []ready) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.shards[shard]
	s.claiming = false
	for i := range s.named {
		if next, ok := s.successors[s.named[i].LeaseRef]; ok {
			next.known = true
			s.successors[s.named[i].LeaseRef] = next
		}
	}
	for i := range leases {
		l := &leases[i]
		n := w.add(l.Lane)
		n.open++
		n.full, n.asked = l.Full, false
		if l.Prefetched {
			n.stamping[l.LeaseRef()] = true
		}
	}
	for lane, n := range s.lanes {
		if n.asked && short {
			n.full = false // it gave nothing
		}
		again = again || n.wantsClaim()
		back = append(back, s.releaseWaiting(lane, n)...)
	}
	return again, back
}

// failClaim ends a claim that was not answered: it may have been executed or not. It returns what has to be
// put back.
func (w *laneLimits) failClaim(shard int) (back []ready) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.shards[shard]
	s.claiming = false
	for lane, n := range s.lanes {
		back = append(back, s.releaseWaiting(lane, n)...)
	}
	return back
}

// add returns a lane, made if it is new.
func (w *laneLimits) add(lane int64) *laneLimit {
	s := &w.shards[w.shardOf(lane)]
	n := s.lanes[lane]
	if n == nil {
		n = &laneLimit{stamping: make(map[schedule.LeaseRef]bool)}
		s.lanes[lane] = n
	}
	return n
}

// of returns a lane, nil if this process has nothing of it, and its shard.
func (w *laneLimits) of(lane int64) (shard int, s *shardLimits, n *laneLimit) {
	shard = w.shardOf(lane)
	s = &w.shards[shard]
	return shard, s, s.lanes[lane]
}

// releaseWaiting returns what waits for a place that nothing will free, and forgets a lane of which this
// process has nothing.
func (s *shardLimits) releaseWaiting(lane int64, n *laneLimit) (back []ready) {
	if n.stopped > 0 || s.idle(n) {
		back, n.waiting = n.waiting, nil
		n.open -= len(back)
	}
	if n.open == 0 && len(n.ended) == 0 && n.stopped == 0 && !s.claiming {
		delete(s.lanes, lane)
	}
	return back
}

// idle says that neither an attempt that ends nor a claim will have what waits begin.
func (s *shardLimits) idle(n *laneLimit) bool { return n.placed() == 0 && !s.claiming }

// drop removes a lease that is not attempted. It returns what has to be put back.
func (w *laneLimits) drop(l *schedule.Lease) (back []ready) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, s, n := w.of(l.Lane)
	dropped := l.LeaseRef()
	delete(n.stamping, dropped)
	n.uncounted = slices.DeleteFunc(n.uncounted, func(u *schedule.Lease) bool {
		return u.LeaseRef() == dropped
	})
	n.open--
	return s.releaseWaiting(l.Lane, n)
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
func (w *laneLimits) start(r *ready, mayWait bool) turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, s, n := w.of(r.l.Lane)
	lease := r.l.LeaseRef()
	prefetched := n.stamping[lease]
	switch {
	case n.stops(r):
		return goesBack
	case !prefetched:
		return begins
	case n.free() > 0:
		n.uncounted = append(n.uncounted, r.l)
		delete(n.stamping, lease)
		return begins
	case !mayWait || s.idle(n):
		return goesBack
	}
	n.waiting = append(n.waiting, *r)
	delete(n.stamping, lease)
	return waits
}

// stops says whether a stamped attempt of the lane must not begin.
func (n *laneLimit) stops(r *ready) bool { return n.stopped > 0 || r.claimed.Before(n.held) }

// stopped says whether a stamped attempt that was to begin must not begin by now.
func (w *laneLimits) stopped(r *ready) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _, n := w.of(r.l.Lane)
	return n.stops(r)
}

// end says that an attempt has ended after so long. It returns the one that has its place now, or those that
// have to be put back, and the shard that should claim, or -1.
func (w *laneLimits) end(out *ended, took time.Duration) (next *ready, back []ready, claim int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shard, s, n := w.of(out.lease.Lane)
	n.open--
	if n.took == 0 {
		n.took = took
	}
	n.took += (took - n.took) / 8
	if out.stops() {
		n.stopped++
	} else if out.signal == schedule.Answered {
		n.freePlace(out.lease)
	}
	if len(n.waiting) > 0 && n.free() > 0 && n.stopped == 0 {
		r := pop(&n.waiting)
		n.uncounted = append(n.uncounted, r.l)
		next = &r
	}
	claim = -1
	if !s.claiming && n.wantsClaim() {
		claim = shard
	}
	return next, s.releaseWaiting(out.lease.Lane, n), claim
}

// freePlace frees the place of a lease. Of a lane that is not full nothing is named, so its places need no
// account.
func (n *laneLimit) freePlace(l *schedule.Lease) {
	if at := slices.Index(n.uncounted, l); at >= 0 {
		n.uncounted = slices.Delete(n.uncounted, at, at+1)
	} else if n.full || n.prefetched() > 0 {
		n.ended = append(n.ended, l)
	}
}

// addSuccessors gives settlements the successors of the leases that they end.
func (w *laneLimits) addSuccessors(settlements []schedule.Settlement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range settlements {
		t := &settlements[i]
		_, s, n := w.of(t.Lane)
		settled := schedule.LeaseRef{Ref: t.Ref(), Token: t.Token}
		if next, ok := s.successors[settled]; ok && !next.known {
			t.Next = next.lease
		}
		if n == nil || len(n.ended) == 0 {
			continue
		}
		// A full lane has hundreds of leases. Nearly all differ in their ids, which cost less to compare.
		is := func(l *schedule.Lease) bool { return l.ID == t.ID && l.LeaseRef() == settled }
		n.uncounted = slices.DeleteFunc(n.uncounted, is) // its attempt got no answer
		if at := slices.IndexFunc(n.ended, is); at >= 0 {
			n.ended = slices.Delete(n.ended, at, at+1)
			if len(n.ended) < len(n.uncounted) {
				t.Next = n.successor()
			}
		}
	}
}

// resultsKnown says that the index knows of results, or never will: those that stopped their lanes do so no
// longer. It returns what has to be put back.
func (w *laneLimits) resultsKnown(batch []ended) (back []ready) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range batch {
		b := &batch[i]
		_, s, n := w.of(b.lease.Lane)
		delete(s.successors, b.lease.LeaseRef())
		if n == nil {
			continue
		}
		if b.stops() && n.stopped > 0 {
			n.stopped--
		}
		if b.hold != 0 {
			n.held = time.Now()
		}
		back = append(back, s.releaseWaiting(b.lease.Lane, n)...)
	}
	return back
}

// rolledBack says that a shard went back in time: it may not know any more which leases count instead of
// others.
func (w *laneLimits) rolledBack(shard int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.shards[shard]
	for named, next := range s.successors {
		s.successors[named] = successor{lease: next.lease}
	}
}

// reset is called when results have waited for SQL, so that leases may have run out: the place of an attempt
// that has ended is given to no other any more. It returns what has to be put back.
func (w *laneLimits) reset() (back []ready) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.shards {
		s := &w.shards[i]
		for lane, n := range s.lanes {
			named := len(s.named)
			s.name(n, len(n.uncounted)) // no claim carries these names; the settlements do
			s.named, n.ended = s.named[:named], nil
			back = append(back, s.releaseWaiting(lane, n)...)
		}
	}
	return back
}

// changed says that lanes have new settings. It returns what waits in them, which has to be put back: it was
// claimed by the old ones.
func (w *laneLimits) changed(settings []schedule.LaneSetting) (back []ready) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range settings {
		if _, _, n := w.of(settings[i].Lane); n != nil {
			back = append(back, n.waiting...)
			n.open -= len(n.waiting)
			n.waiting = nil
		}
	}
	return back
}

// stops says whether the result stops its lane.
func (b *ended) stops() bool { return b.hold != 0 || b.signal == schedule.TimedOut }
