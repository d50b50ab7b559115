package redisq

import (
	"context"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Acquire takes or renews locks in the order of the requests, and answers each in its place. A lock is in the shard of
// its own name, whatever shard its item is in.
func (ix *Index) Acquire(ctx context.Context, requests []schedule.LockRequest) ([]schedule.LockReply, error) {
	replies := make([]schedule.LockReply, len(requests))
	err := ix.spread(ctx, spreading{
		operation: "acquire", n: len(requests),
		check:   func(i int) error { return checkLock(requests[i]) },
		shardOf: func(i int) int { return shardOfLock(requests[i].Lock, len(ix.keys)) },
		idOf:    unlike,
		fixed:   []any{"take", schedule.MaxHeirs},
		element: func(i int) []any { return lockArgs(requests[i]) },
		read: func(i int, r *reply) {
			replies[i] = schedule.LockReply{Acquired: r.int() == 1, HeldUntil: r.int()}
		},
	})
	return replies, err
}

func lockArgs(r schedule.LockRequest) []any {
	return []any{r.Lock, r.ID, encodeLane(r.Lane), r.Token, moment(r.Until)}
}

// unlike is the id of elements that the script does one after the other, so that repetitions need no round of their own.
func unlike(i int) string { return strconv.Itoa(i) }

// Release frees locks, and answers each with the waiter whose turn it is.
func (ix *Index) Release(ctx context.Context, unlocks []schedule.Unlock) ([]schedule.Waiter, error) {
	waiters := make([]schedule.Waiter, len(unlocks))
	err := ix.spread(ctx, spreading{
		operation: "release", n: len(unlocks),
		check:   func(i int) error { return checkUnlock(unlocks[i]) },
		shardOf: func(i int) int { return shardOfLock(unlocks[i].Lock, len(ix.keys)) },
		idOf:    unlike,
		fixed:   []any{schedule.KeepForWaiter.Milliseconds()},
		element: func(i int) []any {
			u := &unlocks[i]
			return []any{u.Lock, u.ID, u.Token, strings.Join(u.Gone, ""), strings.Join(u.Skip, "")}
		},
		read: func(i int, r *reply) {
			id, lane := r.text(), r.text()
			if id == "" {
				return
			}
			number, rest, ok := decodeLane(lane)
			if (!ok || rest != "") && r.err == nil {
				r.err = strconv.ErrSyntax
			}
			waiters[i] = schedule.Waiter{ID: id, Lane: number}
		},
	})
	return waiters, err
}
