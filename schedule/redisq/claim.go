package redisq

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Claim first ends the counting of the leases in req.Ended, then reaps, promotes and leases. If the token is
// that of the owner's last claim, it only ends the counting and returns what is still leased of that batch.
// The client never repeats the call. Claim puts leases with unreadable records into quarantine and returns
// the others.
func (ix *Index) Claim(ctx context.Context, shard int, req schedule.ClaimRequest) (schedule.Claimed, error) {
	if err := req.Validate(); err != nil {
		return schedule.Claimed{}, err
	}
	args := make([]any, 0, 9+3*len(req.Ended))
	args = append(args, req.Owner, req.Token, req.Max,
		max(req.MaxUncertain, 0), max(req.MaxTimingOut, 0),
		encodeTime(req.Lease.Milliseconds()), req.LaneLimit, req.Lookahead.Milliseconds(),
		ix.encodePrefetch(shard, req.Prefetch))
	for i := range req.Ended {
		if e := &req.Ended[i]; ix.ShardOf(e.Lane) == shard {
			args = append(args, e.ID, e.Token, encodeNext(e.Next))
		}
	}
	var claimed schedule.Claimed
	unreadable := []any{req.Token}
	err := ix.run(ctx, "claim", shard, args, func(r *reply) {
		claimed = schedule.Claimed{
			Tick: r.tick(), More: r.int() == 1, Waiting: r.int() == 1, Reaped: int(r.int()),
			Quarantined: int(r.int()),
		}
		for r.more() {
			lease, err := decodeLease(r)
			if err != nil {
				ix.log.ErrorContext(ctx, "unreadable index record moved to quarantine", "shard", shard,
					"error", err)
				unreadable = append(unreadable, lease.ID)
				continue
			}
			lease.Token = req.Token
			claimed.Leases = append(claimed.Leases, lease)
		}
	})
	if n := len(unreadable) - 1; err == nil && n > 0 {
		// If this fails, the caller repeats the claim and gets the same leases, so they are quarantined then.
		err = ix.run(ctx, "quarantine", shard, unreadable, func(r *reply) { r.tick() })
		claimed.Quarantined += n
	}
	if err != nil {
		return schedule.Claimed{}, err
	}
	return claimed, nil
}

// The script adds these numbers to the health of a lease: full if its lane has more ready items but no room,
// prefetched if the lease was prefetched.
const full, prefetched = 3, 6

// decodeLease reads a lease without its token. If its record is unreadable, only the ID is set.
func decodeLease(r *reply) (schedule.Lease, error) {
	id, record := r.text(), r.text()
	health, until := r.int(), r.int()
	it, diverts, cause, err := decodeRecord(id, record)
	err = errors.Join(err, schedule.ValidateID(id))
	if err != nil {
		return schedule.Lease{Item: schedule.Item{ID: id}}, err
	}
	return schedule.Lease{
		Item: it, Until: until, Diverts: diverts, Cause: cause, Health: schedule.Health(health % full),
		Full: health%prefetched >= full, Prefetched: health >= prefetched,
	}, nil
}

// encodePrefetch encodes the shard's lanes, each with the most items to prefetch.
func (ix *Index) encodePrefetch(shard int, lanes []schedule.LanePrefetch) string {
	var b []byte
	for _, p := range lanes {
		if ix.ShardOf(p.Lane) == shard {
			b = fmt.Appendf(b, "%s %d ", encodeLane(p.Lane), p.Max)
		}
	}
	return string(b)
}
