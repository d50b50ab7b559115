package control

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A ResolveRequest ends a poll by hand. Data is JSON for the result callback; empty: none.
type ResolveRequest struct {
	Data    []byte
	Invalid []store.FieldError
}

// A PollView is a poll with its callback, its state and its rule.
type PollView struct {
	Callback store.Callback
	Detail   store.PollDetail
	// Rule is JSON with the members until, hold_if, evaluate and error_budget.
	Rule store.JSONText
}

// ResolvePoll ends a poll by hand. The poll may be open or dead. If a request of the poll is in flight, its
// result has no effect. Its error is store.ErrNotFound for an unknown callback, and for one that is no poll.
func (ct *Controller) ResolvePoll(ctx context.Context, project, id string, r ResolveRequest,
	by store.Actor) (store.ResolvedPoll, error) {
	f := accept.Findings(slices.Clone(r.Invalid))
	if len(r.Data) > accept.MaxPollContext {
		f.Add("data", "is %d bytes; at most %d are allowed", len(r.Data), accept.MaxPollContext)
	} else if len(r.Data) > 0 && !json.Valid(r.Data) {
		f.Add("data", "is not JSON")
	} else if ct.o.PanGuard == store.PanReject && store.HasPAN(r.Data) {
		f.Add("data", accept.HasCard)
	}
	if len(f) > 0 {
		return store.ResolvedPoll{}, f.Err()
	}
	p, err := ct.o.Store.ResolvePoll(ctx, project, id, store.JSONText(r.Data), ct.clock.Now(), by)
	if err != nil {
		return p, err
	}
	if p.Result == store.ResolveDone {
		ct.observer.Ended(1, p.Callback.State, p.Callback.Reason)
	}
	if p.Was != nil {
		ct.index.Ended(ctx, []store.OpenRow{*p.Was})
	}
	return p, nil
}

// Poll returns a poll. Its error is store.ErrNotFound for an unknown callback, and for one that is no poll.
func (ct *Controller) Poll(ctx context.Context, project, id string) (PollView, error) {
	d, err := ct.o.Store.PollDetail(ctx, project, id)
	if err != nil {
		return PollView{}, err
	}
	c, err := ct.o.Store.Get(ctx, project, id)
	if err != nil {
		return PollView{}, err
	}
	rule, err := fullRule(c.Success.Rule)
	if err != nil {
		return PollView{}, fmt.Errorf("read the rule of poll %s: %w", id, err)
	}
	if ct.o.PanGuard.Masks() {
		d.Context = store.JSONText(store.MaskPANText(string(d.Context)))
		d.Data = store.JSONText(store.MaskPANText(string(d.Data)))
	}
	return PollView{Callback: c, Detail: d, Rule: rule}, nil
}

// fullRule returns the rule of a poll with the defaults that its caller left out.
func fullRule(text store.JSONText) (store.JSONText, error) {
	rule := struct {
		Until       json.RawMessage `json:"until"`
		HoldIf      json.RawMessage `json:"hold_if,omitempty"`
		Evaluate    json.RawMessage `json:"evaluate"`
		ErrorBudget int             `json:"error_budget"`
	}{Evaluate: json.RawMessage(`["200-299"]`), ErrorBudget: rule.DefaultErrorBudget}
	if err := json.Unmarshal([]byte(text), &rule); err != nil {
		return "", err
	}
	full, err := json.Marshal(rule)
	return store.JSONText(full), err
}
