package dispatch

import (
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// aheadMost bounds how many claimed callbacks of a lane wait for their turn on the wire. Up to there they are what it sends in
	// aheadFor, in which batches of them are claimed, stamped and committed, and at least twice what is on it. aheadFrom is from how
	// many attempts on it on some are claimed ahead: a lane that has fewer gains nothing by it.
	aheadMost = 256
	aheadFor  = 20 * time.Millisecond
	aheadFrom = 4
	// aheadWithin is how long attempts of a lane may take for any to be claimed ahead. What waits behind slow ones would have its
	// claim grow old.
	aheadWithin = 100 * time.Millisecond
	// aheadBehind is with how many results that the index was not told of nothing is claimed ahead: SQL does not keep up, and what has
	// been sent and is not recorded a crash would send again.
	aheadBehind = 1024
)

// A wire keeps, for each lane, to the concurrency that the index grants, while more than that is leased: results wait to be
// committed in batches, and some callbacks are claimed and stamped ahead, so that these batches are large too (ADR 0010).
//
// The index counts leases. Those of this process that are not on the wire, because their attempts have ended or have not
// begun, are its credit: each claim says it, and it holds for that claim alone. So it must never be too high when the claim
// is executed: a lease is no credit from before the index is told of its end, and what is told while a claim is under way is
// taken off what that claim brings.
//
// An attempt that ends leaves a permit. It goes to one that is held back, which then begins; otherwise it is free, until a
// claim gives it back as credit. What the claim does not bring a lease for it leaves: nobody else can have it while more leases
// of ours are in the index than are on the wire.
type wire struct {
	mu     sync.Mutex
	lanes  map[int64]*wireLane
	shards []wireShard
	// bounds are of lanes that people have paused or limited.
	bounds map[int64]bound
	// now is the index's clock.
	now func() int64
	// epoch is that of the leases that may be credit; earlier ones are not known to be in the index.
	epoch int64
}

// A wireShard is what is known of a shard's claims.
type wireShard struct {
	// claiming: a claim is under way. wanting: the last one left something. stuck: all of it waits for room. asked: another claim was
	// asked for.
	claiming, wanting, stuck, asked bool
	// roomy: enough slots were free to claim ahead.
	roomy bool
	// tellers wait for the claim under way.
	tellers []*teller
}

// A wireLane is a lane of which this process has leases.
type wireLane struct {
	shard int
	// on are attempts on the wire; ended, leases whose attempts have ended and of which the index was not told yet.
	on, ended int
	// Of the leases that are being stamped, as many as going will have a permit; coming are the others. held are those that are
	// ready and wait for one.
	going, coming int
	held          []ready
	// free are the permits that nobody took since the last claim began; said, the credit that it was given; told, the leases whose
	// end the index may have heard of since then.
	free, said, told int
	// over are the attempts on the wire that have no permit: they were made in any case.
	over int
	// given are the permits that were free when the claim under way began; backed, the leases that were not on the wire then.
	given, backed int
	// stopped are the results by which the lane is not to be sent to at present and of which the index does not know yet: until
	// then it would give out what is credit.
	stopped int
	// took is how long attempts take, as a moving average.
	took time.Duration
}

// A ready attempt is stamped.
type ready struct {
	w       *store.Stamped
	l       *schedule.Lease
	claimed time.Time
	// notBefore is when its due time has come at the earliest, by the claim's own reading of the index's clock.
	notBefore time.Time
	// epoch of the wire when it was stamped.
	epoch int64
}

func newWire(shards int, now func() int64) *wire {
	return &wire{lanes: make(map[int64]*wireLane), shards: make([]wireShard, shards), bounds: make(map[int64]bound), now: now, epoch: 1}
}

// wanted returns how many of the lane should be leased ahead.
func (w *wire) wanted(n *wireLane) int {
	if n.on < aheadFrom || n.took == 0 || n.took > aheadWithin || n.ended > aheadBehind || !w.shards[n.shard].roomy {
		return 0
	}
	return min(n.on*max(2, int(aheadFor/n.took)), aheadMost)
}

func (n *wireLane) waiting() int { return n.coming + len(n.held) }

// leases are all of the lane that this process has.
func (n *wireLane) leases() int { return n.on + n.ended + n.going + n.waiting() }

// allowances begins a claim of the shard, and returns what it may go beyond the lanes' concurrency. Roomy says that there are
// slots to spare.
func (w *wire) allowances(shard int, roomy bool) []schedule.Allowance {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.shards[shard]
	s.claiming, s.asked, s.roomy = true, false, roomy
	var all []schedule.Allowance
	for lane, n := range w.lanes {
		if n.shard != shard {
			continue
		}
		n.given, n.backed = n.free, n.ended+n.waiting()
		n.free, n.said, n.told = 0, 0, 0
		if n.stopped > 0 {
			n.given = 0
			continue
		}
		if !s.wanting || !s.stuck && n.leases() < schedule.StartConcurrency {
			// An allowance costs the index as much as an item. While nothing waits none is needed; while there is more to claim
			// elsewhere, a lane that has less than any has at first is no reason for one.
			continue
		}
		a := schedule.Allowance{Lane: lane, Credit: n.ended + n.waiting(), Ahead: max(w.wanted(n)-n.waiting(), 0)}
		if a.Credit+a.Ahead > 0 && len(all) < schedule.MaxAllowances {
			all = append(all, a)
			n.said = a.Credit
		}
	}
	return all
}

// claimed ends a claim that brought leases. It marks as ahead those that may be beyond the concurrency after all, because their
// credit may have been told to the index before the claim was executed. It says whether to claim again: what ended meanwhile had
// nobody to ask. It returns those that were held back and begin now, and those that are to be put back.
func (w *wire) claimed(shard int, c *schedule.Claimed) (again bool, next, back []ready) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.shards[shard]
	leases, before := c.Leases, s.wanting
	s.claiming, s.wanting, s.stuck = false, c.More || c.Waiting, c.Waiting && !c.More
	defer w.tell(shard)
	for i := range leases {
		l := &leases[i]
		n := w.lane(l.Lane, shard)
		if l.Ahead {
			n.given = 0 // the index gives no more than the lane has room for before it gives any ahead
		} else {
			n.given--
			n.backed--
		}
		if excess := min(n.told, n.said); !l.Ahead && excess > 0 {
			l.Ahead = true
			n.told, n.said = n.told-1, n.said-1
			n.backed-- // it was told
		}
		if l.Ahead {
			n.coming++
		} else {
			n.going++
		}
	}
	for lane, n := range w.lanes {
		if n.shard != shard {
			continue
		}
		// Only for what has ended since, or was not said: asking for more ahead, whatever comes of it, would never end.
		again = again || s.wanting && (n.free > 0 && n.free >= n.on || !before && n.ended > 0)
		n.free += max(0, min(n.given, n.backed-n.told, n.waiting()-n.free))
		for len(n.held) > 0 && n.stopped == 0 && n.on < w.mostOf(lane) && n.take() {
			next = append(next, n.release())
		}
		back = append(back, w.unclaimed(lane, n)...)
	}
	return again, next, back
}

// take takes a permit for one that is held back, if there is one: rather than wait for a lease that is being stamped it is used at
// once, and that lease waits for another.
func (n *wireLane) take() bool {
	switch {
	case n.going > 0:
		n.going--
		n.coming++
	case n.free > 0:
		n.free--
	default:
		return false
	}
	return true
}

// release takes the first that is held back to the wire.
func (n *wireLane) release() ready {
	r := n.held[0]
	n.held[0] = ready{}
	n.held = n.held[1:]
	n.on++
	return r
}

// unclaimed ends what a claim was for a lane. It returns what is held back and is to be put back, because nobody is left whose end
// could let it begin.
func (w *wire) unclaimed(lane int64, n *wireLane) (back []ready) {
	n.given, n.backed = 0, 0
	if w.alone(n) {
		back = w.recede(n)
	}
	w.forget(lane, n)
	return back
}

// recede ends the wait of all that is held back, and returns it: it is to be put back.
func (w *wire) recede(n *wireLane) (back []ready) {
	back, n.held = n.held, nil
	w.unmade(n, back)
	return back
}

// alone says that nothing of the lane is on the wire, or on its way there, that could leave a permit, nor a claim that may bring one.
func (w *wire) alone(n *wireLane) bool {
	return n.on == 0 && n.going == 0 && !w.shards[n.shard].claiming
}

// failed ends a claim whose leases, if there are any, nobody knows of. It returns those that are to be put back.
func (w *wire) failed(shard int) (back []ready) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shards[shard].claiming = false
	defer w.tell(shard)
	for lane, n := range w.lanes {
		if n.shard == shard {
			back = append(back, w.unclaimed(lane, n)...)
		}
	}
	return back
}

func (w *wire) lane(lane int64, shard int) *wireLane {
	n := w.lanes[lane]
	if n == nil {
		n = &wireLane{shard: shard}
		w.lanes[lane] = n
	}
	return n
}

// dropped says that a claimed lease will not be attempted. It returns what was held back behind it and is to be put back: nobody
// is left whose end could let it begin.
func (w *wire) dropped(l *schedule.Lease) (back []ready) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.lanes[l.Lane]
	if n.coming > 0 {
		n.coming--
		w.recall(n)
	} else {
		n.going--
	}
	if w.alone(n) {
		back = w.recede(n)
	}
	w.forget(l.Lane, n)
	return back
}

// A turn is what becomes of a stamped attempt.
type turn int

const (
	// begins: it may be made now.
	begins turn = iota
	// held until another one's end, or a claim, returns it.
	held
	// goesBack: there is no permit for it, nobody whose end could leave one, and no claim that could bring one.
	goesBack
)

// begin says what becomes of a stamped attempt. With forced it may be made in any case.
func (w *wire) begin(r *ready, forced bool) turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.epoch = w.epoch
	n := w.lanes[r.l.Lane]
	// Whose lease it is does not matter: the first that is stamped takes the first permit.
	permit := n.going > 0
	if permit {
		n.going--
	} else {
		n.coming--
	}
	switch {
	case forced && permit:
	case forced && n.free > 0:
		n.free--
	case forced:
		n.over++
	case n.stopped > 0 || w.paused(r.l.Lane):
		w.unmade(n, []ready{*r})
		return goesBack
	case n.on >= w.mostOf(r.l.Lane): // it was claimed before the limit was lowered; its permit ends
		n.held = append(n.held, *r)
		return held
	case permit:
	case n.free > 0:
		n.free--
	case w.alone(n):
		w.unmade(n, []ready{*r})
		return goesBack
	default:
		n.held = append(n.held, *r)
		return held
	}
	n.on++
	return begins
}

// unmade says that attempts end that have not been made: their leases are credit from now on.
func (w *wire) unmade(n *wireLane, back []ready) {
	for i := range back {
		if back[i].epoch == w.epoch {
			n.ended++
		}
	}
}

// stops says whether nothing more is to be sent to the lane for the present.
func stops(r *ended) bool { return r.hold != 0 || r.signal == schedule.TimedOut }

// end says that an attempt has left the wire, after so long. It returns the one that may begin in its place, or those that are
// to be put back. Its lease is credit from now on. Wake is the shard that is to claim, or -1.
func (w *wire) end(r *ended, took time.Duration) (next *ready, back []ready, wake int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.lanes[r.lease.Lane]
	n.on--
	if r.epoch == w.epoch {
		n.ended++
	}
	if n.took == 0 {
		n.took = took
	}
	n.took += (took - n.took) / 8
	switch {
	case stops(r):
		n.stopped++
		n.given = 0 // the lane may have room for less from now on
		n.over = min(n.over, n.on)
		back = w.recede(n)
	case n.over > 0: // and so it leaves none
		n.over--
		if w.alone(n) {
			back = w.recede(n)
		}
	case len(n.held) > 0 && n.on < w.mostOf(r.lease.Lane):
		r := n.release()
		next = &r
	case len(n.held) > 0: // there are more on the wire than a lower limit allows
	default:
		n.free++
	}
	return next, back, w.ask(n)
}

// ask returns the shard that should claim because of the lane, or -1.
func (w *wire) ask(n *wireLane) int {
	s := &w.shards[n.shard]
	if !s.wanting || s.asked || s.claiming {
		return -1
	}
	if most := w.wanted(n); most > 0 && n.waiting() > most/2 || most == 0 && n.free < max(1, n.on) {
		return -1
	}
	s.asked = true
	return n.shard
}

// recall says that the index may hear of the end of a lease that was credit. If a claim is under way, the lease's permit may be in
// what that brings already: as credit that the index no longer has, or as room.
func (w *wire) recall(n *wireLane) {
	if w.shards[n.shard].claiming {
		n.told++
		n.free = max(n.free-1, 0)
	}
}

// settled says that the index was told of results, or will not be: what they say of their lanes is known.
func (w *wire) settled(batch []ended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range batch {
		if !stops(&batch[i]) {
			continue
		}
		if n := w.lanes[batch[i].lease.Lane]; n != nil && n.stopped > 0 {
			n.stopped--
			w.forget(batch[i].lease.Lane, n)
		}
	}
}

// forget drops a lane that this process has nothing of.
func (w *wire) forget(lane int64, n *wireLane) {
	if n.on == 0 && n.ended == 0 && n.stopped == 0 && n.going == 0 && n.waiting() == 0 && !w.shards[n.shard].claiming {
		delete(w.lanes, lane)
	}
}

// reset says that the index may have forgotten leases of ours: it was rebuilt, or results waited for so long that leases have run
// out. They are no credit any more.
func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epoch++
	for _, n := range w.lanes {
		n.ended, n.free, n.said, n.told, n.given, n.backed = 0, 0, 0, 0, 0, 0
	}
}
