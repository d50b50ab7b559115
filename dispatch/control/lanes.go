package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A LaneView is a lane with its backlog and its state in the index.
type LaneView struct {
	store.LaneBacklog
	// State is nil if the index does not answer.
	State *schedule.LaneState
	// Disabled: the lane's endpoint is disabled, not paused.
	Disabled bool
	// Global are the blocks of every lane: SQL that rejects writes, no process that sends, an index that does
	// not answer or is being rebuilt.
	Global []Block
}

// Lanes returns the project's lanes, sorted by key.
func (ct *Controller) Lanes(ctx context.Context, project string, f store.LaneFilter) ([]LaneView, error) {
	f.Now = ct.clock.Now()
	lanes, err := ct.o.Store.LaneList(ctx, project, f)
	if err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	views := make([]LaneView, len(lanes))
	numbers := make([]int64, len(lanes))
	for i := range lanes {
		views[i].LaneBacklog, numbers[i] = lanes[i], lanes[i].ID
	}
	if len(lanes) == 0 {
		return views, nil
	}
	if err := ct.markDisabledEndpoints(ctx, views); err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	_, states, indexErr := ct.index.AskIndex(ctx, nil, numbers)
	for i := range states {
		views[i].State = &states[i]
	}
	if err := ct.addGlobalBlocks(ctx, views, indexErr); err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	return views, nil
}

// MaxHeldLanes bounds what HeldLanes returns.
const MaxHeldLanes = 200

// HeldLanes returns the keys of the project's lanes with open callbacks that are paused, have a paused or
// disabled endpoint, or have an open breaker: at most MaxHeldLanes, those with the most open callbacks first.
// While the index does not answer, lanes with an open breaker are left out.
func (ct *Controller) HeldLanes(ctx context.Context, project string) ([]string, error) {
	breakers, err := ct.index.OpenBreakers(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	keys, err := ct.o.Store.HeldLanes(ctx, project, breakers, ct.clock.Now(), MaxHeldLanes)
	if err != nil {
		return nil, fmt.Errorf("find held lanes: %w", err)
	}
	return keys, nil
}

// addGlobalBlocks sets Global of each lane. indexErr is the error of the last call to the index.
func (ct *Controller) addGlobalBlocks(ctx context.Context, views []LaneView, indexErr error) error {
	blocks, err := ct.globalBlocks(ctx, indexErr, true)
	if err != nil {
		return err
	}
	for i := range views {
		v := &views[i]
		v.Global = slices.Clone(blocks)
		for k := range v.Global {
			if h := &v.Global[k]; h.Since == 0 {
				h.Since = v.OldestDue // no worker ever ran, see workerBlock
			}
		}
	}
	return nil
}

// markDisabledEndpoints sets Disabled. The row of a lane shows a disabled endpoint and one that is paused
// without end in the same way, so the endpoints are read.
func (ct *Controller) markDisabledEndpoints(ctx context.Context, views []LaneView) error {
	var ids []string
	for i := range views {
		if v := &views[i]; v.EndpointID != "" && v.EndpointPause == store.Forever {
			ids = append(ids, v.EndpointID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := ct.o.Store.EndpointsByID(ctx, ids)
	if err != nil {
		return err
	}
	for i := range views {
		v := &views[i]
		v.Disabled = slices.ContainsFunc(found, func(ep store.Endpoint) bool {
			return ep.ID == v.EndpointID && !ep.Enabled
		})
	}
	return nil
}

// Blocks are what keeps the lane's callbacks from being sent at now, the first to cure first. The rate and
// the concurrency are included only while callbacks are ready.
func (v *LaneView) Blocks(now int64) []Block {
	reason := ""
	if v.EndpointPause == v.PausedUntil && v.OwnPause != v.PausedUntil {
		reason = v.PauseReason // PauseReason belongs to the pause that ends last
	}
	ep := store.Endpoint{
		ID: v.EndpointID, Enabled: !v.Disabled, DisabledReason: reason, DisabledAt: v.EndpointPausedAt,
	}
	if ep.Enabled {
		ep.PausedUntil, ep.PauseReason, ep.PausedAt = v.EndpointPause, reason, v.EndpointPausedAt
	}
	blocks := slices.Concat(v.Global, pauseBlocks(&v.Lane, &ep, now))
	if v.State == nil {
		return blocks
	}
	blocks = append(blocks, receiverBlocks(v.State, now, "POST /v1/callbacks/ID/retry")...)
	if v.State.Fresh+v.State.Retries > 0 {
		blocks = append(blocks, limitBlocks(v.State, v.Key, now, v.OldestDue, false)...)
	}
	return blocks
}

// Why is the code of the first block of the lane at now; empty: nothing blocks it.
func (v *LaneView) Why(now int64) string {
	if blocks := v.Blocks(now); len(blocks) > 0 {
		return blocks[0].Code
	}
	return ""
}

// SetLane sets the concurrency and the rate of a lane. Nil leaves a limit as it is, zero removes it.
func (ct *Controller) SetLane(
	ctx context.Context, project, key string, limit *int, rate *store.Rate, by store.Actor,
) (store.Lane, error) {
	f := accept.Findings(nil)
	checkLane(key, &f)
	if limit != nil && (*limit < 0 || *limit > MaxConcurrency) {
		f.Add("concurrency", "must be 1 to %d, or null to remove the limit", MaxConcurrency)
	}
	if len(f) > 0 {
		return store.Lane{}, f.Err()
	}
	l, err := ct.o.Store.SetLane(ctx, project, key, limit, rate, ct.clock.Now(), by)
	return l, ct.settingsChanged(ctx, "set lane", err)
}

// PauseLane pauses a lane until a time in Unix milliseconds; 0 resumes it. New callbacks are still accepted.
func (ct *Controller) PauseLane(
	ctx context.Context, project, key string, until int64, by store.Actor,
) (store.Lane, error) {
	f := accept.Findings(nil)
	checkLane(key, &f)
	checkReason(by, &f)
	if len(f) > 0 {
		return store.Lane{}, f.Err()
	}
	l, err := ct.o.Store.PauseLane(ctx, project, key, until, by.Reason, ct.clock.Now(), by)
	return l, ct.settingsChanged(ctx, "pause lane", err)
}

func checkLane(key string, f *accept.Findings) {
	if key == "" {
		f.Add("lane", "is required")
	}
	// The lane of a callback that has only a URL is longer than MaxLane.
	accept.CheckText("lane", key, 2*accept.MaxLane+64, f)
}
