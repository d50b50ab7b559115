package memq

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// auditPage is the number of slots that one page of an audit checks.
	auditPage = 200
	// scanSpan bounds the slots, used or free, that a page of a scan reads for each item of its limit.
	scanSpan = 16
	// laneRest is how long a lane without items and without a setting is remembered, in milliseconds.
	laneRest = int64(24 * time.Hour / time.Millisecond)
)

// Audit checks and repairs the records of the next slots. The last page also corrects every lane's count of
// leases, and forgets lanes that were unused for a day.
func (ix *Index) Audit(ctx context.Context, shard int, cursor string) (page schedule.AuditPage, err error) {
	err = ix.do(ctx, "audit", shard, func() error {
		start, err := parseCursor("audit", cursor)
		if err != nil {
			return err
		}
		end := min(start+auditPage, len(ix.slots.items))
		for slot := start; slot < end; slot++ {
			it := ix.slots.items[slot]
			if it == nil {
				continue
			}
			page.Checked++
			if !ix.sound(it) {
				ix.repair(it)
				page.Repaired++
			}
		}
		if end < len(ix.slots.items) {
			page.Next = strconv.Itoa(end)
		} else {
			page.Repaired += ix.recount()
		}
		return nil
	})
	return page, err
}

// sound reports whether the record is found by its id, and sits at its position of the heap of its place.
func (ix *Index) sound(it *item) bool {
	if ix.items[it.key] != it {
		return false
	}
	h, at := ix.heapOf(it)
	return h != nil && int(it.pos) < len(*h) && it.pos >= 0 && (*h)[it.pos] == timed{at, it.key.hi, it}
}

// heapOf returns the heap of the item's place, and the item's time in it.
func (ix *Index) heapOf(it *item) (*heap[timed], int64) {
	switch schedule.Place(it.place) {
	case schedule.Delayed:
		return &ix.delay, it.due
	case schedule.Ready:
		return it.lane.list(it), it.due
	case schedule.Leased:
		return &ix.leases, it.until
	case schedule.Absent:
	}
	return nil, 0
}

// repair removes an unsound record from every place and puts it into the delay set. A claim finds it there,
// and SQL's stamp checks it.
func (ix *Index) repair(it *item) {
	ix.removeFrom(&ix.delay, it)
	ix.removeFrom(&ix.leases, it)
	for list := range it.lane.lists {
		ix.ready -= ix.removeFrom(list, it)
	}
	it.token, it.until, it.movedTo, it.kind = "", 0, 0, it.kind.afterLease()&^isUncounted
	ix.items[it.key] = it
	l := it.lane
	ix.postpone(it, ix.moment(it.due))
	ix.refresh(l)
}

// removeFrom removes every entry of the item from the heap and returns their number.
func (ix *Index) removeFrom(h *heap[timed], it *item) int {
	n := 0
	for i := 0; i < len(*h); i++ {
		if (*h)[i].it == it {
			h.remove(i)
			n++
			i = -1
		}
	}
	return n
}

// recount corrects every lane's count of leases and the count of ready items. It returns how many were wrong.
func (ix *Index) recount() int {
	leases := make(map[*lane]int, len(ix.leases))
	for _, e := range ix.leases {
		if !e.it.kind.has(isUncounted) {
			leases[e.it.lane]++
		}
	}
	wrong, ready, breakers := 0, 0, 0
	for number, l := range ix.lanes {
		if n := leases[l]; n != l.inflight {
			l.inflight = n
			wrong++
		}
		ix.refresh(l)
		ready += l.readyCount()
		bare := l.items == 0 && l.ownLimit == 0 && l.version == 0 && !l.hasRate() && !ix.blocks(l, false)
		if bare && l.rested+laneRest <= ix.steady() {
			delete(ix.lanes, number)
			continue
		}
		if l.breakerOpen() {
			breakers++
		}
	}
	if ready != ix.ready {
		ix.ready = ready
		wrong++
	}
	ix.breakers = breakers // counted again, because a forgotten lane may have had an open breaker
	return wrong
}

// Scan lists up to limit items, in the order of slots. An item keeps its slot, so a scan finds every item
// that stays. A page ends early after scanSpan slots for each item of its limit, so that its duration is
// bounded even if most slots are free.
func (ix *Index) Scan(ctx context.Context, shard int, cursor string,
	limit int) (page schedule.ScanPage, err error) {
	err = ix.do(ctx, "scan", shard, func() error {
		slot, err := parseCursor("scan", cursor)
		if err != nil {
			return err
		}
		limit = min(max(limit, 1), schedule.MaxBatch)
		end := min(slot+limit*scanSpan, len(ix.slots.items))
		for ; slot < end && len(page.Found) < limit; slot++ {
			if it := ix.slots.items[slot]; it != nil {
				found := schedule.Found{Item: it.item(), Place: schedule.Place(it.place)}
				page.Found = append(page.Found, found)
			}
		}
		if slot < len(ix.slots.items) {
			page.Next = strconv.Itoa(slot)
		}
		return nil
	})
	return page, err
}

// parseCursor reads a cursor: the number of a slot; empty: the first.
func parseCursor(operation, cursor string) (int, error) {
	if cursor == "" {
		return 0, nil
	}
	slot, err := strconv.Atoi(cursor)
	if err != nil || slot < 0 {
		return 0, fmt.Errorf("%s: cursor %q: %w", operation, cursor, schedule.ErrInvalid)
	}
	return slot, nil
}

// OpenBreakers returns up to limit lanes whose breaker is open, those that opened first.
func (ix *Index) OpenBreakers(ctx context.Context, shard, limit int) (lanes []int64, err error) {
	err = ix.do(ctx, "breakers", shard, func() error {
		var open []*lane
		for _, l := range ix.lanes {
			if len(open) == ix.breakers {
				break
			}
			if l.flow != nil && l.flow.probe > 0 {
				open = append(open, l)
			}
		}
		slices.SortFunc(open, func(a, b *lane) int {
			return cmp.Or(cmp.Compare(a.flow.opened, b.flow.opened), cmp.Compare(a.number, b.number))
		})
		for _, l := range open[:min(len(open), max(limit, 1))] {
			lanes = append(lanes, l.number)
		}
		return nil
	})
	return lanes, err
}

// Stats returns the index's sizes.
func (ix *Index) Stats(ctx context.Context, shard int) (s schedule.Stats, err error) {
	err = ix.do(ctx, "stats", shard, func() error {
		s = schedule.Stats{
			Tick:         schedule.Tick{Now: ix.clock, Next: ix.next(0)},
			Delayed:      int64(len(ix.delay)),
			Ready:        int64(ix.ready),
			Leased:       int64(len(ix.leases)),
			BlockedLanes: int64(len(ix.blocked) + len(ix.stopped)),
			OpenBreakers: int64(ix.breakers),
			Counters:     maps.Clone(ix.count),
		}
		for _, lanes := range ix.runnable {
			s.RunnableLanes += int64(len(lanes))
		}
		for _, k := range ix.locks {
			s.Waiters += int64(k.queue.Len())
			if len(k.holders) > 0 {
				s.Locks++
			}
		}
		if len(ix.delay) > 0 {
			s.HeadDue = ix.delay[0].at
		}
		return nil
	})
	return s, err
}
