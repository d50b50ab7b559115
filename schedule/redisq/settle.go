package redisq

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Settle ends leases, and answers each settlement in its place.
func (ix *Index) Settle(ctx context.Context, settlements []schedule.Settlement) ([]schedule.Settled, error) {
	return each(ctx, ix, operation[schedule.Settlement, schedule.Settled]{
		script: "settle", check: schedule.Settlement.Validate, ref: schedule.Settlement.Ref,
		encode: func(s schedule.Settlement) []any {
			return []any{s.ID, s.Token, s.Outcome.String(), int(s.Signal), s.Won, moment(s.HoldUntil), encodeRecord(s.Item), encodeNext(s.Next)}
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
