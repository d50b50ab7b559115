package dispatch

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// LaneControl is what people change of lanes in SQL, each in one audited transaction.
type LaneControl interface {
	// SetLane bounds a lane: nil leaves a bound as it is, zero takes it away.
	SetLane(ctx context.Context, project, key string, limit *int, rate *store.Rate, now int64, by store.Actor) (store.Lane, error)
	// PauseLane holds a lane until then; with 0 it is resumed.
	PauseLane(ctx context.Context, project, key string, until int64, reason string, now int64, by store.Actor) (store.Lane, error)
	// LaneList returns lanes with what waits in them, by key.
	LaneList(ctx context.Context, project string, f store.LaneFilter) ([]store.LaneBacklog, error)
}

// A LaneView is a lane with what waits in it and how it stands in the index.
type LaneView struct {
	store.LaneBacklog
	// State is nil when the index does not answer.
	State *schedule.LaneState
	// Disabled: the endpoint whose lane it is is not paused but disabled.
	Disabled bool
}

// Lanes returns the project's lanes, by key.
func (e *Engine) Lanes(ctx context.Context, project string, f store.LaneFilter) ([]LaneView, error) {
	f.Now = e.clock.now()
	lanes, err := e.o.Store.LaneList(ctx, project, f)
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
	if err := e.markDisabled(ctx, views); err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	if e.trouble.indexSilent() {
		return views, nil // it is known not to answer: nobody need wait for that again
	}
	ictx, cancel := context.WithTimeout(ctx, e.trouble.indexTime())
	defer cancel()
	states, err := e.o.Schedule.LaneStates(ictx, numbers)
	if err != nil {
		e.trouble.indexFailed("lane states", err)
		return views, nil
	}
	for i := range states {
		views[i].State = &states[i]
	}
	return views, nil
}

// markDisabled tells lanes of disabled endpoints from those of paused ones: of either the endpoint's pause is all that the lane has.
func (e *Engine) markDisabled(ctx context.Context, views []LaneView) error {
	var ids []string
	for i := range views {
		if v := &views[i]; v.EndpointID != "" && v.EndpointPause == store.Forever {
			ids = append(ids, v.EndpointID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := e.o.Store.EndpointsByID(ctx, ids)
	if err != nil {
		return err
	}
	for i := range views {
		v := &views[i]
		v.Disabled = slices.ContainsFunc(found, func(ep store.Endpoint) bool { return ep.ID == v.EndpointID && !ep.Enabled })
	}
	return nil
}

// Why names what holds a lane back at now: "project_paused", "endpoint_disabled", "endpoint_paused", "lane_paused", "breaker_open",
// "retry_after", "rate_limited", "concurrency". Empty: nothing.
func (v *LaneView) Why(now int64) string {
	switch {
	case v.ProjectPause > now:
		return BlockProjectPaused
	case v.Disabled:
		return BlockEndpointOff
	case v.EndpointPause > now:
		return BlockEndpointPaused
	case v.OwnPause > now:
		return BlockLanePaused
	case v.State == nil:
		return ""
	case v.State.Breaker != schedule.BreakerClosed:
		return BlockBreakerOpen
	case v.State.HeldUntil > now:
		return BlockRetryAfter
	case v.State.Fresh+v.State.Retries == 0:
		return ""
	case v.State.NextToken > now:
		return BlockRate
	case v.State.Concurrency > 0 && v.State.InFlight >= v.State.Concurrency:
		return BlockConcurrency
	}
	return ""
}

// HeldUntil is when what holds the lane ends by itself, as Why names it, in Unix milliseconds; zero: it does not, or that is not known. Of a breaker
// it is the next probe.
func (v *LaneView) HeldUntil(why string) int64 {
	switch why {
	case BlockProjectPaused:
		return v.ProjectPause
	case BlockEndpointPaused:
		return v.EndpointPause
	case BlockLanePaused:
		return v.OwnPause
	}
	if v.State == nil {
		return 0
	}
	switch why {
	case BlockBreakerOpen:
		return v.State.ProbeAt
	case BlockRetryAfter:
		return v.State.HeldUntil
	case BlockRate:
		return v.State.NextToken
	}
	return 0
}

// SetLane bounds what a lane may send; nil leaves a bound as it is, zero takes it away.
func (e *Engine) SetLane(ctx context.Context, project, key string, limit *int, rate *store.Rate, by store.Actor) (store.Lane, error) {
	f := findings(nil)
	checkLane(key, &f)
	if limit != nil && (*limit < 0 || *limit > MaxConcurrency) {
		f.add("concurrency", "is 1 to %d, or null for none of its own", MaxConcurrency)
	}
	if len(f) > 0 {
		return store.Lane{}, &store.InvalidError{Fields: f}
	}
	l, err := e.o.Store.SetLane(ctx, project, key, limit, rate, e.clock.now(), by)
	if err != nil {
		return l, fmt.Errorf("set lane: %w", err)
	}
	e.settingsChanged(ctx)
	return l, nil
}

// PauseLane holds a lane until a time; with 0 it is resumed. Accepts go on.
func (e *Engine) PauseLane(ctx context.Context, project, key string, until int64, by store.Actor) (store.Lane, error) {
	f := findings(nil)
	checkLane(key, &f)
	if utf8.RuneCountInString(by.Reason) > MaxPauseReason {
		f.add("reason", "is longer than %d characters", MaxPauseReason)
	}
	if len(f) > 0 {
		return store.Lane{}, &store.InvalidError{Fields: f}
	}
	l, err := e.o.Store.PauseLane(ctx, project, key, until, by.Reason, e.clock.now(), by)
	if err != nil {
		return l, fmt.Errorf("pause lane: %w", err)
	}
	e.settingsChanged(ctx)
	return l, nil
}

func checkLane(key string, f *findings) {
	if key == "" {
		f.add("lane", "is required")
	}
	checkText("lane", key, 2*MaxLane+64, f) // a plain address's lane is longer than a caller's own
}
