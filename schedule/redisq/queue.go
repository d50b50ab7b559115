package redisq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Ensure adds to the delay set what is absent, and answers each item in its place with where it was before.
func (ix *Index) Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error) {
	positions := make([]schedule.Position, len(items))
	err := ix.spread(ctx, spreading{
		operation: "ensure", n: len(items),
		check:   func(i int) error { return checkItem(items[i]) },
		shardOf: ix.byLane(func(i int) int64 { return items[i].Lane }),
		idOf:    func(i int) string { return items[i].ID },
		element: func(i int) []any { return []any{items[i].ID, encodeRecord(items[i])} },
		read:    func(i int, r *reply) { positions[i] = readPosition(r) },
	})
	return positions, err
}

func readPosition(r *reply) schedule.Position {
	return schedule.Position{Place: schedule.Place(r.int()), Due: r.int()}
}

// Claim ends the counting of leases, reaps, promotes and leases, in this order. A repetition of the owner's
// last claim, known by its token, does the first alone: it returns what of that batch is still leased. The
// client does not repeat it by itself. Leases that cannot be read are set aside, and the others returned.
func (ix *Index) Claim(ctx context.Context, shard int, req schedule.ClaimRequest) (schedule.Claimed, error) {
	if err := ix.checkShard("claim", shard); err != nil {
		return schedule.Claimed{}, err
	}
	if err := checkClaim(req); err != nil {
		return schedule.Claimed{}, err
	}
	args := make([]any, 0, 9+3*len(req.Ended))
	args = append(args, req.Owner, req.Token, req.Max,
		max(req.MaxUncertain, 0), max(req.MaxTimingOut, 0), moment(int64(req.Lease/time.Millisecond)), req.LaneLimit,
		int64(req.Lead/time.Millisecond),
		ix.encodePrefetch(shard, req.Prefetch))
	for i := range req.Ended {
		if e := &req.Ended[i]; ix.ShardOf(e.Lane) == shard {
			args = append(args, e.ID, e.Token, encodeNext(e.Next))
		}
	}
	r, err := ix.call(ctx, "claim", shard, args...)
	if err != nil {
		return schedule.Claimed{}, err
	}
	claimed := schedule.Claimed{
		Tick: r.tick(), More: r.int() == 1, Waiting: r.int() == 1, Reaped: int(r.int()), Quarantined: int(r.int()),
	}
	var unreadable []any
	for r.more() {
		id, record := r.text(), r.text()
		health, until := r.int(), r.int()
		it, diverts, err := decodeRecord(id, record)
		if err = errors.Join(err, checkID("id", id)); err != nil {
			ix.log.ErrorContext(ctx, "a record of the index cannot be read and is set aside",
				"shard", shard, "error", err)
			unreadable = append(unreadable, id)
			continue
		}
		claimed.Leases = append(claimed.Leases, schedule.Lease{
			Item: it, Token: req.Token, Until: until, Diverts: diverts, Health: schedule.Health(health % full),
			Full: health%ahead >= full, Ahead: health >= ahead,
		})
	}
	if err := r.done(); err != nil {
		return schedule.Claimed{}, err
	}
	if len(unreadable) > 0 {
		// Where that fails, the same claim is asked for again, and has the same leases.
		args := append([]any{req.Token}, unreadable...)
		if _, err := ix.call(ctx, "quarantine", shard, args...); err != nil {
			return schedule.Claimed{}, err
		}
		claimed.Quarantined += len(unreadable)
	}
	return claimed, nil
}

// What is added to the health of a lease: full if its lane has more that is ready, and no room for it; ahead
// if it was prefetched.
const full, ahead = 3, 6

// encodePrefetch writes the lanes of the shard, each with the most that it may give.
func (ix *Index) encodePrefetch(shard int, lanes []schedule.LanePrefetch) string {
	var b []byte
	for _, p := range lanes {
		if ix.ShardOf(p.Lane) == shard {
			b = fmt.Appendf(b, "%s %d ", encodeLane(p.Lane), p.Max)
		}
	}
	return string(b)
}

// encodeNext writes a lease: its id and its token; nothing if there is none.
func encodeNext(next schedule.LeaseRef) string { return next.ID + next.Token }

// outcomes are the names of outcomes in scripts, which are also those of their counters.
var outcomes = map[schedule.Outcome]string{
	schedule.Ack: "acked", schedule.Reschedule: "rescheduled", schedule.Divert: "diverted", schedule.Bury: "buried",
}

// Settle ends leases, and answers each settlement in its place.
func (ix *Index) Settle(ctx context.Context, settlements []schedule.Settlement) ([]schedule.Settled, error) {
	replies := make([]schedule.Settled, len(settlements))
	err := ix.spread(ctx, spreading{
		operation: "settle", n: len(settlements),
		check:   func(i int) error { return checkSettlement(settlements[i]) },
		shardOf: ix.byLane(func(i int) int64 { return settlements[i].Lane }),
		idOf:    func(i int) string { return settlements[i].ID },
		element: func(i int) []any {
			s := &settlements[i]
			next := ""
			if s.Next != nil {
				next = encodeNext(*s.Next)
			}
			return []any{s.ID, s.Token, outcomes[s.Outcome], int(s.Signal), s.Won, moment(s.HoldUntil), encodeRecord(s.Item), next}
		},
		read: func(i int, r *reply) { replies[i] = schedule.Settled(r.int()) },
	})
	return replies, err
}

// Extend lengthens leases, and says of each whether it is still held under that token.
func (ix *Index) Extend(ctx context.Context, extensions []schedule.Extension) ([]bool, error) {
	held := make([]bool, len(extensions))
	err := ix.spread(ctx, spreading{
		operation: "extend", n: len(extensions),
		check: func(i int) error {
			if err := checkToken(extensions[i].Token); err != nil {
				return err
			}
			return checkRef(extensions[i].ID, extensions[i].Lane)
		},
		shardOf: ix.byLane(func(i int) int64 { return extensions[i].Lane }),
		idOf:    func(i int) string { return extensions[i].ID },
		element: func(i int) []any {
			return []any{extensions[i].ID, extensions[i].Token, moment(extensions[i].Until)}
		},
		read: func(i int, r *reply) { held[i] = r.int() == 1 },
	})
	return held, err
}

// Cancel removes what is delayed or ready, leaves alone what is leased, and answers each with where it was before.
func (ix *Index) Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	positions := make([]schedule.Position, len(refs))
	err := ix.spread(ctx, spreading{
		operation: "cancel", n: len(refs),
		check:   func(i int) error { return checkRef(refs[i].ID, refs[i].Lane) },
		shardOf: ix.byLane(func(i int) int64 { return refs[i].Lane }),
		idOf:    func(i int) string { return refs[i].ID },
		element: func(i int) []any { return []any{refs[i].ID} },
		read:    func(i int, r *reply) { positions[i] = readPosition(r) },
	})
	return positions, err
}

// moves are the replies to movements as the script numbers them.
var moves = map[int64]schedule.Moved{1: schedule.MovedIt, 2: schedule.MovedGone, 3: schedule.MovedHeld}

// Move gives items another due time, and answers each in its place. What was ready waits in the delay set again; the
// next claim promotes it if it is due.
func (ix *Index) Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error) {
	replies := make([]schedule.Moved, len(movements))
	err := ix.spread(ctx, spreading{
		operation: "move", n: len(movements),
		check:   func(i int) error { return checkRef(movements[i].ID, movements[i].Lane) },
		shardOf: ix.byLane(func(i int) int64 { return movements[i].Lane }),
		idOf:    func(i int) string { return movements[i].ID },
		element: func(i int) []any {
			return []any{movements[i].ID, moment(min(movements[i].Due, maxDue)), movements[i].Forced}
		},
		read: func(i int, r *reply) { replies[i] = moves[r.int()] },
	})
	return replies, err
}
