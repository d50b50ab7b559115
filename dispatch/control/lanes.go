package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A LaneView is a lane with what waits in it and how it stands in the index.
type LaneView struct {
	store.LaneBacklog
	// State is nil when the index does not answer.
	State *schedule.LaneState
	// Disabled: the endpoint whose lane it is is not paused but disabled.
	Disabled bool
	// Halts are what keeps every lane: SQL that does not commit, no process that sends, an index that does
	// not answer or is being rebuilt.
	Halts []Block
}

// Lanes returns the project's lanes, by key.
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
	if err := ct.markDisabled(ctx, views); err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	_, states, asked := ct.index.AskIndex(ctx, nil, numbers)
	for i := range states {
		views[i].State = &states[i]
	}
	if err := ct.markHalts(ctx, views, asked); err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	return views, nil
}

// markHalts adds what keeps all lanes. asked is the error with which the index was asked.
func (ct *Controller) markHalts(ctx context.Context, views []LaneView, asked error) error {
	halts, err := ct.halts(ctx, 0, asked, true)
	if err != nil {
		return err
	}
	for i := range views {
		v := &views[i]
		v.Halts = slices.Clone(halts)
		for k := range v.Halts {
			if h := &v.Halts[k]; h.Since == 0 {
				h.Since = v.OldestDue // it waits for the first worker that there ever is
			}
		}
	}
	return nil
}

// markDisabled tells lanes of disabled endpoints from those of paused ones: of either the endpoint's pause is
// all that the lane has.
func (ct *Controller) markDisabled(ctx context.Context, views []LaneView) error {
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

// Holds are what holds a lane back at now in the words of an explanation, what is to be cured first before
// the rest. What only stops what is ready, its rate and its concurrency, is among them while something is.
func (v *LaneView) Holds(now int64) []Block {
	reason := ""
	if v.EndpointPause == v.PausedUntil && v.OwnPause != v.PausedUntil {
		reason = v.PauseReason // which is that of the pause that ends last
	}
	ep := store.Endpoint{
		ID: v.EndpointID, Enabled: !v.Disabled, DisabledReason: reason, DisabledAt: v.EndpointPausedAt,
	}
	if ep.Enabled {
		ep.PausedUntil, ep.PauseReason, ep.PausedAt = v.EndpointPause, reason, v.EndpointPausedAt
	}
	holds := slices.Concat(v.Halts, stopped(&v.Lane, &ep, now))
	if v.State == nil {
		return holds
	}
	holds = append(holds, refused(v.State, now, "POST /v1/callbacks/ID/retry")...)
	if v.State.Fresh+v.State.Retries > 0 {
		holds = append(holds, limited(v.State, v.Key, now, v.OldestDue, false)...)
	}
	return holds
}

// Why is the code of the first of a lane's holds at now; empty: there is none.
func (v *LaneView) Why(now int64) string {
	if holds := v.Holds(now); len(holds) > 0 {
		return holds[0].Code
	}
	return ""
}

// SetLane bounds what a lane may send; nil leaves a bound as it is, zero takes it away.
func (ct *Controller) SetLane(
	ctx context.Context, project, key string, limit *int, rate *store.Rate, by store.Actor,
) (store.Lane, error) {
	f := accept.Findings(nil)
	checkLane(key, &f)
	if limit != nil && (*limit < 0 || *limit > MaxConcurrency) {
		f.Add("concurrency", "is 1 to %d, or null for none of its own", MaxConcurrency)
	}
	if len(f) > 0 {
		return store.Lane{}, f.Err()
	}
	l, err := ct.o.Store.SetLane(ctx, project, key, limit, rate, ct.clock.Now(), by)
	return l, ct.changed(ctx, "set lane", err)
}

// PauseLane holds a lane until a time; with 0 it is resumed. Accepts go on.
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
	return l, ct.changed(ctx, "pause lane", err)
}

func checkLane(key string, f *accept.Findings) {
	if key == "" {
		f.Add("lane", "is required")
	}
	// a plain address's lane is longer than a caller's own
	accept.CheckText("lane", key, 2*accept.MaxLane+64, f)
}
