package redisq

import (
	"context"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Acquire takes or renews the locks of leases, in their order, and answers each in its place. A lock is in the shard of
// its own name, whatever shard its item is in.
func (ix *Index) Acquire(ctx context.Context, leases []schedule.Lease) ([]schedule.LockReply, error) {
	return ix.acquire(ctx, "take", leases)
}

// acquire takes locks, or, in the mode "adopt", those of attempts that run already.
func (ix *Index) acquire(ctx context.Context, mode string, leases []schedule.Lease) ([]schedule.LockReply, error) {
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
