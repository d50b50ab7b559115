package memq

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// unlimited is the limit of lanes until a claim brings one. Twice as much still fits an int of 32 bits.
const unlimited = 1 << 29

// A standing says how a pick treats a lane. refresh keeps it up to date.
type standing uint8

const (
	// idle lanes have no ready items, or no room. A promotion, a settlement or a setting brings them back.
	idle standing = iota
	// runnable lanes have ready items and room for them.
	runnable
	// blocked lanes have ready items, but are paused until a known time.
	blocked
	// stopped lanes have ready items, but no forced ones, and give none until a known time: the end of a
	// hold, a breaker's rest or an empty rate. A pause of theirs ends before that.
	stopped
)

// A lane is the queue of one destination: its ready lists and its limits.
type lane struct {
	number       int64
	fresh, retry heap[timed]
	flow         *flow
	freshInRow   int // fresh items served since the last retry, while both kinds were ready

	inflight int // its leases that count
	items    int // its items, in every place
	pace     int // the concurrency, before the limit applies; zero: unchanged, so StartConcurrency
	health   schedule.Health

	ownLimit    int
	version     int64
	pausedUntil int64
	heldUntil   int64 // on the steady clock
	heldSince   int64 // when the hold began, over holds without a gap, on the steady clock
	rested      int64 // when an item was last removed from it, on the steady clock

	prefetch int // how many more items the claim in progress may prefetch

	standing standing
	class    schedule.Health // the runnable heap that holds it
	virtual  int64
	pos      int
	left     leaving
}

// A leaving is the position from which the present operation took a lane out of the runnable heaps. If the
// lane comes back in the same operation, it keeps its turn: an operation counts as one step, as a script does
// on Redis.
type leaving struct {
	call    int64
	class   schedule.Health
	virtual int64
}

// lane returns the lane of that number, which it makes if there is none. An operation that must not make one
// reads ix.lanes.
func (ix *Index) lane(number int64) *lane {
	l := ix.lanes[number]
	if l == nil {
		l = &lane{number: number}
		ix.lanes[number] = l
	}
	return l
}

// pop removes and returns the lane's next ready item: first forced ones, then the earliest of its kind, with
// FreshShare fresh items for each retry while both kinds are ready. An item that is due goes before one that
// is only within the Lookahead.
func (l *lane) pop(now int64) *item {
	if f := l.flow; f != nil && len(f.forced) > 0 {
		return f.forced.remove(0).it
	} else if f != nil && len(f.forcedRetry) > 0 {
		return f.forcedRetry.remove(0).it
	}
	list := &l.fresh
	switch {
	case len(l.fresh) == 0:
		list = &l.retry
	case len(l.retry) == 0:
	case l.fresh[0].at <= now && l.retry[0].at > now:
	case l.fresh[0].at > now && l.retry[0].at <= now:
		list = &l.retry
	case l.freshInRow < schedule.FreshShare:
		l.freshInRow++
	default:
		list, l.freshInRow = &l.retry, 0
	}
	return list.remove(0).it
}

// limitOf returns the lane's limit: its own, or that of the last claim.
func (ix *Index) limitOf(l *lane) int {
	switch {
	case l.ownLimit > 0:
		return l.ownLimit
	case ix.limit > 0:
		return ix.limit
	}
	return unlimited
}

// concurrency returns how many counted leases the lane may have now.
func (ix *Index) concurrency(l *lane) int {
	pace := l.pace
	if pace == 0 {
		pace = schedule.StartConcurrency
	}
	return min(pace, ix.limitOf(l))
}

// room returns how many more items of the lane may be leased, prefetched ones included.
func (ix *Index) room(l *lane) int {
	within := ix.concurrency(l) - l.inflight
	if within >= 0 && l.health == schedule.Answering && !l.breakerOpen() {
		return within + l.prefetch
	}
	return max(within, 0)
}

// learn adapts the lane to an ended attempt. While the breaker is open, and when it closes, the concurrency
// is 1. The caller refreshes the lane.
func (ix *Index) learn(l *lane, s schedule.Signal) {
	if l.pausedUntil > 0 {
		ix.resume(l)
	}
	switch s {
	case schedule.Answered:
		l.health = schedule.Answering
		if l.flow != nil && ix.answered(l) {
			l.pace = 1
		} else {
			l.pace = min(ix.concurrency(l)*2, ix.limitOf(l))
		}
		return
	case schedule.TimedOut:
		l.health = schedule.TimingOut
		l.pace = max(ix.concurrency(l)/2, 1)
	case schedule.Unanswered:
	case schedule.NoSignal:
		return
	}
	if ix.unanswered(l) {
		l.pace = 1
	}
}

// resume clears a pause that has ended. The lane's concurrency restarts at StartConcurrency at most.
func (ix *Index) resume(l *lane) {
	if l.pausedUntil == 0 || l.pausedUntil > ix.clock {
		return
	}
	l.pausedUntil = 0
	l.pace = min(l.pace, schedule.StartConcurrency)
}

// placeBounded returns the standing of a bounded lane with ready items, and the end of that standing; zero:
// no known end. If a forced item is ready, only a pause can delay the lane.
func (ix *Index) placeBounded(l *lane) (want standing, at int64) {
	pause, stop := l.pausedUntil-ix.clock, ix.stoppedUntil(l)
	forced := l.forcedCount() > 0
	switch {
	case pause > 0 && (forced || pause >= stop-ix.steady()):
		return blocked, l.pausedUntil
	case stop > 0 && !forced:
		return stopped, stop
	case ix.room(l) > 0:
		return runnable, 0
	}
	return idle, 0
}

// refresh moves the lane to the standing that fits its ready items, leases, limits and health. It must be
// called after each change of any of them.
func (ix *Index) refresh(l *lane) {
	want, at := idle, int64(0)
	if !l.bounded() {
		if l.otherCount() > 0 && ix.room(l) > 0 {
			want = runnable
		}
	} else {
		ix.resume(l)
		if l.readyCount() > 0 {
			want, at = ix.placeBounded(l)
		}
	}
	if want == runnable {
		if l.standing == runnable && l.class == l.health {
			return
		}
		ix.unrank(l)
		if l.left.call == ix.call && l.left.class == l.health {
			// It left in this same operation: it keeps its turn.
			l.virtual = l.left.virtual
		} else {
			// A lane that comes back gets no credit for the time in which it gave nothing.
			l.virtual = max(l.virtual, ix.virtual)
			ix.woken = true
		}
		l.standing, l.class = runnable, l.health
		ix.runnable[l.class].push(ranked{l.virtual, l})
		return
	}
	ends := ix.queueOf(want)
	if want == l.standing {
		if ends != nil && (*ends)[l.pos].at != at {
			ends.set(l.pos, ranked{at, l})
		}
		return
	}
	ix.unrank(l)
	l.standing = want
	if ends := ix.queueOf(want); ends != nil {
		ends.push(ranked{at, l})
	}
}

// queueOf returns the heap of lanes with that standing that wait for a known time; nil: there is none.
func (ix *Index) queueOf(s standing) *heap[ranked] {
	switch s {
	case blocked:
		return &ix.blocked
	case stopped:
		return &ix.stopped
	case idle, runnable:
	}
	return nil
}

// unrank takes the lane out of its heap, if it is in one.
func (ix *Index) unrank(l *lane) {
	switch l.standing {
	case runnable:
		ix.runnable[l.class].remove(l.pos)
		if l.left.call != ix.call {
			l.left = leaving{ix.call, l.class, l.virtual}
		}
	case blocked, stopped:
		ix.queueOf(l.standing).remove(l.pos)
	case idle:
	}
	l.standing = idle
}

// setLimit sets the limit of lanes without their own. A lane may gain or lose room by it, so all of them are
// refreshed. All claims of a process bring the same limit, so this is rare.
func (ix *Index) setLimit(limit int) {
	if limit == ix.limit {
		return
	}
	ix.limit = limit
	for _, l := range ix.lanes {
		if l.ownLimit == 0 {
			ix.refresh(l)
		}
	}
}

// pause replaces the lane's pause by one until that time; a time in the past ends it. After either end of a
// pause, by its time or by a setting, the concurrency restarts low (see resume).
func (ix *Index) pause(l *lane, until int64) {
	ix.resume(l)
	if l.pausedUntil > 0 && until <= ix.clock {
		l.pausedUntil = ix.clock
		ix.resume(l)
	}
	l.pausedUntil = until
	if until <= ix.clock {
		l.pausedUntil = 0
	}
}

// SetLanes applies settings of lanes. It ignores a setting that is older than the lane's.
func (ix *Index) SetLanes(ctx context.Context, settings []schedule.LaneSetting) error {
	_, err := each(ctx, ix, "set lanes", settings, schedule.LaneSetting.Validate,
		func(s *schedule.LaneSetting) struct{} {
			if l := ix.lane(s.Lane); s.Version >= l.version {
				l.ownLimit, l.version = s.Limit, s.Version
				ix.pause(l, min(s.PausedUntil, schedule.MaxTime))
				ix.setRate(l, min(int64(s.Every), schedule.MaxTime))
				ix.refresh(l)
			}
			return struct{}{}
		})
	return err
}

// maxCounted bounds the numbers of ready items in a LaneState.
const maxCounted = 1000

// LaneStates returns the states of lanes and changes none. An unknown lane has the state of a new one.
func (ix *Index) LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error) {
	return each(ctx, ix, "lane states", lanes, schedule.ValidateLane, func(number *int64) schedule.LaneState {
		if l := ix.lanes[*number]; l != nil {
			return ix.state(l)
		}
		return ix.state(&lane{number: *number})
	})
}

// state returns the state of one lane. It does not call resume, so that reading changes nothing; it reports
// what resume would do.
func (ix *Index) state(l *lane) schedule.LaneState {
	s := schedule.LaneState{
		Lane: l.number, InFlight: l.inflight, Health: l.health,
		Fresh: len(l.fresh), Retries: len(l.retry),
	}
	if limit := ix.limitOf(l); limit < unlimited {
		s.Limit, s.Concurrency = limit, ix.concurrency(l)
	}
	if l.pausedUntil > 0 && l.pausedUntil <= ix.clock {
		s.Concurrency = min(s.Concurrency, schedule.StartConcurrency) // as resume will set it
	}
	if l.pausedUntil > ix.clock {
		s.PausedUntil = l.pausedUntil
	}
	if l.heldUntil > ix.steady() {
		s.HeldUntil, s.HeldSince = ix.wall(l.heldUntil), ix.wall(l.heldSince)
	}
	if f := l.flow; f != nil {
		s.Fresh += len(f.forced)
		s.Retries += len(f.forcedRetry)
		s.Every = time.Duration(f.every)
		if f.every > 0 && ix.tokens(f) == 0 {
			s.NextToken = ix.wall(f.tokenAt())
		}
		if f.fails > 0 {
			s.Unanswered, s.UnansweredSince = f.fails, ix.wall(f.since)
		}
		if f.probe > 0 {
			s.Breaker, s.ProbeAt, s.OpenedAt = schedule.BreakerOpen, ix.wall(f.probe), ix.wall(f.opened)
		}
		if f.probe > 0 && f.probe <= ix.steady() {
			s.Breaker = schedule.BreakerProbing
		}
	}
	s.Fresh, s.Retries = min(s.Fresh, maxCounted), min(s.Retries, maxCounted)
	return s
}
