package redisq

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Ensure adds to the delay set what is absent, and answers each item in its place with where it was before.
func (ix *Index) Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error) {
	return each(ctx, ix, operation[schedule.Item, schedule.Position]{
		script: "ensure", check: schedule.Item.Validate, ref: schedule.Item.Ref,
		encode: func(it schedule.Item) []any { return []any{it.ID, encodeRecord(it)} },
		decode: (*reply).position,
	}, items)
}

// Lookup answers each ref with where the item is, and changes nothing.
func (ix *Index) Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return ix.byRef(ctx, "lookup", refs)
}

// Cancel removes what is delayed or ready, leaves alone what is leased, and answers each with where it was
// before.
func (ix *Index) Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return ix.byRef(ctx, "cancel", refs)
}

func (ix *Index) byRef(ctx context.Context, script string, refs []schedule.Ref) ([]schedule.Position, error) {
	return each(ctx, ix, operation[schedule.Ref, schedule.Position]{
		script: script, check: schedule.Ref.Validate,
		ref:    func(r schedule.Ref) schedule.Ref { return r },
		encode: func(r schedule.Ref) []any { return []any{r.ID} },
		decode: (*reply).position,
	}, refs)
}

// Move gives items another due time, and answers each in its place. What was ready waits in the delay set
// again; the next claim promotes it if it is due.
func (ix *Index) Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error) {
	return each(ctx, ix, operation[schedule.Movement, schedule.Moved]{
		script: "move", check: schedule.Movement.Validate,
		ref:    func(m schedule.Movement) schedule.Ref { return m.Ref },
		encode: func(m schedule.Movement) []any { return []any{m.ID, moment(min(m.Due, maxDue)), m.Forced} },
		decode: func(r *reply) schedule.Moved { return schedule.Moved(r.int()) },
	}, movements)
}

// Settle ends leases, and answers each settlement in its place.
func (ix *Index) Settle(ctx context.Context, settlements []schedule.Settlement) ([]schedule.Settled, error) {
	return each(ctx, ix, operation[schedule.Settlement, schedule.Settled]{
		script: "settle", check: schedule.Settlement.Validate, ref: schedule.Settlement.Ref,
		encode: func(s schedule.Settlement) []any {
			return []any{s.ID, s.Token, s.Outcome.String(), int(s.Signal), s.Won, moment(s.HoldUntil),
				encodeRecord(s.Item), encodeNext(s.Next)}
		},
		decode: func(r *reply) schedule.Settled { return schedule.Settled(r.int()) },
	}, settlements)
}

// Extend lengthens leases until their new ends, and says of each whether it is still held under its token.
func (ix *Index) Extend(ctx context.Context, leases []schedule.Lease) ([]bool, error) {
	return each(ctx, ix, operation[schedule.Lease, bool]{
		script: "extend", check: schedule.Lease.Validate, ref: schedule.Lease.Ref,
		encode: func(l schedule.Lease) []any { return []any{l.ID, l.Token, moment(l.Until)} },
		decode: func(r *reply) bool { return r.int() == 1 },
	}, leases)
}

// encodeNext writes a lease: its id and its token; nothing if there is none.
func encodeNext(next schedule.LeaseRef) string { return next.ID + next.Token }

// SetLanes takes over settings, each unless it is older than what the lane has.
func (ix *Index) SetLanes(ctx context.Context, settings []schedule.LaneSetting) error {
	_, err := each(ctx, ix, operation[schedule.LaneSetting, struct{}]{
		script: "lanes", check: schedule.LaneSetting.Validate,
		ref: func(s schedule.LaneSetting) schedule.Ref { return schedule.Ref{Lane: s.Lane} },
		encode: func(s schedule.LaneSetting) []any {
			return []any{
				encodeLane(s.Lane), s.Limit, min(int64(s.Every), schedule.MaxTime), moment(s.PausedUntil),
				min(s.Version, schedule.MaxTime),
			}
		},
	}, settings)
	return err
}

// LaneStates says how lanes stand, and changes nothing. A lane that the index does not know stands as one
// that never had anything.
func (ix *Index) LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error) {
	states, err := each(ctx, ix, operation[int64, schedule.LaneState]{
		script: "states", check: schedule.ValidateLane,
		ref:    func(lane int64) schedule.Ref { return schedule.Ref{Lane: lane} },
		encode: func(lane int64) []any { return []any{encodeLane(lane)} },
		decode: decodeLaneState,
	}, lanes)
	for i := range states {
		states[i].Lane = lanes[i]
	}
	return states, err
}

func decodeLaneState(r *reply) schedule.LaneState {
	const most = 1000
	return schedule.LaneState{
		InFlight: int(r.int()), Concurrency: int(r.int()), Limit: int(r.int()),
		Health: schedule.Health(r.int()),
		Every:  time.Duration(r.int()), PausedUntil: r.int(), HeldUntil: r.int(), NextToken: r.int(),
		Unanswered: int(r.int()), UnansweredSince: r.int(), Breaker: schedule.BreakerState(r.int()),
		ProbeAt: r.int(),
		Fresh:   int(min(r.int(), most)), Retries: int(min(r.int(), most)), HeldSince: r.int(),
		OpenedAt: r.int(),
	}
}

// Acquire takes or renews the locks of leases, in their order, and answers each in its place. A lock is in
// the shard of its own name, whatever shard its item is in.
func (ix *Index) Acquire(ctx context.Context, leases []schedule.Lease) ([]schedule.LockReply, error) {
	return ix.acquire(ctx, "take", leases)
}

// acquire takes locks, or, in the mode "adopt", those of attempts that run already.
func (ix *Index) acquire(ctx context.Context, mode string,
	leases []schedule.Lease) ([]schedule.LockReply, error) {
	return each(ctx, ix, operation[schedule.Lease, schedule.LockReply]{
		script: "acquire", check: schedule.Lease.ValidateLocking, fixed: []any{mode},
		lock: func(l schedule.Lease) string { return l.Lock },
		encode: func(l schedule.Lease) []any {
			return []any{l.Lock, l.ID, encodeLane(l.Lane), l.Token, moment(l.Until)}
		},
		decode: func(r *reply) schedule.LockReply {
			return schedule.LockReply{Acquired: r.int() == 1, HeldUntil: r.int()}
		},
	}, leases)
}

// Release frees locks, and answers each with the waiter whose turn it is.
func (ix *Index) Release(ctx context.Context, unlocks []schedule.Unlock) ([]schedule.Waiter, error) {
	return each(ctx, ix, operation[schedule.Unlock, schedule.Waiter]{
		script: "release", check: schedule.Unlock.Validate,
		lock: func(u schedule.Unlock) string { return u.Lock },
		encode: func(u schedule.Unlock) []any {
			return []any{u.Lock, u.ID, u.Token, strings.Join(u.Gone, ""), strings.Join(u.Skip, "")}
		},
		decode: func(r *reply) schedule.Waiter {
			id, lane := r.text(), r.text()
			if id == "" {
				return schedule.Waiter{}
			}
			number, rest, ok := decodeLane(lane)
			if (!ok || rest != "") && r.err == nil {
				r.err = strconv.ErrSyntax
			}
			return schedule.Waiter{ID: id, Lane: number}
		},
	}, unlocks)
}
