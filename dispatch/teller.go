package dispatch

import (
	"slices"
	"time"
)

// tellPatience is how long the index is not told of ended leases because a claim is under way. It answers within that, or hangs.
const tellPatience = 5 * time.Millisecond

// A teller is about to tell the index of ended leases, when no claim is under way. Otherwise nobody would know whether the index heard
// of them before the claim: what this brings would have no permit for certain, and would be put back.
type teller struct {
	// left are those that wait for a claim.
	left []*ended
	// more: what the index is told may let a lane give more than its credit has.
	more bool
	// ready is closed when nothing is left.
	ready chan struct{}
}

// telling says that the index is about to be told of ended leases, or that it never will be. It says whether that may let a lane
// give more than its credit has.
func (w *wire) telling(batch []ended) (more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range batch {
		more = w.told(&batch[i]) || more
	}
	return more
}

// tellingInTurn is telling, after the claims under way, but not long after: with several shards one may hang, and the others are to
// hear of their leases.
func (w *wire) tellingInTurn(batch []ended) (more bool) {
	t := w.queue(batch)
	timer := time.NewTimer(tellPatience)
	defer timer.Stop()
	select {
	case <-t.ready:
	case <-timer.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range t.left {
		t.more = w.told(b) || t.more
	}
	t.left = nil
	for i := range w.shards {
		w.shards[i].tellers = slices.DeleteFunc(w.shards[i].tellers, func(other *teller) bool { return other == t })
	}
	return t.more
}

// queue begins to tell: of what no claim is under way for at once, of the rest when that has ended.
func (w *wire) queue(batch []ended) *teller {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &teller{ready: make(chan struct{})}
	for i := range batch {
		b := &batch[i]
		n := w.lanes[b.lease.Lane]
		if n == nil || !w.shards[n.shard].claiming {
			t.more = w.told(b) || t.more
			continue
		}
		t.left = append(t.left, b)
		if s := &w.shards[n.shard]; !slices.Contains(s.tellers, t) {
			s.tellers = append(s.tellers, t)
		}
	}
	if len(t.left) == 0 {
		close(t.ready)
	}
	return t
}

// tell has those go on that wait for a claim of the shard, which has ended. A lane that others of them wait for is not forgotten while
// the claim of its own shard is under way, so each is done with when that ends, and once.
func (w *wire) tell(shard int) {
	s := &w.shards[shard]
	for _, t := range s.tellers {
		t.left = slices.DeleteFunc(t.left, func(b *ended) bool {
			n := w.lanes[b.lease.Lane]
			if n != nil && n.shard != shard {
				return false
			}
			t.more = w.told(b) || t.more
			return true
		})
		if len(t.left) == 0 {
			close(t.ready)
		}
	}
	s.tellers = nil
}

// told is telling of one lease.
func (w *wire) told(b *ended) (more bool) {
	n := w.lanes[b.lease.Lane]
	if n == nil || b.epoch != w.epoch {
		return false
	}
	n.ended--
	w.recall(n)
	more = w.shards[n.shard].wanting && n.waiting() == 0
	w.forget(b.lease.Lane, n)
	return more
}
