package redisq

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Ensure adds absent items to the delay set. It answers each item with its position before the call.
func (ix *Index) Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error) {
	return each(ctx, ix, operation[schedule.Item, schedule.Position]{
		script: "ensure", check: schedule.Item.Validate, ref: schedule.Item.Ref,
		encode: func(it schedule.Item) []any { return []any{it.ID, encodeRecord(it)} },
		decode: (*reply).position,
	}, items)
}

// Lookup returns the position of each item. It changes nothing.
func (ix *Index) Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return ix.positions(ctx, "lookup", refs)
}

// Cancel removes items that are delayed or ready. A leased item stays: its holder settles it. It answers each
// with its position before the call.
func (ix *Index) Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return ix.positions(ctx, "cancel", refs)
}

// positions runs the lookup or the cancel script.
func (ix *Index) positions(ctx context.Context, script string,
	refs []schedule.Ref) ([]schedule.Position, error) {
	return each(ctx, ix, operation[schedule.Ref, schedule.Position]{
		script: script, check: schedule.Ref.Validate,
		ref:    func(r schedule.Ref) schedule.Ref { return r },
		encode: func(r schedule.Ref) []any { return []any{r.ID} },
		decode: (*reply).position,
	}, refs)
}

// Move gives items another due time. A ready item goes back to the delay set; the next claim promotes it if
// it is due.
func (ix *Index) Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error) {
	return each(ctx, ix, operation[schedule.Movement, schedule.Moved]{
		script: "move", check: schedule.Movement.Validate,
		ref: func(m schedule.Movement) schedule.Ref { return m.Ref },
		encode: func(m schedule.Movement) []any {
			return []any{m.ID, encodeTime(min(m.Due, maxDue)), m.Forced}
		},
		decode: func(r *reply) schedule.Moved { return schedule.Moved(r.int()) },
	}, movements)
}

// Settle ends leases. It answers each settlement in its place.
func (ix *Index) Settle(ctx context.Context, settlements []schedule.Settlement) ([]schedule.Settled, error) {
	return each(ctx, ix, operation[schedule.Settlement, schedule.Settled]{
		script: "settle", check: schedule.Settlement.Validate, ref: schedule.Settlement.Ref,
		encode: func(s schedule.Settlement) []any {
			return []any{s.ID, s.Token, s.Outcome.String(), int(s.Signal), s.Won, encodeTime(s.HoldUntil),
				encodeWanted(&s), encodeNext(s.Next)}
		},
		decode: func(r *reply) schedule.Settled { return schedule.Settled(r.int()) },
	}, settlements)
}

// Extend sets later ends for leases. It reports for each whether it still exists under its token.
func (ix *Index) Extend(ctx context.Context, leases []schedule.Lease) ([]bool, error) {
	return each(ctx, ix, operation[schedule.Lease, bool]{
		script: "extend", check: schedule.Lease.Validate, ref: schedule.Lease.Ref,
		encode: func(l schedule.Lease) []any { return []any{l.ID, l.Token, encodeTime(l.Until)} },
		decode: func(r *reply) bool { return r.int() == 1 },
	}, leases)
}

// encodeNext encodes a lease as its id and its token; empty: no lease.
func encodeNext(next schedule.LeaseRef) string { return next.ID + next.Token }

// SetLanes applies settings of lanes. It ignores a setting that is older than the lane's.
func (ix *Index) SetLanes(ctx context.Context, settings []schedule.LaneSetting) error {
	_, err := each(ctx, ix, operation[schedule.LaneSetting, struct{}]{
		script: "lanes", check: schedule.LaneSetting.Validate,
		ref: func(s schedule.LaneSetting) schedule.Ref { return schedule.Ref{Lane: s.Lane} },
		encode: func(s schedule.LaneSetting) []any {
			return []any{
				encodeLane(s.Lane), s.Limit, min(int64(s.Every), schedule.MaxTime), encodeTime(s.PausedUntil),
				min(s.Version, schedule.MaxTime),
			}
		},
	}, settings)
	return err
}

// LaneStates returns the states of lanes and changes none. An unknown lane has the state of a new one.
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

// decodeLaneState reads the reply of the states script, whose header lists the values.
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

// Acquire takes or renews the locks of leases, in their order. It answers each in its place. The name of a
// lock determines its shard, whatever shard the item is in.
func (ix *Index) Acquire(ctx context.Context, leases []schedule.Lease) ([]schedule.LockReply, error) {
	return ix.acquire(ctx, "take", leases)
}

// acquire takes locks in the mode "take", or, in the mode "adopt", those of running attempts.
func (ix *Index) acquire(ctx context.Context, mode string,
	leases []schedule.Lease) ([]schedule.LockReply, error) {
	return each(ctx, ix, operation[schedule.Lease, schedule.LockReply]{
		script: "acquire", check: schedule.Lease.ValidateLocking, fixed: []any{mode},
		lock: func(l schedule.Lease) string { return l.Lock },
		encode: func(l schedule.Lease) []any {
			return []any{l.Lock, l.ID, encodeLane(l.Lane), l.Token, encodeTime(l.Until)}
		},
		decode: func(r *reply) schedule.LockReply {
			return schedule.LockReply{Acquired: r.int() == 1, HeldUntil: r.int()}
		},
	}, leases)
}

// Release releases locks and answers each with the waiter that is next.
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
