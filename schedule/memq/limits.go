package memq

import (
	"math"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// ns is a millisecond; step and catchUp are schedule.TokenStep and schedule.CatchUp. All are in nanoseconds.
const (
	ns      = int64(time.Millisecond)
	step    = int64(schedule.TokenStep)
	catchUp = int64(schedule.CatchUp)
)

// A flow has the limits of a lane besides its concurrency (rate and breaker), and its forced items. Most
// lanes have none.
type flow struct {
	// forced and forcedRetry are ready lists that go before the lane's others.
	forced, forcedRetry heap[timed]

	// every is the time between two attempts that begin, in nanoseconds; zero: no rate. token is when the
	// next token is there, in nanoseconds of the steady clock.
	every, token int64

	// fails is the number of attempts in a row without an answer, up to BreakerAttempts; the first of them
	// ended at since. probe is when the breaker lets a probe pass; zero: it is closed. opened is when it
	// opened. All times are on the steady clock. An attempt that ends without a signal leaves probe as it is,
	// so that another probe may follow at once.
	fails                int
	since, probe, opened int64
}

// bounded reports whether anything but its concurrency may delay the lane. Most lanes are not bounded.
func (l *lane) bounded() bool { return l.flow != nil || l.heldUntil > 0 || l.pausedUntil > 0 }

// hasRate reports whether the lane has a rate.
func (l *lane) hasRate() bool { return l.flow != nil && l.flow.every > 0 }

// breakerOpen reports whether the lane's breaker is open.
func (l *lane) breakerOpen() bool { return l.flow != nil && l.flow.probe > 0 }

// ensureFlow returns the lane's flow. It makes one if necessary.
func (l *lane) ensureFlow() *flow {
	if l.flow == nil {
		l.flow = new(flow)
	}
	return l.flow
}

// list returns the ready list of the item's kind.
func (l *lane) list(it *item) *heap[timed] {
	switch {
	case it.kind.has(isForced) && it.kind.has(isRetry):
		return &l.ensureFlow().forcedRetry
	case it.kind.has(isForced):
		return &l.ensureFlow().forced
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

// otherCount returns the number of ready items that are not forced.
func (l *lane) otherCount() int { return len(l.fresh) + len(l.retry) }

// forcedCount returns the number of ready items that are forced.
func (l *lane) forcedCount() int {
	if l.flow == nil {
		return 0
	}
	return len(l.flow.forced) + len(l.flow.forcedRetry)
}

func (l *lane) readyCount() int { return l.otherCount() + l.forcedCount() }

// stoppedUntil returns until when, on the steady clock, the lane gives forced items only; zero: it gives all.
func (ix *Index) stoppedUntil(l *lane) int64 {
	stop := l.heldUntil
	if l.breakerOpen() {
		stop = max(stop, l.flow.probe)
	}
	if l.hasRate() && ix.tokens(l.flow) == 0 {
		stop = max(stop, l.flow.tokenAt())
	}
	if stop <= ix.steady() {
		return 0
	}
	return stop
}

// maxUnforced returns how many items that are not forced the lane may give now, whatever room it has.
func (ix *Index) maxUnforced(l *lane) int {
	switch {
	case l.heldUntil > ix.steady(), l.breakerOpen() && l.flow.probe > ix.steady():
		return 0
	case l.hasRate():
		return ix.tokens(l.flow)
	}
	return math.MaxInt
}

// claimable returns how many of its ready items the lane may give now, whatever room it has.
func (ix *Index) claimable(l *lane) int {
	if !l.bounded() {
		return l.otherCount()
	}
	return l.forcedCount() + min(l.otherCount(), ix.maxUnforced(l))
}

// blocks reports whether the lane delays an item, whatever room it has. A forced item is delayed by a pause
// only. A token that comes within KeepForWaiter delays nothing: if the item is a lock's next waiter, the lock
// is kept for it that long.
func (ix *Index) blocks(l *lane, forced bool) bool {
	if forced || l.pausedUntil > ix.clock {
		return l.pausedUntil > ix.clock
	}
	stop := ix.stoppedUntil(l)
	return stop > 0 && (l.heldUntil > ix.steady() || l.breakerOpen() && l.flow.probe > ix.steady() ||
		stop > ix.steady()+schedule.KeepForWaiter.Milliseconds())
}

// answered closes the lane's breaker, and reports whether it was open.
func (ix *Index) answered(l *lane) bool {
	if !l.breakerOpen() {
		if l.flow != nil {
			l.flow.fails, l.flow.since = 0, 0
		}
		return false
	}
	l.flow.fails, l.flow.since, l.flow.probe = 0, 0, 0
	ix.breakers--
	return true
}

// unanswered counts an attempt without an answer, and reports whether the breaker is open afterwards. Each
// such attempt restarts the rest of an open breaker. The rest depends on the lane's number, so that lanes
// that failed together are not probed together.
func (ix *Index) unanswered(l *lane) bool {
	f := l.ensureFlow()
	if f.fails == 0 {
		f.since = ix.steady()
	}
	f.fails = min(f.fails+1, schedule.BreakerAttempts)
	down := f.fails == schedule.BreakerAttempts && ix.steady()-f.since >= schedule.BreakerSpan.Milliseconds()
	if f.probe == 0 && !down {
		return false
	}
	if f.probe == 0 {
		ix.breakers++
		f.opened = ix.steady()
	}
	f.probe = ix.steady() + schedule.BreakerRestOf(l.number)
	return true
}

// tokenClock returns the steady clock in nanoseconds, rounded down to a multiple of TokenStep.
func (ix *Index) tokenClock() int64 { return ix.steady() * ns / step * step }

// nextToken returns when the next token is there. Tokens that were unused for more than CatchUp are lost.
func (ix *Index) nextToken(f *flow) int64 { return max(f.token, ix.tokenClock()-catchUp) }

// tokens returns the number of available tokens.
func (ix *Index) tokens(f *flow) int {
	if f.token > ix.tokenClock() {
		return 0
	}
	return int((ix.tokenClock()-ix.nextToken(f))/f.every) + 1
}

// tokenAt returns when the next token comes, on the steady clock, if there is none now.
func (f *flow) tokenAt() int64 {
	return (f.token + step - 1) / step * step / ns
}

// spend takes count tokens; a negative count gives tokens back.
func (ix *Index) spend(f *flow, count int) {
	f.token = ix.nextToken(f) + f.every*int64(count)
	f.token = ix.nextToken(f)
}

// setRate changes the rate at once: the wait for the next token is never longer than the new rate's.
func (ix *Index) setRate(l *lane, every int64) {
	if every == 0 && !l.hasRate() {
		return
	}
	f := l.ensureFlow()
	if f.every == 0 {
		f.token = ix.tokenClock() // a lane without a rate has saved no tokens
	}
	if f.every != every {
		f.token = min(f.token, ix.tokenClock()+every)
	}
	f.every = every
}
