package memq

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A key is a ULID as a number. Its order is the order of the text.
type key struct{ hi, lo uint64 }

// crockford has, for each byte, its value in Crockford's base 32 in upper case, or 255.
var crockford = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
	}
	for i, c := range []byte("0123456789ABCDEFGHJKMNPQRSTVWXYZ") {
		t[c] = byte(i)
	}
	return t
}()

// parseKey reads a bare ULID of 26 characters. The first is at most 7: a larger one would not fit 128 bits.
func parseKey(id string) (k key, ok bool) {
	if len(id) != 26 || id[0] > '7' {
		return key{}, false
	}
	var seen byte
	for i := range 13 {
		v := crockford[id[i]]
		seen |= v
		k.hi = k.hi<<5 | uint64(v)
	}
	v := crockford[id[13]]
	seen |= v
	k.hi = k.hi<<1 | uint64(v>>4)
	k.lo = uint64(v & 15)
	for i := 14; i < 26; i++ {
		v := crockford[id[i]]
		seen |= v
		k.lo = k.lo<<5 | uint64(v)
	}
	return k, seen < 32
}

// An item is the record of one id. It is in Index.delay while its place is Delayed, in one of its lane's
// lists while it is Ready, and in Index.leases while it is Leased. pos is its position in that heap.
type item struct {
	key     key
	id      string
	lane    *lane
	lock    string
	token   string // of the lease; empty unless leased
	due     int64
	until   int64 // the end of the lease, on the steady clock
	movedTo int64 // the due time of a movement that came during the lease; zero: none

	pos     int32
	slot    int32
	diverts int32
	place   uint8 // a schedule.Place
	health  uint8 // the lane's schedule.Health at the claim
	kind    kind
	cause   schedule.DivertCause // of the last divert
}

// A kind has the flags of an item. The item's small fields share one machine word.
type kind uint8

const (
	isRetry kind = 1 << iota
	isForced
	// isForcedByMove: a movement that came during the lease makes the item forced when the lease ends.
	isForcedByMove
	// isUncounted: the lease does not count towards the lane's concurrency.
	isUncounted
)

// kindOf returns the flags of an item that is not leased.
func kindOf(it *schedule.Item) (k kind) {
	if it.Retry {
		k |= isRetry
	}
	if it.Forced {
		k |= isForced
	}
	return k
}

func (k kind) has(one kind) bool { return k&one != 0 }

// afterLease returns the kind at the end of a lease: a movement that came during the lease may force the
// item.
func (k kind) afterLease() kind {
	if k.has(isForcedByMove) {
		k |= isForced
	}
	return k &^ isForcedByMove
}

// find returns the item, or nil.
func (ix *Index) find(id string) *item {
	k, ok := parseKey(id)
	if !ok {
		return nil
	}
	return ix.items[k]
}

func (it *item) is(p schedule.Place) bool { return it.place == uint8(p) }

func (it *item) position() schedule.Position {
	return schedule.Position{Place: schedule.Place(it.place), Due: it.due}
}

func (it *item) item() schedule.Item {
	return schedule.Item{ID: it.id, Lane: it.lane.number, Due: it.due, Lock: it.lock,
		Retry: it.kind.has(isRetry), Forced: it.kind.has(isForced)}
}

// A slotTable gives each record a slot that it keeps until it is removed. Scans and audits walk over the
// slots, so they meet every item that stays, however many others come and go.
type slotTable struct {
	items []*item // by slot; nil: the slot is free
	free  []int32
}

// add returns an empty record in a free slot.
func (s *slotTable) add() *item {
	n := len(s.free)
	if n == 0 {
		s.items, s.free, n = append(s.items, nil), append(s.free, int32(len(s.items))), 1
	}
	it := &item{slot: s.free[n-1]}
	s.items[it.slot], s.free = it, s.free[:n-1]
	return it
}

// drop frees the record's slot.
func (s *slotTable) drop(it *item) {
	s.items[it.slot], s.free = nil, append(s.free, it.slot)
}

// Ensure adds absent items to the delay set. It answers each item with its position before the call.
func (ix *Index) Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error) {
	return each(ctx, ix, "ensure", items, schedule.Item.Validate, ix.ensure)
}

// ensure adds an item unless it is present or due beyond the watermark.
func (ix *Index) ensure(s *schedule.Item) schedule.Position {
	k, _ := parseKey(s.ID)
	if it := ix.items[k]; it != nil {
		return it.position()
	}
	if due := ix.moment(s.Due); !ix.beyond(due) {
		it := ix.put(k, s.ID, s.Lane)
		it.lock, it.kind = s.Lock, kindOf(s)
		ix.postpone(it, due)
	}
	return schedule.Position{}
}

// Cancel removes items that are delayed or ready. A leased item stays: its holder settles it. It answers each
// with its position before the call.
func (ix *Index) Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return each(ctx, ix, "cancel", refs, schedule.Ref.Validate, func(r *schedule.Ref) schedule.Position {
		it := ix.find(r.ID)
		if it == nil {
			return schedule.Position{}
		}
		was := it.position()
		if !it.is(schedule.Leased) {
			ix.detach(it)
			ix.drop(it)
		}
		return was
	})
}

// Move gives items another due time. A ready item goes back to the delay set; the next claim promotes it if
// it is due.
func (ix *Index) Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error) {
	return each(ctx, ix, "move", movements, schedule.Movement.Validate,
		func(m *schedule.Movement) schedule.Moved {
			return ix.move(ix.find(m.ID), ix.moment(m.Due), m.Forced)
		})
}

// move moves one item; nil: it is absent. A leased item stays leased and remembers the movement until the
// lease ends (see end and reap).
func (ix *Index) move(it *item, due int64, forced bool) schedule.Moved {
	if it == nil {
		return schedule.MovedGone
	}
	if it.is(schedule.Leased) {
		if it.movedTo == 0 || due < it.movedTo {
			it.movedTo = due
		}
		if forced {
			it.kind |= isForcedByMove
		}
		return schedule.MovedBlocked
	}
	l := it.lane // read before postpone, which drops an item that is due beyond the watermark
	ix.detach(it)
	if forced {
		it.kind |= isForced
	}
	forced = it.kind.has(isForced)
	ix.postpone(it, due)
	ix.refresh(l)
	if ix.blocks(l, forced) {
		return schedule.MovedBlocked
	}
	return schedule.MovedIt
}

// Lookup returns the position of each item. It changes nothing.
func (ix *Index) Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return each(ctx, ix, "lookup", refs, schedule.Ref.Validate, func(r *schedule.Ref) schedule.Position {
		if it := ix.find(r.ID); it != nil {
			return it.position()
		}
		return schedule.Position{}
	})
}

// Settle ends leases. It answers each settlement in its place.
func (ix *Index) Settle(ctx context.Context, settlements []schedule.Settlement) ([]schedule.Settled, error) {
	return each(ctx, ix, "settle", settlements, schedule.Settlement.Validate, ix.settle)
}

// settle applies one settlement. The token guards against a settlement of an earlier lease; Won overrides the
// check for an item that is not leased, because SQL has decided. The settlement's Next counts in any case.
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

// end settles an item that is leased under the settlement's token. If a movement came during the lease, the
// item is due at the earlier of the two times, even after an Ack or a Bury. A divert without an attempt gives
// the lane its token back.
func (ix *Index) end(it *item, s *schedule.Settlement) {
	l, moved, forced := it.lane, it.movedTo, it.kind&isForcedByMove
	ix.learn(l, s.Signal)
	attempted := s.Outcome != schedule.Divert || s.Signal != schedule.NoSignal
	if !attempted && !it.kind.has(isForced) && l.hasRate() {
		ix.spend(l.flow, -1)
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
			it.cause = s.Cause
		} else {
			it.diverts, it.cause = 0, 0
		}
		ix.adapt(it, &s.Item)
		it.kind = (it.kind | forced).afterLease()
		ix.postpone(it, due)
	case schedule.Ack, schedule.Bury:
		if moved == 0 {
			ix.drop(it)
			return
		}
		// The movement asks for another attempt. SQL's stamp decides whether it is made.
		it.diverts, it.cause = 0, 0
		ix.postpone(it, moved)
	}
}

// overrule makes the index agree with SQL about an item that is not leased: it is nil, delayed or ready. The
// lane learns nothing and the diverts stay, because this may be the repetition of a settlement whose reply
// was lost.
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
			it.diverts, it.cause = 1, s.Cause
		}
	}
	if s.Outcome == schedule.Reschedule {
		it.diverts, it.cause = 0, 0
	}
	ix.adapt(it, &s.Item)
	ix.postpone(it, ix.moment(s.Due))
}

// adapt copies the lock, the kind and the lane of a settlement to an item that is in no place.
func (ix *Index) adapt(it *item, s *schedule.Item) {
	it.lock, it.kind = s.Lock, kindOf(s)
	if it.lane.number != s.Lane {
		it.lane.items--
		it.lane = ix.lane(s.Lane)
		it.lane.items++
	}
}

// hold starts the hold of the settlement's lane, or lengthens one that runs. It shortens none: another
// attempt of the lane may have asked for longer. HoldUntil is a wall time, as clock is. The lane keeps its
// hold on the steady clock.
func (ix *Index) hold(s *schedule.Settlement) {
	if s.HoldUntil <= ix.clock {
		return
	}
	l := ix.lane(s.Lane)
	if until := ix.steadily(s.HoldUntil); until > l.heldUntil {
		if l.heldUntil <= ix.steady() { // no hold runs
			l.heldSince = ix.steady()
		}
		l.heldUntil = until
		ix.refresh(l)
	}
}

// Extend sets later ends for leases. It reports for each whether it still exists under its token.
func (ix *Index) Extend(ctx context.Context, leases []schedule.Lease) ([]bool, error) {
	return each(ctx, ix, "extend", leases, schedule.Lease.Validate, func(l *schedule.Lease) bool {
		it := ix.leasedUnder(l.ID, l.Token)
		if it != nil {
			ix.prolong(it, ix.steadily(l.Until))
		}
		return it != nil
	})
}

// prolong sets a later end of a lease, on the steady clock. An earlier end changes nothing.
func (ix *Index) prolong(it *item, until int64) {
	if until > it.until {
		it.until = until
		ix.leases.set(int(it.pos), timed{until, it.key.hi, it})
	}
}
