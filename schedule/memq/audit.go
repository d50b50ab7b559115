package memq

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// auditPage is how many slots one audit looks at.
	auditPage = 200
	// scanSpan bounds how many slots, taken or free, a page of a scan passes for each item that it may list.
	scanSpan = 16
	// laneRest is how long, in milliseconds, a lane without items and without settings of its own is
	// remembered.
	laneRest = int64(24 * time.Hour / time.Millisecond)
)

// Audit checks, and mends, the records of the next slots. The last page also sets every lane's in-flight
// count to the number of its leases, and forgets lanes that have rested for a day.
func (ix *Index) Audit(ctx context.Context, shard int, cursor string) (page schedule.AuditPage, err error) {
	err = ix.do(ctx, "audit", shard, func() error {
		start, err := parseCursor("audit", cursor)
		if err != nil {
			return err
		}
		end := min(start+auditPage, len(ix.shelf.slots))
		for slot := start; slot < end; slot++ {
			it := ix.shelf.slots[slot]
			if it == nil {
				continue
			}
			page.Checked++
			if !ix.sound(it) {
				ix.mend(it)
				page.Repaired++
			}
		}
		if end < len(ix.shelf.slots) {
			page.Next = strconv.Itoa(end)
		} else {
			page.Repaired += ix.recount()
		}
		return nil
	})
	return page, err
}

// sound says whether the record is found by its id and sits where it says.
func (ix *Index) sound(it *item) bool {
	if ix.items[it.key] != it {
		return false
	}
	h, at := ix.heapOf(it)
	return h != nil && int(it.pos) < len(*h) && it.pos >= 0 && (*h)[it.pos] == timed{at, it.key.hi, it}
}

// heapOf returns the heap that the item says it is in, and the time that it has there.
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

// mend puts an unsound record into the delay set, from where it is claimed and checked against SQL. It is
// taken out of wherever it still sits first.
func (ix *Index) mend(it *item) {
	ix.purge(&ix.delay, it)
	ix.purge(&ix.leases, it)
	for list := range it.lane.lists {
		ix.ready -= ix.purge(list, it)
	}
	it.token, it.until, it.moved, it.kind = "", 0, 0, it.kind.push()&^isUncounted
	ix.items[it.key] = it
	l := it.lane
	ix.postpone(it, ix.moment(it.due))
	ix.refresh(l)
}

// purge removes every entry of the item from the heap and says how many there were.
func (ix *Index) purge(h *heap[timed], it *item) int {
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

// recount compares every lane's in-flight count with its leases, and the count of ready items with the lists,
// and returns how many were wrong.
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
		ready += l.waiting()
		bare := l.items == 0 && l.ownLimit == 0 && l.version == 0 && !l.rated() && !ix.keeps(l, false)
		if bare && l.rested+laneRest <= ix.steady() {
			delete(ix.lanes, number)
			continue
		}
		if l.open() {
			breakers++
		}
	}
	if ready != ix.ready {
		ix.ready = ready
		wrong++
	}
	ix.breakers = breakers // a lane that was forgotten had one, if it was open
	return wrong
}

// Scan lists what the index holds, by slots. An item keeps its slot from the day it is added to the day it is
// removed.
func (ix *Index) Scan(ctx context.Context, shard int, cursor string,
	limit int) (page schedule.ScanPage, err error) {
	err = ix.do(ctx, "scan", shard, func() error {
		slot, err := parseCursor("scan", cursor)
		if err != nil {
			return err
		}
		limit = min(max(limit, 1), schedule.MaxBatch)
		for end := min(slot+limit*scanSpan, len(ix.shelf.slots)); slot < end &&
			len(page.Found) < limit; slot++ {
			if it := ix.shelf.slots[slot]; it != nil {
				page.Found = append(page.Found,
					schedule.Found{Item: it.item(), Place: schedule.Place(it.place)})
			}
		}
		if slot < len(ix.shelf.slots) {
			page.Next = strconv.Itoa(slot)
		}
		return nil
	})
	return page, err
}

// parseCursor reads a cursor: a slot's number, or empty for the first.
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

// Stats returns the index's sizes.
func (ix *Index) Stats(ctx context.Context, shard int) (s schedule.Stats, err error) {
	err = ix.do(ctx, "stats", shard, func() error {
		s = schedule.Stats{
			Tick:         schedule.Tick{Now: ix.clock, Next: ix.next(0)},
			Delayed:      int64(len(ix.delay)),
			Ready:        int64(ix.ready),
			Leased:       int64(len(ix.leases)),
			BlockedLanes: int64(len(ix.blocked) + len(ix.holding)),
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
