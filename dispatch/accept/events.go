package accept

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// AlertsRoute is the route of operational events. It separates their idempotency keys from those of callers.
const AlertsRoute = "operational events"

// MaxFanOut is the most endpoints that receive one event.
const MaxFanOut = 10_000

// An EventReceipt is the result of an event: one callback for each endpoint that subscribes to its topic.
type EventReceipt struct {
	// ID is a bare ULID.
	ID        string
	Callbacks []string
	// Replayed: the idempotency key is known with the same request. The other fields are those of the first
	// request.
	Replayed bool
}

// AcceptEvent commits a callback for every endpoint of the project that subscribes to the submission's topic.
// The body is stored once. No subscribers is no error.
//
// With an idempotency key the plan (which endpoints, which callback ids) is stored before any callback. A
// repetition returns the result of the first request, sends to no other endpoint, and accepts what a crash in
// between left out.
func (ac *Accepter) AcceptEvent(ctx context.Context, project string, s Submission) (EventReceipt, error) {
	r, err := ac.acceptEvent(ctx, project, &s)
	if err != nil {
		return EventReceipt{}, fmt.Errorf("accept event: %w", err)
	}
	return r, nil
}

// acceptEvent plans the callbacks of an event and accepts them. Before the plan is stored everything is
// checked, the quota included, so that a refused event leaves nothing behind. If others use up the quota
// after that check, the plan stays without callbacks and a repetition carries it out. If a plan with the same
// key exists, that plan is carried out instead of the new one.
func (ac *Accepter) acceptEvent(ctx context.Context, project string,
	s *Submission) (r EventReceipt, err error) {
	v, err := ac.Catalog.Project(ctx, project)
	if err != nil {
		return r, err
	}
	all, err := ac.Catalog.subscribers(ctx, project)
	if err != nil {
		return r, err
	}
	now := clock.TimeOf(ac.clock.Now())
	plan := store.EventPlan{ID: ac.ids.New(now), Project: project, CreatedAt: now.UnixMilli()}
	to := make(map[string]*store.Endpoint)
	for _, ep := range all {
		if ep.Subscribes(s.Topic) {
			to[ep.ID] = ep
			plan.Targets = append(plan.Targets,
				store.EventTarget{EndpointID: ep.ID, CallbackID: ac.ids.New(now)})
		}
	}
	if err := ac.checkEvent(v, s, len(to)); err != nil {
		return r, err
	}
	drafts, err := ac.eventDrafts(ctx, v, s, &plan, to, now)
	if err != nil {
		return r, err
	}
	if err := ac.roomForEvent(ctx, v, s, len(drafts)); err != nil {
		return r, err
	}
	known := false
	if s.IdempotencyKey != "" {
		key := store.Idempotency{Route: s.Route, Key: s.IdempotencyKey, Fingerprint: s.Fingerprint}
		if !ac.keys.begin(project, &key) {
			return r, store.ErrIdempotencyInProgress
		}
		defer ac.keys.end(project, &key)
		plan.Idempotency = key
		plan, known, err = ac.o.Store.PlanEvent(ctx, plan)
		if err != nil {
			if errors.Is(err, store.ErrUnavailable) {
				ac.index.SQLFailed(err)
			}
			return r, err
		}
		if known {
			drafts, err = ac.eventDrafts(ctx, v, s, &plan, to, now)
			if err != nil {
				return r, err
			}
		}
	}
	return ac.commitPlan(ctx, &v.Project, quotaOf(v, s), &plan, known, drafts)
}

// quotaOf is the quota of open callbacks for an event; zero: none. Operational events are exempt: they result
// from accepted callbacks.
func quotaOf(v *ProjectView, s *Submission) int64 {
	if s.Route == AlertsRoute {
		return 0
	}
	return v.Quotas.OpenCallbacks
}

// roomForEvent returns store.ErrOpenQuota if the quota has no room for all callbacks of a new event, before
// anything is stored. A repetition passes: commitPlan checks the rest of its plan.
func (ac *Accepter) roomForEvent(ctx context.Context, v *ProjectView, s *Submission, n int) error {
	if quotaOf(v, s) == 0 {
		return nil
	}
	err := ac.RoomFor(ctx, &v.Project, n)
	if !errors.Is(err, store.ErrOpenQuota) || s.IdempotencyKey == "" {
		return err
	}
	planned, perr := ac.o.Store.EventPlanned(ctx, v.ID, s.Route, s.IdempotencyKey)
	if perr != nil || planned {
		return perr // commitPlan checks what is left of that plan
	}
	return err
}

// eventDrafts returns drafts for the targets of a plan that are not accepted yet. An endpoint that was
// deleted since is left out.
func (ac *Accepter) eventDrafts(ctx context.Context, v *ProjectView, s *Submission, plan *store.EventPlan,
	to map[string]*store.Endpoint, now time.Time) ([]store.Draft, error) {
	drafts := make([]store.Draft, 0, len(plan.Targets))
	for _, target := range plan.Targets {
		if target.Accepted {
			continue
		}
		ep := to[target.EndpointID]
		if ep == nil { // unsubscribed after the plan was stored
			var err error
			ep, err = ac.Catalog.Endpoint(ctx, target.EndpointID)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return nil, err
			}
			if err != nil || ep.DeletedAt != 0 {
				continue
			}
		}
		sub := *s
		sub.Endpoint = store.EndpointPrefix + ep.ID
		// checkEvent has looked for card numbers once for all endpoints.
		view := &acceptView{
			ProjectView: v, endpoints: map[string]*store.Endpoint{sub.Endpoint: ep}, cardsChecked: true,
		}
		d, err := ac.draft(view, plan.Project, &sub, now)
		if err != nil {
			return nil, err
		}
		d.Callback.ID = target.CallbackID
		if err := ac.secure(ctx, &d); err != nil {
			return nil, err
		}
		if len(s.Body) > 0 {
			d.Callback.PayloadID = plan.ID
		}
		if d.Idempotency != nil {
			// Each endpoint has a key of its own. If two processes carry out one plan, the second finds the
			// callbacks of the first.
			d.Idempotency.Key = clock.ShortHash(d.Idempotency.Key, ep.ID)
		}
		drafts = append(drafts, d)
	}
	return drafts, nil
}

// commitPlan commits the drafts of a plan and returns the result of the whole event. If the quota has no room
// for all drafts it commits none.
func (ac *Accepter) commitPlan(
	ctx context.Context, p *store.Project, quota int64, plan *store.EventPlan, known bool,
	drafts []store.Draft,
) (EventReceipt, error) {
	var accepted []store.Accepted
	if len(drafts) > 0 {
		finish, err := ac.reserve(ctx, p.ID, quota, len(drafts))
		if err != nil {
			return EventReceipt{}, err
		}
		accepted, err = ac.commit(ctx, drafts, p, 0)
		finish(0)
		if err != nil {
			return EventReceipt{}, err
		}
	}
	done := make(map[string]bool, len(plan.Targets))
	for _, target := range plan.Targets {
		done[target.CallbackID] = target.Accepted
	}
	r := EventReceipt{ID: plan.ID, Callbacks: []string{}, Replayed: known}
	for i := range accepted {
		if accepted[i].Err != nil {
			return EventReceipt{}, accepted[i].Err
		}
		r.Replayed = r.Replayed && accepted[i].Replayed
		done[accepted[i].Callback.ID] = true
	}
	for _, target := range plan.Targets {
		if done[target.CallbackID] {
			r.Callbacks = append(r.Callbacks, target.CallbackID)
		}
	}
	return r, nil
}

// checkEvent validates an event for the given number of endpoints.
func (ac *Accepter) checkEvent(v *ProjectView, s *Submission, to int) error {
	f := Findings(nil)
	if s.Topic == "" {
		f.Add("topic", "is required: it selects the endpoints")
	}
	for _, given := range []struct {
		field string
		is    bool
	}{
		{"url", s.URL != ""}, {"endpoint", s.Endpoint != ""}, {"lane", s.Lane != ""},
		{"signer", s.Signer != ""}, {"profile", s.Profile != ""},
	} {
		if given.is {
			f.Add(given.field, "is not allowed in an event: each endpoint has its own")
		}
	}
	if to > MaxFanOut {
		f.Add("topic", "has %d subscribed endpoints; at most %d are allowed", to, MaxFanOut)
	}
	// Validate the rest as a callback to any URL, so that errors are found even without subscribers.
	probe := *s
	probe.URL = "https://example.com/"
	probe.Endpoint, probe.Lane, probe.Signer, probe.Profile = "", "", "", ""
	checker := &Accepter{o: Options{PanGuard: ac.o.PanGuard}}
	_, err := checker.draft(&acceptView{ProjectView: v}, v.ID, &probe, clock.TimeOf(ac.clock.Now()))
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		f = append(f, wrong.Fields...)
	} else if err != nil {
		return err
	}
	return f.Err()
}
