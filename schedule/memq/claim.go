package memq

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A batch is the last claim of an owner, for a repetition.
type batch struct {
	token string
	at    int64
	keys  []key
}

// Claim first ends the counting of the leases in req.Ended, so that this claim can use their places. Then it
// reaps, promotes and leases. If the token is that of the owner's last claim, it only ends the counting and
// returns what is still leased of that batch.
func (ix *Index) Claim(ctx context.Context, shard int,
	req schedule.ClaimRequest) (reply schedule.Claimed, err error) {
	if err := req.Validate(); err != nil {
		return reply, err
	}
	err = ix.do(ctx, "claim", shard, func() error {
		if ix.closed {
			return schedule.ErrRebuilding
		}
		ix.claim(&req, &reply)
		return nil
	})
	return reply, err
}

// claim does the work of Claim, under the mutex and in an open shard.
func (ix *Index) claim(req *schedule.ClaimRequest, reply *schedule.Claimed) {
	lookahead := req.Lookahead.Milliseconds()
	ix.uncountEnded(req.Ended)
	if last := ix.claims[req.Owner]; last != nil && last.token == req.Token {
		reply.Leases = ix.repeated(last)
	} else {
		reply.Reaped = ix.reap()
		ix.forgetLocks()
		ix.setLimit(req.LaneLimit)
		ix.promote(ix.clock + lookahead)
		ix.unblock()
		ix.prefetch(req.Prefetch, true)
		reply.Leases = ix.pick(req)
		ix.prefetch(req.Prefetch, false)
		for i := range reply.Leases {
			reply.Leases[i].Full = ix.full(reply.Leases[i].Lane)
		}
		ix.remember(req, reply.Leases)
	}
	reply.Tick = schedule.Tick{Now: ix.clock, Next: ix.next(lookahead / 2)}
	reply.More = len(ix.delay) > 0 && ix.delay[0].at <= ix.clock+lookahead
	for _, lanes := range ix.runnable {
		reply.More = reply.More || len(lanes) > 0
	}
	reply.Waiting = ix.ready > 0 && !reply.More
	ix.announced, ix.woken = reply.Next, false
}

// uncountEnded stops counting leases whose attempts have ended, and counts the prefetched leases whose
// attempts took their places.
func (ix *Index) uncountEnded(ended []schedule.EndedLease) {
	for i := range ended {
		ix.setCounted(&ended[i].Next, true)
		ix.setCounted(&ended[i].LeaseRef, false)
	}
}

// prefetch allows lanes to lease more than their concurrency; with on false it ends that. claim calls it
// before and after the pick, so it holds for one claim.
func (ix *Index) prefetch(lanes []schedule.LanePrefetch, on bool) {
	for _, p := range lanes {
		l := ix.lanes[p.Lane]
		if l == nil {
			continue
		}
		l.prefetch = 0
		if on {
			l.prefetch = p.Max
		}
		ix.refresh(l)
	}
}

// full reports whether the lane has ready items but no room for them. A claimer then names ended leases of
// the lane in its next claim.
func (ix *Index) full(lane int64) bool {
	l := ix.lanes[lane]
	return l.standing == idle && l.readyCount() > 0
}

// reap returns expired leases to the delay set, at most MaxReap, and returns their number. It spreads their
// due times: the leases of a process that died end together.
func (ix *Index) reap() int {
	n := 0
	for ; n < schedule.MaxReap && len(ix.leases) > 0 && ix.leases[0].at <= ix.steady(); n++ {
		it := ix.leases[0].it
		due := ix.clock + schedule.ReapDelay(it.id)
		if it.movedTo != 0 {
			due = min(due, it.movedTo)
		}
		ix.detach(it)
		ix.postpone(it, due)
	}
	ix.count["reaped"] += int64(n)
	return n
}

// promote moves items that are due at by or before from the delay set to their lanes' ready lists, at most
// MaxPromote.
func (ix *Index) promote(by int64) {
	for n := 0; n < schedule.MaxPromote && len(ix.delay) > 0 && ix.delay[0].at <= by; n++ {
		it := ix.delay.remove(0).it
		it.place = uint8(schedule.Ready)
		it.lane.list(it).push(timed{it.due, it.key.hi, it})
		ix.ready++
		// In a lane that is not idle, only a forced item can change the standing.
		if it.kind.has(isForced) || it.lane.standing == idle {
			ix.refresh(it.lane)
		}
	}
}

// unblock updates the lanes whose pause has ended, or whose hold, breaker or empty rate ends now.
func (ix *Index) unblock() {
	for len(ix.blocked) > 0 && ix.blocked[0].at <= ix.clock {
		ix.refresh(ix.blocked[0].l)
	}
	for len(ix.stopped) > 0 && ix.stopped[0].at <= ix.steady() {
		ix.refresh(ix.stopped[0].l)
	}
}

// pick leases up to req.Max items by start-time fair queueing: the lane that was served least is next, and
// gives at most a quantum. Every lane in the runnable heaps has ready items and room for them, so each turn
// leases at least one item. A lane that gave nothing would leave its heap, so the loop ends in any case. The
// lanes that are not Answering get at most MaxUncertain items together, and those of them that are TimingOut
// at most MaxTimingOut.
func (ix *Index) pick(req *schedule.ClaimRequest) []schedule.Lease {
	if req.Max == 0 {
		return nil
	}
	until := ix.steadily(ix.clock + req.Lease.Milliseconds())
	uncertain, timingOut := max(req.MaxUncertain, 0), max(req.MaxTimingOut, 0)
	leases := make([]schedule.Lease, 0, min(req.Max, max(ix.ready, 0)))
	for len(leases) < req.Max {
		room := [classes]int{
			schedule.Unproven:  uncertain,
			schedule.Answering: req.Max,
			schedule.TimingOut: min(uncertain, timingOut),
		}
		l := ix.first(room)
		if l == nil {
			break
		}
		most := min(schedule.Quantum, req.Max-len(leases), room[l.class])
		taken := ix.serve(l, most, func(it *item) {
			it.health = uint8(l.health)
			prefetched := l.inflight >= ix.concurrency(l)
			ix.lease(it, req.Token, until)
			if prefetched { // ix.lease has counted it, and a prefetched lease does not count
				it.kind |= isUncounted
				l.inflight--
				l.prefetch--
			}
			leases = append(leases, ix.leased(it))
		})
		if l.health != schedule.Answering {
			uncertain -= taken
		}
		if l.health == schedule.TimingOut {
			timingOut -= taken
		}
	}
	ix.count["claimed"] += int64(len(leases))
	return leases
}

// first returns the lane with the lowest virtual time, or nil. With equal times it is the one with the lower
// number. Lanes of a health without room are left out: room is what the shares of this claim still allow. The
// lane stays in its heap.
func (ix *Index) first(room [classes]int) *lane {
	var best *lane
	for class := range ix.runnable {
		if room[class] <= 0 || len(ix.runnable[class]) == 0 {
			continue
		}
		head := ix.runnable[class][0]
		if best == nil || head.before(ranked{best.virtual, best}) {
			best = head.l
		}
	}
	return best
}

// serve takes one turn of a runnable lane in a claim: it calls lease with each of up to most ready items, as
// many as concurrency, prefetch, rate, hold and breaker allow, and returns their number. Forced items are
// taken first and cost no rate token. The number is added to the lane's virtual time, so that other lanes
// come next, and the lane gets its new place among the runnable ones. lease must not move the lane.
func (ix *Index) serve(l *lane, most int, lease func(*item)) int {
	ix.virtual = max(ix.virtual, l.virtual)
	n := min(most, ix.room(l), ix.claimable(l))
	if l.hasRate() {
		ix.spend(l.flow, max(n-l.forcedCount(), 0))
	}
	for range n {
		ix.ready--
		lease(l.pop(ix.clock))
	}
	l.virtual += int64(n)
	if ix.claimable(l) > 0 && ix.room(l) > 0 {
		ix.runnable[l.class].set(l.pos, ranked{l.virtual, l})
	} else {
		ix.refresh(l)
	}
	return n
}

// leased returns the lease of a leased item as the reply of a claim describes it, without Full: that is set
// when the batch is complete.
func (ix *Index) leased(it *item) schedule.Lease {
	return schedule.Lease{
		Item: it.item(), Token: it.token, Until: ix.wall(it.until), Diverts: int(it.diverts),
		Cause: it.cause, Health: schedule.Health(it.health),
		Prefetched: it.kind.has(isUncounted),
	}
}

// repeated returns the leases of the owner's last claim that are still leased under its token. A claimer asks
// for them when the reply of that claim was lost. The leases keep their ends. Full is set in all of them,
// which is harmless: for a lane that is not full, the claimer only names ended leases without need.
func (ix *Index) repeated(last *batch) []schedule.Lease {
	var leases []schedule.Lease
	for _, k := range last.keys {
		if it := ix.items[k]; it != nil && it.is(schedule.Leased) && it.token == last.token {
			l := ix.leased(it)
			l.Full = true
			leases = append(leases, l)
		}
	}
	return leases
}

// remember records the claim as its owner's last one.
func (ix *Index) remember(req *schedule.ClaimRequest, leases []schedule.Lease) {
	last := ix.claims[req.Owner]
	if last == nil {
		if len(ix.claims) >= schedule.MaxOwners {
			ix.forgetOwner()
		}
		last = new(batch)
		ix.claims[req.Owner] = last
	}
	last.token, last.at, last.keys = req.Token, ix.steady(), last.keys[:0]
	for _, l := range leases {
		k, _ := parseKey(l.ID)
		last.keys = append(last.keys, k)
	}
}

// forgetOwner removes the owner whose last claim is the oldest.
func (ix *Index) forgetOwner() {
	var oldest string
	var at int64
	for owner, last := range ix.claims {
		if oldest == "" || last.at < at {
			oldest, at = owner, last.at
		}
	}
	delete(ix.claims, oldest)
}
