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

// parseKey reads a bare ULID: 26 characters, of which the first is at most 7, or it would not fit 128 bits.
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

// An item is the record of one id. While its place is Delayed it is in Index.delay, while it is Ready in one
// of its lane's lists, while it is Leased in Index.leases; pos is where in that heap.
type item struct {
	key   key
	id    string
	lane  *lane
	lock  string
	token string // the lease's; empty unless leased
	due   int64
	until int64 // the lease's end, on the steady clock
	moved int64 // the due time of a movement that came while it was leased; zero: none

	pos     int32
	slot    int32
	diverts int32
	place   uint8 // a schedule.Place
	health  uint8 // the lane's when the item was claimed, a schedule.Health
	kind    kind
}

// A kind says what an item is apart from its place. All of an item's small fields share one word.
type kind uint8

const (
	isRetry kind = 1 << iota
	isForced
	// isPushed: a movement that came while it was leased forces it afterwards.
	isPushed
	// isUncounted: its lease does not count towards its lane's concurrency.
	isUncounted
)

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

// push makes an item forced that a movement has pushed while it was leased.
func (k kind) push() kind {
	if k.has(isPushed) {
		k |= isForced
	}
	return k &^ isPushed
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

// A shelf holds every record in a slot that it keeps for life, which is what scans and audits walk by: an
// item that stays is met however many others come and go.
type shelf struct {
	slots []*item // nil: the slot is free
	free  []int32
}

// add returns an empty record in a slot of its own.
func (s *shelf) add() *item {
	n := len(s.free)
	if n == 0 {
		s.slots, s.free, n = append(s.slots, nil), append(s.free, int32(len(s.slots))), 1
	}
	it := &item{slot: s.free[n-1]}
	s.slots[it.slot], s.free = it, s.free[:n-1]
	return it
}

// drop frees the record's slot.
func (s *shelf) drop(it *item) {
	s.slots[it.slot], s.free = nil, append(s.free, it.slot)
}

// Ensure adds to the delay set what is absent, and answers each item in its place with where it was before.
func (ix *Index) Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error) {
	return each(ctx, ix, "ensure", items, schedule.Item.Validate, ix.ensure)
}

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

// Cancel removes what is delayed or ready, leaves alone what is leased, and answers each with where it was
// before.
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

// Move gives items another due time, and answers each in its place. What was ready waits in the delay set
// again; the next claim promotes it if it is due.
func (ix *Index) Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error) {
	return each(ctx, ix, "move", movements, schedule.Movement.Validate,
		func(m *schedule.Movement) schedule.Moved {
			return ix.move(ix.find(m.ID), ix.moment(m.Due), m.Forced)
		})
}

func (ix *Index) move(it *item, due int64, forced bool) schedule.Moved {
	if it == nil {
		return schedule.MovedGone
	}
	if it.is(schedule.Leased) {
		if it.moved == 0 || due < it.moved {
			it.moved = due
		}
		if forced {
			it.kind |= isPushed
		}
		return schedule.MovedBlocked
	}
	l := it.lane // which an item that goes beyond the watermark forgets, as it does whether it is forced
	ix.detach(it)
	if forced {
		it.kind |= isForced
	}
	forced = it.kind.has(isForced)
	ix.postpone(it, due)
	ix.refresh(l)
	if ix.keeps(l, forced) {
		return schedule.MovedBlocked
	}
	return schedule.MovedIt
}

// Lookup answers each ref with where the item is, and changes nothing.
func (ix *Index) Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return each(ctx, ix, "lookup", refs, schedule.Ref.Validate, func(r *schedule.Ref) schedule.Position {
		if it := ix.find(r.ID); it != nil {
			return it.position()
		}
		return schedule.Position{}
	})
}

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

// overrule makes the index say what SQL says of an item that is not leased: it is nil, delayed or ready. Its
// lane learns nothing and its diverts stay, for this may be the repetition of a settlement whose reply was
// lost.
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
