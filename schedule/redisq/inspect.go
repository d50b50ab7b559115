package redisq

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// phases are the structures of a shard in the order in which an audit looks at them. Places come before the counts that
// follow from them.
var phases = []string{"records", "delay", "ready", "claims", "leases", "lanes", "breakers", "locks", "waiters"}

// Audit checks, and mends, one page of one of the shard's structures, about 200 entries. A page may have checked
// nothing; only an empty Next ends the audit.
func (ix *Index) Audit(ctx context.Context, shard int, cursor string) (schedule.AuditPage, error) {
	if err := ix.checkShard("audit", shard); err != nil {
		return schedule.AuditPage{}, err
	}
	if cursor == "" {
		cursor = phases[0] + ":0"
	}
	phase, at, _ := strings.Cut(cursor, ":")
	number := slices.Index(phases, phase)
	if number < 0 {
		return schedule.AuditPage{}, fmt.Errorf("audit: cursor %q: %w", cursor, schedule.ErrInvalid)
	}
	if err := checkCursor("audit", at); err != nil {
		return schedule.AuditPage{}, err
	}
	r, err := ix.call(ctx, "audit", shard, phase, at)
	if err != nil {
		return schedule.AuditPage{}, err
	}
	r.tick()
	at = r.text()
	page := schedule.AuditPage{Checked: int(r.int()), Repaired: int(r.int())}
	switch {
	case at != "0":
		page.Next = phase + ":" + at
	case number+1 < len(phases):
		page.Next = phases[number+1] + ":0"
	}
	return page, r.done()
}

// Scan lists what the shard holds, about limit items a page. A page may be empty; only an empty Next ends the scan.
func (ix *Index) Scan(ctx context.Context, shard int, cursor string, limit int) (schedule.ScanPage, error) {
	if err := ix.checkShard("scan", shard); err != nil {
		return schedule.ScanPage{}, err
	}
	if cursor == "" {
		cursor = "0"
	}
	if err := checkCursor("scan", cursor); err != nil {
		return schedule.ScanPage{}, err
	}
	r, err := ix.call(ctx, "scan", shard, cursor, min(max(limit, 1), schedule.MaxBatch))
	if err != nil {
		return schedule.ScanPage{}, err
	}
	var page schedule.ScanPage
	if next := r.text(); next != "0" {
		page.Next = next
	}
	for r.more() {
		id, record := r.text(), r.text()
		it, _, err := decodeRecord(id, record)
		if err != nil && r.err == nil {
			r.err = err
		}
		page.Found = append(page.Found, schedule.Found{Item: it, Place: schedule.Place(r.int())})
	}
	return page, r.done()
}

// Lookup answers each ref with where the item is, and changes nothing.
func (ix *Index) Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	positions := make([]schedule.Position, len(refs))
	err := ix.spread(ctx, spreading{
		operation: "lookup", n: len(refs),
		check:   func(i int) error { return checkRef(refs[i].ID, refs[i].Lane) },
		shardOf: ix.byLane(func(i int) int64 { return refs[i].Lane }),
		idOf:    unlike,
		element: func(i int) []any { return []any{refs[i].ID} },
		read:    func(i int, r *reply) { positions[i] = readPosition(r) },
	})
	return positions, err
}

// LaneStates says how lanes stand, and changes nothing. A lane that the index does not know stands as one that never had anything.
func (ix *Index) LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error) {
	states := make([]schedule.LaneState, len(lanes))
	err := ix.spread(ctx, spreading{
		operation: "states", n: len(lanes),
		check: func(i int) error {
			if lanes[i] <= 0 {
				return invalid("lane", lanes[i])
			}
			return nil
		},
		shardOf: ix.byLane(func(i int) int64 { return lanes[i] }),
		idOf:    unlike,
		element: func(i int) []any { return []any{encodeLane(lanes[i])} },
		read: func(i int, r *reply) {
			const most = 1000
			s := schedule.LaneState{
				Lane: lanes[i], InFlight: int(r.int()), Concurrency: int(r.int()), Limit: int(r.int()), Health: schedule.Health(r.int()),
				Every: time.Duration(r.int()), PausedUntil: r.int(), HeldUntil: r.int(), NextToken: r.int(),
			}
			s.Unanswered, s.UnansweredSince = int(r.int()), r.int()
			s.Breaker, s.ProbeAt = schedule.BreakerState(r.int()), r.int()
			s.Fresh, s.Retries = int(min(r.int(), most)), int(min(r.int(), most))
			s.HeldSince, s.OpenedAt = r.int(), r.int()
			states[i] = s
		},
	})
	return states, err
}

// checkCursor refuses what no reply has said: scan cursors are whole numbers.
func checkCursor(operation, cursor string) error {
	if _, err := strconv.ParseUint(cursor, 10, 64); err != nil {
		return fmt.Errorf("%s: cursor %q: %w", operation, cursor, schedule.ErrInvalid)
	}
	return nil
}

// counterNames are the counters of a shard in the order of the script's reply.
var counterNames = []string{"claimed", "acked", "rescheduled", "diverted", "buried", "reaped", "stale"}

// Stats returns the shard's sizes. Locks counts those that ended by themselves until an audit forgets them.
func (ix *Index) Stats(ctx context.Context, shard int) (schedule.Stats, error) {
	if err := ix.checkShard("stats", shard); err != nil {
		return schedule.Stats{}, err
	}
	r, err := ix.call(ctx, "stats", shard)
	if err != nil {
		return schedule.Stats{}, err
	}
	s := schedule.Stats{
		Tick:    r.tick(),
		Delayed: r.int(), Ready: r.int(), Leased: r.int(),
		RunnableLanes: r.int(), BlockedLanes: r.int(), OpenBreakers: r.int(),
		Locks: r.int(), Waiters: r.int(), Quarantined: r.int(),
		HeadDue:  r.int(),
		Counters: make(map[string]int64, len(counterNames)),
	}
	for _, name := range counterNames {
		s.Counters[name] = r.int()
	}
	return s, r.done()
}
