package memq

import (
	"math"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// ns is a millisecond, step and catchUp are schedule.TokenStep and schedule.CatchUp, in nanoseconds.
const (
	ns      = int64(time.Millisecond)
	step    = int64(schedule.TokenStep)
	catchUp = int64(schedule.CatchUp)
)

// A flow is what bounds a lane beside its concurrency, and what goes first. Most lanes have none.
type flow struct {
	// forced and forcedRetry are ready lists as well; what is in them goes first.
	forced, forcedRetry heap[timed]

	// every is how many nanoseconds lie between two attempts that begin; zero: no rate. The next token is
	// there at token, in nanoseconds of the steady clock.
	every, token int64

	// fails attempts in a row got no answer, the first at since on the steady clock; it counts no further
	// than BreakerAttempts. probe, on the steady clock, is when the breaker lets a probe pass; zero: it is
	// closed. Whatever ends without a word of the lane leaves it as it is, so that another probe may be made
	// at once. It opened at opened, on the steady clock.
	fails                int
	since, probe, opened int64
}

// bounded says whether anything but its concurrency may bound the lane. Most lanes are not.
func (l *lane) bounded() bool { return l.flow != nil || l.heldUntil > 0 || l.pausedUntil > 0 }

// rated says whether the lane has a rate; open, whether its breaker is.
func (l *lane) rated() bool { return l.flow != nil && l.flow.every > 0 }

func (l *lane) open() bool { return l.flow != nil && l.flow.probe > 0 }

// flowing returns the lane's flow, made if it has none.
func (l *lane) flowing() *flow {
	if l.flow == nil {
		l.flow = new(flow)
	}
	return l.flow
}

// list returns the ready list that the item belongs to.
func (l *lane) list(it *item) *heap[timed] {
	switch {
	case it.kind.has(isForced) && it.kind.has(isRetry):
		return &l.flowing().forcedRetry
	case it.kind.has(isForced):
		return &l.flowing().forced
	case it.kind.has(isRetry):
		return &l.retry
	}
	return &l.fresh
}

// lists yields all ready lists.
func (l *lane) lists(yield func(*heap[timed]) bool) {
	if f := l.flow; f != nil && !(yield(&f.forced) && yield(&f.forcedRetry)) {
		return
	}
	_ = yield(&l.fresh) && yield(&l.retry)
}

// ordinary is how many ready items are not forced; pressing, how many are.
func (l *lane) ordinary() int { return len(l.fresh) + len(l.retry) }

func (l *lane) pressing() int {
	if l.flow == nil {
		return 0
	}
	return len(l.flow.forced) + len(l.flow.forcedRetry)
}

func (l *lane) waiting() int { return l.ordinary() + l.pressing() }

// stop returns until when, on the steady clock, the lane gives nothing but what is forced; zero: it gives.
func (ix *Index) stop(l *lane) int64 {
	stop := l.heldUntil
	if l.open() {
		stop = max(stop, l.flow.probe)
	}
	if l.rated() && ix.tokens(l.flow) == 0 {
		stop = max(stop, l.flow.next())
	}
	if stop <= ix.steady() {
		return 0
	}
	return stop
}

// spare returns how many items that are not forced the lane may give now, however much room it has.
func (ix *Index) spare(l *lane) int {
	switch {
	case l.heldUntil > ix.steady(), l.open() && l.flow.probe > ix.steady():
		return 0
	case l.rated():
		return ix.tokens(l.flow)
	}
	return math.MaxInt
}

// gives returns how many of its ready items the lane may give now, however much room it has.
func (ix *Index) gives(l *lane) int {
	if !l.bounded() {
		return l.ordinary()
	}
	return l.pressing() + min(l.ordinary(), ix.spare(l))
}

// keeps says whether the lane keeps an item back, forced or not, however much room it has. A token that comes
// sooner than a lock would be kept for a waiter is not worth passing one over.
func (ix *Index) keeps(l *lane, forced bool) bool {
	if forced || l.pausedUntil > ix.clock {
		return l.pausedUntil > ix.clock
	}
	stop := ix.stop(l)
	return stop > 0 && (l.heldUntil > ix.steady() || l.open() && l.flow.probe > ix.steady() ||
		stop > ix.steady()+schedule.KeepForWaiter.Milliseconds())
}

// answered closes the lane's breaker, and says whether it was open.
func (ix *Index) answered(l *lane) bool {
	if !l.open() {
		if l.flow != nil {
			l.flow.fails, l.flow.since = 0, 0
		}
		return false
	}
	l.flow.fails, l.flow.since, l.flow.probe = 0, 0, 0
	ix.breakers--
	return true
}

// unanswered counts an attempt without an answer, and says whether the lane's breaker is open after it. The
// spread is by the lane's number: lanes that failed together need not be probed together.
func (ix *Index) unanswered(l *lane) bool {
	f := l.flowing()
	if f.fails == 0 {
		f.since = ix.steady()
	}
	f.fails = min(f.fails+1, schedule.BreakerAttempts)
	if f.probe == 0 && (f.fails < schedule.BreakerAttempts ||
		ix.steady()-f.since < schedule.BreakerSpan.Milliseconds()) {
		return false
	}
	if f.probe == 0 {
		ix.breakers++
		f.opened = ix.steady()
	}
	f.probe = ix.steady() + schedule.BreakerRestOf(l.number)
	return true
}

// beat is the steady clock as tokens see it.
func (ix *Index) beat() int64 { return ix.steady() * ns / step * step }

// reach forgets tokens that nobody took for too long.
func (ix *Index) reach(f *flow) int64 { return max(f.token, ix.beat()-catchUp) }

// tokens returns how many are there.
func (ix *Index) tokens(f *flow) int {
	if f.token > ix.beat() {
		return 0
	}
	return int((ix.beat()-ix.reach(f))/f.every) + 1
}

// next returns when there will be a token again, on the steady clock, where there is none.
func (f *flow) next() int64 {
	return (f.token + step - 1) / step * step / ns
}

// spend takes so many tokens; less than none: gives them back.
func (ix *Index) spend(f *flow, count int) {
	f.token = ix.reach(f) + f.every*int64(count)
	f.token = ix.reach(f)
}

// setRate is in force at once: nobody waits for longer than the new rate would have him wait.
func (ix *Index) setRate(l *lane, every int64) {
	if every == 0 && !l.rated() {
		return
	}
	f := l.flowing()
	if f.every == 0 {
		f.token = ix.beat() // it brings along nothing that it did not use before
	}
	if f.every != every {
		f.token = min(f.token, ix.beat()+every)
	}
	f.every = every
}
