package redisq

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Open lets claims in.
func (ix *Index) Open(ctx context.Context, shard int) error {
	if err := ix.checkShard("open", shard); err != nil {
		return err
	}
	r, err := ix.call(ctx, "open", shard)
	if err != nil {
		return err
	}
	r.tick()
	return r.done()
}

// Adopt puts running attempts in as leased and their locks as held. What is leased under another token is left as it is. A
// lock that another attempt holds passes on to the adopted one when that one lets it go.
func (ix *Index) Adopt(ctx context.Context, adoptions []schedule.Adoption) error {
	err := ix.spread(ctx, spreading{
		operation: "adopt", n: len(adoptions),
		check:   func(i int) error { return checkAdoption(adoptions[i]) },
		shardOf: ix.byLane(func(i int) int64 { return adoptions[i].Lane }),
		idOf:    func(i int) string { return adoptions[i].ID },
		element: func(i int) []any {
			a := &adoptions[i]
			return []any{a.ID, a.Token, moment(a.Until), encodeRecord(a.Item)}
		},
	})
	if err != nil {
		return err
	}
	var locked []schedule.LockRequest
	for _, a := range adoptions {
		if a.Lock != "" {
			locked = append(locked, schedule.LockRequest{Lock: a.Lock, ID: a.ID, Lane: a.Lane, Token: a.Token, Until: a.Until})
		}
	}
	return ix.spread(ctx, spreading{
		operation: "acquire", n: len(locked),
		check:   func(i int) error { return checkLock(locked[i]) },
		shardOf: func(i int) int { return shardOfLock(locked[i].Lock, len(ix.keys)) },
		idOf:    unlike,
		fixed:   []any{"adopt", schedule.MaxHeirs},
		element: func(i int) []any { return lockArgs(locked[i]) },
		read:    func(_ int, r *reply) { r.int(); r.int() },
	})
}

// SetLanes takes over settings, each unless it is older than what the lane has.
func (ix *Index) SetLanes(ctx context.Context, settings []schedule.LaneSetting) error {
	return ix.spread(ctx, spreading{
		operation: "lanes", n: len(settings),
		check:   func(i int) error { return checkSetting(settings[i]) },
		shardOf: ix.byLane(func(i int) int64 { return settings[i].Lane }),
		idOf:    unlike,
		element: func(i int) []any {
			s := &settings[i]
			return []any{encodeLane(s.Lane), s.Limit, min(int64(s.Every), maxTime), moment(s.PausedUntil), min(s.Version, maxTime)}
		},
	})
}
