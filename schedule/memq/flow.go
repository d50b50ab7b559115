package memq

import "math"

// A flow is what a lane has beside its concurrency. Most lanes have none.
type flow struct {
	// forced and forcedRetry are ready lists as well; what is in them goes first.
	forced, forcedRetry heap[timed]
}

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
	case it.forced && it.retry:
		return &l.flowing().forcedRetry
	case it.forced:
		return &l.flowing().forced
	case it.retry:
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
	if l.heldUntil <= ix.steady() {
		return 0
	}
	return l.heldUntil
}

// spare returns how many items that are not forced the lane may give now, however much room it has.
func (ix *Index) spare(l *lane) int {
	if l.heldUntil > ix.steady() {
		return 0
	}
	return math.MaxInt
}

// gives returns how many of its ready items the lane may give now, however much room it has.
func (ix *Index) gives(l *lane) int { return l.pressing() + min(l.ordinary(), ix.spare(l)) }

// keeps says whether the lane keeps an item back, forced or not, however much room it has.
func (ix *Index) keeps(l *lane, forced bool) bool {
	return l.pausedUntil > ix.clock || !forced && ix.stop(l) > 0
}
