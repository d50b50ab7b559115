package memq

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// unlimited is the limit of lanes before any claim has said one. Twice as much is still an int.
const unlimited = 1 << 29

// A standing is where a lane stands when items are picked.
type standing uint8

const (
	// idle lanes have nothing ready, or have no room; a promotion, a settlement or a setting brings them
	// back.
	idle standing = iota
	// runnable lanes have something ready and room for it.
	runnable
	// blocked lanes have something ready, but are paused until a known time.
	blocked
	// holding lanes have something ready, nothing of it forced, but are held until a known time, which is not
	// before a pause's end.
	holding
)

// A lane is one destination's: its ready lists and what bounds them.
type lane struct {
	number       int64
	fresh, retry heap[timed]
	flow         *flow
	turn         int // fresh items that were taken since the last retry while both waited

	inflight int // its leases that count
	items    int // its records, in whatever place
	pace     int // the current concurrency, before the limit; zero: not yet known
	health   schedule.Health

	ownLimit    int
	version     int64
	pausedUntil int64
	heldUntil   int64 // on the steady clock
	heldSince   int64 // since when without a gap, on the steady clock
	rested      int64 // when its last item went, on the steady clock

	ahead int // how many the claim under way may prefetch

	standing standing
	class    schedule.Health // the runnable heap that it is in
	virtual  int64
	pos      int
	left     leaving
}

// A leaving is where a lane stood among the runnable ones when a call first took it out of them.
type leaving struct {
	call    int64
	class   schedule.Health
	virtual int64
}

// lane returns the lane of that number, made if it is new.
func (ix *Index) lane(number int64) *lane {
	l := ix.lanes[number]
	if l == nil {
		l = &lane{number: number}
		ix.lanes[number] = l
	}
	return l
}

// pop takes the lane's next ready item: what is forced first, then the earliest of its kind, and FreshShare
// fresh ones for each retry while both kinds wait. What is not due yet waits for what is.
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
	case l.turn < schedule.FreshShare:
		l.turn++
	default:
		list, l.turn = &l.retry, 0
	}
	return list.remove(0).it
}

// limitOf returns the lane's limit: its own, or else that of the last claim. Before any claim there is none.
func (ix *Index) limitOf(l *lane) int {
	switch {
	case l.ownLimit > 0:
		return l.ownLimit
	case ix.limit > 0:
		return ix.limit
	}
	return unlimited
}

// concurrency returns how many of the lane's items may be leased at present.
func (ix *Index) concurrency(l *lane) int {
	pace := l.pace
	if pace == 0 {
		pace = schedule.StartConcurrency
	}
	return min(pace, ix.limitOf(l))
}

// room returns how many more of the lane's items may be leased, prefetched ones included.
func (ix *Index) room(l *lane) int {
	within := ix.concurrency(l) - l.inflight
	if within >= 0 && l.health == schedule.Answering && !l.open() {
		return within + l.ahead
	}
	return max(within, 0)
}

// learn adapts the lane to what an ended attempt said of it. While its breaker is open its concurrency is 1,
// and so it is when that closes. The caller refreshes the lane.
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

// resume forgets a pause that has ended. Whatever the lane's concurrency was, it begins low.
func (ix *Index) resume(l *lane) {
	if l.pausedUntil == 0 || l.pausedUntil > ix.clock {
		return
	}
	l.pausedUntil = 0
	l.pace = min(l.pace, schedule.StartConcurrency)
}

// placeBounded returns where a bounded lane with ready items stands now, and until when: zero for no time.
func (ix *Index) placeBounded(l *lane) (want standing, at int64) {
	pause, stop := l.pausedUntil-ix.clock, ix.stop(l)
	forced := l.pressing() > 0
	switch {
	case pause > 0 && (forced || pause >= stop-ix.steady()):
		return blocked, l.pausedUntil
	case stop > 0 && !forced:
		return holding, stop
	case ix.room(l) > 0:
		return runnable, 0
	}
	return idle, 0
}

// refresh puts the lane where its ready items, its leases, its hold and its health want it to stand. It is
// called after any of them changed.
func (ix *Index) refresh(l *lane) {
	want, at := idle, int64(0)
	if !l.bounded() {
		if l.ordinary() > 0 && ix.room(l) > 0 {
			want = runnable
		}
	} else {
		ix.resume(l)
		if l.waiting() > 0 {
			want, at = ix.placeBounded(l)
		}
	}
	if want == runnable {
		if l.standing == runnable && l.class == l.health {
			return
		}
		ix.unrank(l)
		if l.left.call == ix.call && l.left.class == l.health {
			// it left in this same call, which counts as one step: it keeps its turn
			l.virtual = l.left.virtual
		} else {
			// A lane that comes back does not bring along what it did not use while it was away.
			l.virtual = max(l.virtual, ix.virtual)
			ix.woken = true
		}
		l.standing, l.class = runnable, l.health
		ix.runnable[l.class].push(ranked{l.virtual, l})
		return
	}
	ends := ix.waits(want)
	if want == l.standing {
		if ends != nil && (*ends)[l.pos].at != at {
			ends.set(l.pos, ranked{at, l})
		}
		return
	}
	ix.unrank(l)
	l.standing = want
	if ends := ix.waits(want); ends != nil {
		ends.push(ranked{at, l})
	}
}

// waits returns where lanes of that standing wait for a time to come; nil: they wait for none.
func (ix *Index) waits(s standing) *heap[ranked] {
	switch s {
	case blocked:
		return &ix.blocked
	case holding:
		return &ix.holding
	case idle, runnable:
	}
	return nil
}

// unrank takes the lane out of the heap that it stands in, if any.
func (ix *Index) unrank(l *lane) {
	switch l.standing {
	case runnable:
		ix.runnable[l.class].remove(l.pos)
		if l.left.call != ix.call {
			l.left = leaving{ix.call, l.class, l.virtual}
		}
	case blocked, holding:
		ix.waits(l.standing).remove(l.pos)
	case idle:
	}
	l.standing = idle
}

// setLimit takes over the limit for lanes that have none of their own. Claims of one process always bring the
// same, so that looking at every lane is rare.
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

// pause keeps the lane from being claimed until then, and ends the pause that it has.
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

// SetLanes takes over settings, each unless it is older than what the lane has.
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

// maxTold is up to where ready items of a lane are counted.
const maxTold = 1000

// LaneStates says how lanes stand, and changes nothing. A lane that the index does not know stands as one
// that never had anything.
func (ix *Index) LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error) {
	return each(ctx, ix, "lane states", lanes, schedule.ValidateLane, func(number *int64) schedule.LaneState {
		if l := ix.lanes[*number]; l != nil {
			return ix.state(l)
		}
		return ix.state(&lane{number: *number})
	})
}

func (ix *Index) state(l *lane) schedule.LaneState {
	s := schedule.LaneState{
		Lane: l.number, InFlight: l.inflight, Health: l.health,
		Fresh: len(l.fresh), Retries: len(l.retry),
	}
	if limit := ix.limitOf(l); limit < unlimited {
		s.Limit, s.Concurrency = limit, ix.concurrency(l)
	}
	if l.pausedUntil > 0 && l.pausedUntil <= ix.clock {
		s.Concurrency = min(s.Concurrency, schedule.StartConcurrency) // as it will be when somebody looks
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
			s.NextToken = ix.wall(f.next())
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
	s.Fresh, s.Retries = min(s.Fresh, maxTold), min(s.Retries, maxTold)
	return s
}
