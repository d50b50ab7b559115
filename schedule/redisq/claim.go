package redisq

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Claim ends the counting of leases, reaps, promotes and leases, in this order. A repetition of the owner's
// last claim, known by its token, does the first alone: it returns what of that batch is still leased. The
// client does not repeat it by itself. Leases that cannot be read are set aside, and the others returned.
func (ix *Index) Claim(ctx context.Context, shard int, req schedule.ClaimRequest) (schedule.Claimed, error) {
	if err := req.Validate(); err != nil {
		return schedule.Claimed{}, err
	}
	args := make([]any, 0, 9+3*len(req.Ended))
	args = append(args, req.Owner, req.Token, req.Max,
		max(req.MaxUncertain, 0), max(req.MaxTimingOut, 0), moment(req.Lease.Milliseconds()), req.LaneLimit,
		req.Lookahead.Milliseconds(), ix.encodePrefetch(shard, req.Prefetch))
	for i := range req.Ended {
		if e := &req.Ended[i]; ix.ShardOf(e.Lane) == shard {
			args = append(args, e.ID, e.Token, encodeNext(e.Next))
		}
	}
	var claimed schedule.Claimed
	unreadable := []any{req.Token}
	err := ix.ask(ctx, "claim", shard, args, func(r *reply) {
		claimed = schedule.Claimed{
			Tick: r.tick(), More: r.int() == 1, Waiting: r.int() == 1, Reaped: int(r.int()),
			Quarantined: int(r.int()),
		}
		for r.more() {
			lease, err := decodeLease(r)
			if err != nil {
				ix.log.ErrorContext(ctx, "a record of the index cannot be read and is set aside", "shard",
					shard, "error", err)
				unreadable = append(unreadable, lease.ID)
				continue
			}
			lease.Token = req.Token
			claimed.Leases = append(claimed.Leases, lease)
		}
	})
	if n := len(unreadable) - 1; err == nil && n > 0 {
		// Where that fails, the same claim is asked for again, and has the same leases.
		err = ix.ask(ctx, "quarantine", shard, unreadable, func(r *reply) { r.tick() })
		claimed.Quarantined += n
	}
	if err != nil {
		return schedule.Claimed{}, err
	}
	return claimed, nil
}

// What is added to the health of a lease: full if its lane has more that is ready, and no room for it; ahead
// if it was prefetched.
const full, ahead = 3, 6

// decodeLease reads a lease but for its token. Where its record cannot be read, only the ID is set.
func decodeLease(r *reply) (schedule.Lease, error) {
	id, record := r.text(), r.text()
	health, until := r.int(), r.int()
	it, diverts, err := decodeRecord(id, record)
	err = errors.Join(err, schedule.ValidateID(id))
	if err != nil {
		return schedule.Lease{Item: schedule.Item{ID: id}}, err
	}
	return schedule.Lease{
		Item: it, Until: until, Diverts: diverts, Health: schedule.Health(health % full),
		Full: health%ahead >= full, Prefetched: health >= ahead,
	}, nil
}

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
