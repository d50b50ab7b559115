package accept

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// AlertsRoute separates the idempotency keys of operational events from those of callers.
const AlertsRoute = "operational events"

// MaxFanOut is the most endpoints that one event goes to.
const MaxFanOut = 10_000

// An EventReceipt is what became of an event: a callback for each endpoint that subscribes to its topic.
type EventReceipt struct {
	// ID is a bare ULID.
	ID        string
	Callbacks []string
	// Replayed: the idempotency key was known with the same request, and the rest is what it was then.
	Replayed bool
}

// AcceptEvent commits a callback for every endpoint of the project that subscribes to the submission's topic;
// its body is stored once. That there is none is no error. A repetition with the same idempotency key answers
// what the first did, and reaches nobody twice and nobody else: what the first was to become is written down
// before it does, and a repetition makes up for what a crash left out.
func (ac *Accepter) AcceptEvent(ctx context.Context, project string, s Submission) (EventReceipt, error) {
	r, err := ac.acceptEvent(ctx, project, &s)
	if err != nil {
		return EventReceipt{}, fmt.Errorf("accept event: %w", err)
	}
	return r, nil
}

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
	if err := ac.judgeEvent(v, s, len(to)); err != nil {
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
	return ac.carryOut(ctx, &v.Project, quotaOf(v, s), &plan, known, drafts)
}

// quotaOf is the quota of open callbacks that an event is judged by; zero: none. An operational event follows
// from what was accepted.
func quotaOf(v *ProjectView, s *Submission) int64 {
	if s.Route == AlertsRoute {
		return 0
	}
	return v.Quotas.OpenCallbacks
}

// roomForEvent returns store.ErrOpenQuota where the quota of the project has no room for all callbacks of a
// new event: it is refused before anything of it is written down.
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
		return perr // what is left of a plan that was made before is judged when it is carried out
	}
	return err
}

// eventDrafts returns drafts of what a plan has that is not accepted yet. An endpoint that has been deleted
// since is left out.
func (ac *Accepter) eventDrafts(ctx context.Context, v *ProjectView, s *Submission, plan *store.EventPlan,
	to map[string]*store.Endpoint, now time.Time) ([]store.Draft, error) {
	drafts := make([]store.Draft, 0, len(plan.Targets))
	for _, target := range plan.Targets {
		if target.Accepted {
			continue
		}
		ep := to[target.EndpointID]
		if ep == nil { // it has unsubscribed since
			var err error
			ep, err = ac.Catalog.Endpoint(ctx, target.EndpointID)
			if errors.Is(err, store.ErrNotFound) ||
				err == nil && ep.DeletedAt != 0 {
				continue
			} else if err != nil {
				return nil, err
			}
		}
		one := *s
		one.Endpoint = store.EndpointPrefix + ep.ID
		// judgeEvent has looked for card numbers, once and not for each endpoint.
		to := map[string]*store.Endpoint{one.Endpoint: ep}
		d, err := ac.draft(&acceptView{ProjectView: v, endpoints: to, cardless: true}, plan.Project, &one,
			now)
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
			// Each endpoint's has a key of its own: of two processes that carry out one plan, the second
			// finds what the first did.
			d.Idempotency.Key = clock.ShortHash(d.Idempotency.Key, ep.ID)
		}
		drafts = append(drafts, d)
	}
	return drafts, nil
}

// carryOut commits the drafts of a plan, all of them or, where the quota has no room for all, none, and says
// what has become of it as a whole.
func (ac *Accepter) carryOut(
	ctx context.Context, p *store.Project, quota int64, plan *store.EventPlan, known bool,
	drafts []store.Draft,
) (EventReceipt, error) {
	var accepted []store.Accepted
	if len(drafts) > 0 {
		settle, err := ac.reserve(ctx, p.ID, quota, len(drafts))
		if err != nil {
			return EventReceipt{}, err
		}
		accepted, err = ac.commit(ctx, drafts, p, 0)
		settle(0)
		if err != nil {
			return EventReceipt{}, err
		}
	}
	there := make(map[string]bool, len(plan.Targets))
	for _, target := range plan.Targets {
		there[target.CallbackID] = target.Accepted
	}
	r := EventReceipt{ID: plan.ID, Callbacks: []string{}, Replayed: known}
	for i := range accepted {
		if accepted[i].Err != nil {
			return EventReceipt{}, accepted[i].Err
		}
		r.Replayed = r.Replayed && accepted[i].Replayed
		there[accepted[i].Callback.ID] = true
	}
	for _, target := range plan.Targets {
		if there[target.CallbackID] {
			r.Callbacks = append(r.Callbacks, target.CallbackID)
		}
	}
	return r, nil
}

// judgeEvent judges what an event has of a submission, and to how many it goes.
func (ac *Accepter) judgeEvent(v *ProjectView, s *Submission, to int) error {
	f := Findings(nil)
	if s.Topic == "" {
		f.Add("topic", "is required: it says who gets the event")
	}
	for _, given := range []struct {
		field string
		is    bool
	}{
		{"url", s.URL != ""}, {"endpoint", s.Endpoint != ""}, {"lane", s.Lane != ""},
		{"signer", s.Signer != ""}, {"profile", s.Profile != ""},
	} {
		if given.is {
			f.Add(given.field, "is each endpoint's own; an event has none")
		}
	}
	if to > MaxFanOut {
		f.Add("topic", "%d endpoints subscribe to it; at most %d are told at once", to, MaxFanOut)
	}
	// The rest is judged as of a callback to somewhere, so that what is wrong is said though nobody
	// subscribes.
	probe := *s
	probe.URL, probe.Endpoint, probe.Lane, probe.Signer, probe.Profile = "https://example.com/", "", "", "",
		""
	only := &Accepter{o: Options{PanGuard: ac.o.PanGuard}}
	_, err := only.draft(&acceptView{ProjectView: v}, v.ID, &probe, clock.TimeOf(ac.clock.Now()))
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		f = append(f, wrong.Fields...)
	} else if err != nil {
		return err
	}
	return f.Err()
}
