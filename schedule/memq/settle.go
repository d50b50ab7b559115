package memq

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Settle ends leases, and answers each settlement in its place.
func (ix *Index) Settle(ctx context.Context, settlements []schedule.Settlement) ([]schedule.Settled, error) {
	return each(ctx, ix, "settle", settlements, schedule.Settlement.Validate, ix.settle)
}

func (ix *Index) settle(s *schedule.Settlement) schedule.Settled {
	ix.setCounted(&s.Next, true)
	k, _ := parseKey(s.ID)
	it := ix.items[k]
	leased := it != nil && it.is(schedule.Leased)
	switch {
	case leased && it.token == s.Token:
		ix.end(it, s)
	case s.Won && !leased:
		ix.overrule(k, it, s)
	case it != nil:
		ix.count["stale"]++
		return schedule.Stale
	default:
		ix.count["stale"]++
		return schedule.Gone
	}
	ix.hold(s)
	ix.count[s.Outcome.String()]++
	return schedule.Applied
}

// end settles an item that is leased under the settlement's token.
func (ix *Index) end(it *item, s *schedule.Settlement) {
	l, moved, pushed := it.lane, it.moved, it.kind&isPushed
	ix.learn(l, s.Signal)
	if s.Outcome == schedule.Divert && s.Signal == schedule.NoSignal && !it.kind.has(isForced) && l.rated() {
		ix.spend(l.flow, -1) // no attempt was made of it
	}
	ix.detach(it)
	switch s.Outcome {
	case schedule.Reschedule, schedule.Divert:
		due := ix.moment(s.Due)
		if moved != 0 {
			due = min(due, moved)
		}
		if s.Outcome == schedule.Divert {
			it.diverts++
		} else {
			it.diverts = 0
		}
		ix.adapt(it, &s.Item)
		it.kind = (it.kind | pushed).push()
		ix.postpone(it, due)
	case schedule.Ack, schedule.Bury:
		if moved == 0 {
			ix.drop(it)
			return
		}
		// Somebody wanted it attempted again while this attempt ran. Whether it is, SQL's stamp decides.
		it.diverts = 0
		ix.postpone(it, moved)
	}
}

// overrule makes the index say what SQL says of an item that is not leased: it is nil, delayed or ready. Its lane learns
// nothing and its diverts stay, for this may be the repetition of a settlement whose reply was lost.
func (ix *Index) overrule(k key, it *item, s *schedule.Settlement) {
	if it != nil {
		ix.detach(it)
		ix.refresh(it.lane)
	}
	if s.Outcome == schedule.Ack || s.Outcome == schedule.Bury {
		if it != nil {
			ix.drop(it)
		}
		return
	}
	if it == nil {
		it = ix.put(k, s.ID, s.Lane)
		if s.Outcome == schedule.Divert {
			it.diverts = 1
		}
	}
	if s.Outcome == schedule.Reschedule {
		it.diverts = 0
	}
	ix.adapt(it, &s.Item)
	ix.postpone(it, ix.moment(s.Due))
}

// adapt takes over what the settlement says of an item that is in no place.
func (ix *Index) adapt(it *item, s *schedule.Item) {
	it.lock, it.kind = s.Lock, kindOf(s)
	if it.lane.number != s.Lane {
		it.lane.items--
		it.lane = ix.lane(s.Lane)
		it.lane.items++
	}
}

// hold lengthens the hold of the settlement's lane.
func (ix *Index) hold(s *schedule.Settlement) {
	if s.HoldUntil <= ix.clock {
		return
	}
	l := ix.lane(s.Lane)
	if until := ix.steadily(s.HoldUntil); until > l.heldUntil {
		if l.heldUntil <= ix.steady() {
			l.heldSince = ix.steady()
		}
		l.heldUntil = until
		ix.refresh(l)
	}
}

// Extend lengthens leases until their new ends, and says of each whether it is still held under its token.
func (ix *Index) Extend(ctx context.Context, leases []schedule.Lease) ([]bool, error) {
	return each(ctx, ix, "extend", leases, schedule.Lease.Validate, func(l *schedule.Lease) bool {
		it := ix.leasedUnder(l.ID, l.Token)
		if it != nil {
			ix.prolong(it, ix.steadily(l.Until))
		}
		return it != nil
	})
}

// prolong moves a lease's end to a later time of the steady clock; an earlier one changes nothing.
func (ix *Index) prolong(it *item, until int64) {
	if until > it.until {
		it.until = until
		ix.leases.set(int(it.pos), timed{until, it.key.hi, it})
	}
}
