package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// EventPrefix stands before an event's ULID wherever a caller sees it.
	EventPrefix = "ev_"
	// MaxFanOut is the most endpoints that one event goes to.
	MaxFanOut = 10_000
)

// An EventReceipt is what became of an event: a callback for each endpoint that subscribes to its topic.
type EventReceipt struct {
	// ID is a bare ULID.
	ID        string
	Callbacks []string
	// Replayed: the idempotency key was known with the same request, and the rest is what it was then.
	Replayed bool
}

// AcceptEvent commits a callback for every endpoint of the project that subscribes to the submission's topic, in one transaction; its
// body is stored once. That there is none is no error. A repetition with the same idempotency key reaches nobody twice.
func (e *Engine) AcceptEvent(ctx context.Context, project string, s Submission) (EventReceipt, error) {
	v, err := e.catalog.project(ctx, project)
	if err != nil {
		return EventReceipt{}, fmt.Errorf("accept event: %w", err)
	}
	all, err := e.catalog.subscribers(ctx, project)
	if err != nil {
		return EventReceipt{}, fmt.Errorf("accept event: %w", err)
	}
	now := timeOf(e.clock.now())
	receipt := EventReceipt{ID: e.ids.make(now), Callbacks: []string{}}
	var to []*store.Endpoint
	for _, ep := range all {
		if ep.Subscribes(s.Topic) {
			to = append(to, ep)
		}
	}
	if err := e.judgeEvent(v, &s, to); err != nil {
		return EventReceipt{}, err
	}
	if len(to) == 0 {
		return receipt, nil
	}
	drafts := make([]store.Draft, len(to))
	for i, ep := range to {
		one := s
		one.Endpoint = store.EndpointPrefix + ep.ID
		view := &acceptView{projectView: v, endpoints: map[string]*store.Endpoint{one.Endpoint: ep}}
		if drafts[i], err = e.draft(view, project, &one, now); err != nil {
			return EventReceipt{}, err
		}
		if len(s.Body) > 0 {
			drafts[i].Callback.PayloadID = receipt.ID
		}
		if id := drafts[i].Idempotency; id != nil {
			// Each endpoint's has a key of its own: so a repetition finds each, whoever has subscribed since.
			id.Key = shortHash(id.Key, ep.ID)
		}
	}
	receipts := make([]Receipt, len(drafts))
	if err := e.commit(ctx, drafts, v.PausedUntil, func(i int) *Receipt { return &receipts[i] }); err != nil {
		return EventReceipt{}, fmt.Errorf("accept event: %w", err)
	}
	receipt.Replayed = true
	for i := range receipts {
		if receipts[i].Err != nil {
			return EventReceipt{}, receipts[i].Err
		}
		receipt.Replayed = receipt.Replayed && receipts[i].Replayed
		receipt.Callbacks = append(receipt.Callbacks, receipts[i].Callback.ID)
		if c := &receipts[i].Callback; receipts[i].Replayed && c.PayloadID != "" {
			receipt.ID = c.PayloadID
		}
	}
	return receipt, nil
}

// judgeEvent judges what an event has of a submission, and to how many it goes.
func (e *Engine) judgeEvent(v *projectView, s *Submission, to []*store.Endpoint) error {
	f := findings(nil)
	if s.Topic == "" {
		f.add("topic", "is required: it says who gets the event")
	}
	for _, given := range []struct {
		field string
		is    bool
	}{
		{"url", s.URL != ""}, {"endpoint", s.Endpoint != ""}, {"lane", s.Lane != ""}, {"signer", s.Signer != ""}, {"profile", s.Profile != ""},
	} {
		if given.is {
			f.add(given.field, "is each endpoint's own; an event has none")
		}
	}
	if len(to) > MaxFanOut {
		f.add("topic", "%d endpoints subscribe to it; at most %d are told at once", len(to), MaxFanOut)
	}
	// The rest is judged as of a callback to somewhere, so that what is wrong is said though nobody subscribes.
	probe := *s
	probe.URL, probe.Endpoint, probe.Lane, probe.Signer, probe.Profile = "https://example.com/", "", "", "", ""
	_, err := (&Engine{}).draft(&acceptView{projectView: v}, v.ID, &probe, timeOf(e.clock.now()))
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		f = append(f, wrong.Fields...)
	} else if err != nil {
		return err
	}
	if len(f) > 0 {
		return &store.InvalidError{Fields: f}
	}
	return nil
}
