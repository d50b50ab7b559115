package redisq

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

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

// LaneStates says how lanes stand, and changes nothing. A lane that the index does not know stands as one that never had
// anything.
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
		InFlight: int(r.int()), Concurrency: int(r.int()), Limit: int(r.int()), Health: schedule.Health(r.int()),
		Every: time.Duration(r.int()), PausedUntil: r.int(), HeldUntil: r.int(), NextToken: r.int(),
		Unanswered: int(r.int()), UnansweredSince: r.int(), Breaker: schedule.BreakerState(r.int()), ProbeAt: r.int(),
		Fresh: int(min(r.int(), most)), Retries: int(min(r.int(), most)), HeldSince: r.int(), OpenedAt: r.int(),
	}
}
