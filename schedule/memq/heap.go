package memq

import "github.com/seed-ff5a32d8/dispatcher/schedule"

// arity is the number of children of a heap's node. With four the tree is flat, and the children share one or
// two cache lines.
const arity = 4

// An entry of a heap of E has an order, and stores its own position in the heap.
type entry[E any] interface {
	before(E) bool
	setIndex(int)
}

// A heap keeps its first entry at index 0. Each entry stores its position, so any entry can be removed in
// O(log n).
type heap[E entry[E]] []E

var (
	_ entry[timed]  = timed{}
	_ entry[ranked] = ranked{}
	_ entry[ending] = ending{}
)

// push adds e.
func (h *heap[E]) push(e E) {
	*h = append(*h, e)
	h.up(len(*h)-1, e)
}

// remove removes and returns the entry at position i.
func (h *heap[E]) remove(i int) E {
	s := *h
	last := len(s) - 1
	out, moved := s[i], s[last]
	var none E
	s[last] = none
	*h = s[:last]
	if i == last {
		h.shrink()
		return out
	}
	if i > 0 && moved.before((*h)[(i-1)/arity]) {
		h.up(i, moved)
	} else {
		h.down(i, moved)
	}
	return out
}

// set replaces the entry at position i by e, whose order may differ.
func (h *heap[E]) set(i int, e E) {
	if i > 0 && e.before((*h)[(i-1)/arity]) {
		h.up(i, e)
		return
	}
	h.down(i, e)
}

// shrink releases a large array once the heap is empty.
func (h *heap[E]) shrink() {
	if len(*h) == 0 && cap(*h) > 4096 {
		*h = nil
	}
}

// up moves e from position i towards the root until it is in order.
func (h *heap[E]) up(i int, e E) {
	s := *h
	for i > 0 {
		parent := (i - 1) / arity
		if !e.before(s[parent]) {
			break
		}
		s[i] = s[parent]
		s[i].setIndex(i)
		i = parent
	}
	s[i] = e
	e.setIndex(i)
}

// down moves e from position i towards the leaves until it is in order.
func (h *heap[E]) down(i int, e E) {
	s := *h
	for {
		first := i*arity + 1
		if first >= len(s) {
			break
		}
		least := first
		for c := first + 1; c < min(first+arity, len(s)); c++ {
			if s[c].before(s[least]) {
				least = c
			}
		}
		if !s[least].before(e) {
			break
		}
		s[i] = s[least]
		s[i].setIndex(i)
		i = least
	}
	s[i] = e
	e.setIndex(i)
}

// A timed is an item in the delay set, a ready list or the leases, in the order of a time and then of the id.
// It has copies of both, so that most comparisons read no item.
type timed struct {
	at int64
	hi uint64
	it *item
}

// before orders by time and then by id. Only entries with equal upper halves of their ids read the item.
func (a timed) before(b timed) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if a.hi != b.hi {
		return a.hi < b.hi
	}
	return a.it.key.lo < b.it.key.lo
}

func (a timed) setIndex(i int) { a.it.pos = int32(i) }

// A ranked is a lane among the runnable ones, in the order of virtual time, or among the blocked or stopped
// ones, in the order of the end of that state.
type ranked struct {
	at int64
	l  *lane
}

func (a ranked) before(b ranked) bool {
	return a.at < b.at || a.at == b.at && a.l.number < b.l.number
}

func (a ranked) setIndex(i int) { a.l.pos = i }

// An ending is a lock, in the order of the time after which it may be forgotten.
type ending struct {
	at int64
	k  *lock
}

func (a ending) before(b ending) bool { return a.at < b.at }

func (a ending) setIndex(i int) { a.k.pos = i }

// classes is the number of healths. Each has its own heap of runnable lanes.
const classes = int(schedule.TimingOut) + 1
