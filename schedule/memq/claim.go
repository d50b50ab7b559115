package memq

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A batch is what an owner claimed last.
type batch struct {
	token string
	at    int64
	keys  []key
}

// Claim ends the counting of leases, reaps, promotes and leases, in this order. A repetition of the owner's
// last claim, known by its token, does the first alone: it returns what of that batch is still leased.
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

func (ix *Index) claim(req *schedule.ClaimRequest, reply *schedule.Claimed) {
	lookahead := req.Lookahead.Milliseconds()
	ix.endAll(req.Ended)
	if last := ix.claims[req.Owner]; last != nil && last.token == req.Token {
		reply.Leases = ix.again(last)
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
	ix.armed, ix.woken = reply.Next, false
}

// endAll stops counting the leases of attempts that have ended, and counts those that took their places.
func (ix *Index) endAll(ended []schedule.EndedLease) {
	for i := range ended {
		ix.setCounted(&ended[i].Next, true)
		ix.setCounted(&ended[i].LeaseRef, false)
	}
}

// prefetch lets lanes give more than their concurrency has room for, or, with on false, ends that.
func (ix *Index) prefetch(lanes []schedule.LanePrefetch, on bool) {
	for _, p := range lanes {
		l := ix.lanes[p.Lane]
		if l == nil {
			continue
		}
		l.ahead = 0
		if on {
			l.ahead = p.Max
		}
		ix.refresh(l)
	}
}

// full says whether the lane has something ready that it has no room for.
func (ix *Index) full(lane int64) bool {
	l := ix.lanes[lane]
	return l.standing == idle && l.waiting() > 0
}

// reap returns expired leases to the delay set and says how many.
func (ix *Index) reap() int {
	n := 0
	for ; n < schedule.MaxReap && len(ix.leases) > 0 && ix.leases[0].at <= ix.steady(); n++ {
		it := ix.leases[0].it
		due := ix.clock + schedule.ReapDelay(it.id)
		if it.moved != 0 {
			due = min(due, it.moved)
		}
		ix.detach(it)
		ix.postpone(it, due)
	}
	ix.count["reaped"] += int64(n)
	return n
}

// promote moves items that are due by then from the delay set to their lanes' ready lists.
func (ix *Index) promote(by int64) {
	for n := 0; n < schedule.MaxPromote && len(ix.delay) > 0 && ix.delay[0].at <= by; n++ {
		it := ix.delay.remove(0).it
		it.place = uint8(schedule.Ready)
		it.lane.list(it).push(timed{it.due, it.key.hi, it})
		ix.ready++
		if it.kind.has(isForced) || it.lane.standing == idle {
			ix.refresh(it.lane)
		}
	}
}

// unblock lets lanes stand in line again whose hold or pause has ended.
func (ix *Index) unblock() {
	for len(ix.blocked) > 0 && ix.blocked[0].at <= ix.clock {
		ix.refresh(ix.blocked[0].l)
	}
	for len(ix.holding) > 0 && ix.holding[0].at <= ix.steady() {
		ix.refresh(ix.holding[0].l)
	}
}

// pick leases up to req.Max items by start-time fair queueing: the lane that has had least is served next,
// and gives at most a quantum. Every lane in the heaps has something ready and room for it, so that each turn
// gives at least one.
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
			ahead := l.inflight >= ix.concurrency(l)
			ix.lease(it, req.Token, until)
			if ahead {
				it.kind |= isUncounted
				l.inflight--
				l.ahead--
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

// first returns the lane with the lowest virtual time of the healths that have room left, or nil.
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

// serve gives up to most of the lane's ready items to lease, as its concurrency allows, charges the lane's
// virtual time and puts the lane back where it then belongs. It returns how many it gave.
func (ix *Index) serve(l *lane, most int, lease func(*item)) int {
	ix.virtual = max(ix.virtual, l.virtual)
	n := min(most, ix.room(l), ix.gives(l))
	if l.rated() {
		ix.spend(l.flow, max(n-l.pressing(), 0))
	}
	for range n {
		ix.ready--
		lease(l.pop(ix.clock))
	}
	l.virtual += int64(n)
	if ix.gives(l) > 0 && ix.room(l) > 0 {
		ix.runnable[l.class].set(l.pos, ranked{l.virtual, l})
	} else {
		ix.refresh(l)
	}
	return n
}

// leased returns the item's lease as it is told to the claimer.
func (ix *Index) leased(it *item) schedule.Lease {
	return schedule.Lease{
		Item: it.item(), Token: it.token, Until: ix.wall(it.until), Diverts: int(it.diverts),
		Health:     schedule.Health(it.health),
		Prefetched: it.kind.has(isUncounted),
	}
}

// again returns what is still leased of the owner's last claim.
func (ix *Index) again(last *batch) []schedule.Lease {
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

// remember keeps the claim as its owner's last one.
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

// forgetOwner drops the owner that has been silent longest.
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
