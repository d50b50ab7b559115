package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// PollRows keeps what polls have beside their callbacks.
type PollRows interface {
	// PollDetail is store.ErrNotFound for what is no poll of the project.
	PollDetail(ctx context.Context, project, id string) (store.PollDetail, error)
	// ResolvePoll ends an open poll from outside, whether it is being asked or not: store.ErrNotFound.
	ResolvePoll(ctx context.Context, project, id string, data store.JSONText, now int64, by store.Actor) (store.ResolvedPoll, error)
	// Born carries callbacks that the store has made by itself, the results of polls. One may be left out: the sweep finds it.
	Born() <-chan store.OpenRow
}

// MaxPollContext is the most bytes of a poll's context, and of what comes with a resolve.
const MaxPollContext = 4 << 10

// A PollSubmission is a poll as a caller asks for it, decoded but not yet judged. Of the Submission it has the request that is made again
// and again (URL or Endpoint, Method, Headers, the body, Signer), the policy, and Ref, Topic, Labels, LockKey, Lane, DueAt or Delay,
// ExpiresIn and the idempotency key; Invalid names fields as they stand in the poll ("request.url"). Method is GET without a body, else
// POST, if it is empty.
type PollSubmission struct {
	Submission
	// Until, HoldIf and Evaluate are the JSON of the fields of those names; empty: not given. ErrorBudget is nil if it was not given.
	Until, HoldIf, Evaluate []byte
	ErrorBudget             *int
	// Context is JSON; empty: none.
	Context []byte
	// OnResult is the callback that tells the result, without a body; nil: none. Its Invalid names fields relative to it.
	OnResult *Submission
}

// A ResolveRequest ends a poll from outside. Data is JSON that goes into the result; empty: none.
type ResolveRequest struct {
	Data    []byte
	Invalid []store.FieldError
}

// A PollView is a poll as it stands: its callback, what it has beside that, and its rule as JSON.
type PollView struct {
	Callback store.Callback
	Detail   store.PollDetail
	// Rule is JSON with the members until, hold_if, evaluate and error_budget.
	Rule store.JSONText
}

// AcceptPoll commits a poll, or answers with the open one of the same reference and address as a replay. Its error is a
// *store.InvalidError, or one of Accept's; the receipt has none.
func (e *Engine) AcceptPoll(ctx context.Context, project string, s PollSubmission) (Receipt, error) {
	named := []Submission{s.Submission}
	if s.OnResult != nil {
		named = append(named, *s.OnResult)
	}
	v, err := e.view(ctx, project, named)
	if err != nil {
		return Receipt{}, fmt.Errorf("accept poll: %w", err)
	}
	d, err := e.pollDraft(v, project, &s, timeOf(e.clock.now()))
	if err == nil {
		err = e.secure(ctx, &d)
	}
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		for i := range wrong.Fields {
			wrong.Fields[i].Field = ofRequest(wrong.Fields[i].Field)
		}
	}
	if err != nil {
		return Receipt{}, err
	}
	if d.Idempotency != nil {
		if !e.keys.begin(project, d.Idempotency) {
			return Receipt{}, store.ErrIdempotencyInProgress
		}
		defer e.keys.end(project, d.Idempotency)
	}
	var r Receipt
	quota := v.Quotas.OpenCallbacks
	drafts, receipt := []store.Draft{d}, func(int) *Receipt { return &r }
	if err := e.commit(ctx, drafts, &v.Project, quota, receipt); err != nil {
		return Receipt{}, fmt.Errorf("accept poll: %w", err)
	}
	return r, r.Err
}

// pollDraft judges a poll. Its error is a *store.InvalidError with every field that is wrong.
func (e *Engine) pollDraft(v *acceptView, project string, s *PollSubmission, now time.Time) (store.Draft, error) {
	asked := s.Submission
	asked.Invalid = nil
	if asked.Method == "" && asked.Body == nil {
		asked.Method = "GET"
	}
	asked.Success = rule.Default // what is final takes its place
	f := findings(slices.Clone(s.Invalid))
	d, err := e.draft(v, project, &asked, now)
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		for _, w := range wrong.Fields {
			f = append(f, store.FieldError{Field: ofRequest(w.Field), Message: w.Message})
		}
	}
	if s.Ref == "" && !f.names("ref") {
		f.add("ref", "is required: there is one open poll of each reference and address")
	}
	rule := s.rule(&f)
	if len(s.Context) > MaxPollContext {
		f.add("context", "is %d bytes; at most %d are allowed", len(s.Context), MaxPollContext)
	}
	if e.o.PanGuard == store.PanReject && store.HasPAN(s.Context) {
		f.add("context", hasCard)
	}
	detail := &store.PollDetail{Context: store.JSONText(s.Context)}
	if s.OnResult != nil {
		detail.OnResult = e.resultDraft(v, project, s, now, &f)
	}
	if len(f) > 0 {
		return store.Draft{}, &store.InvalidError{Fields: f}
	}
	d.Callback.Kind, d.Poll = store.Poll, detail
	d.Callback.Success = store.Success{Rule: rule}
	return d, nil
}

// requestFields are those of a submission that stand in a poll's request.
var requestFields = [...]string{"url", "endpoint", "method", "headers", "payload", "body", "body_base64", "content_type", "signer"}

// ofRequest names a field of a submission as it stands in a poll.
func ofRequest(field string) string {
	first := field
	if i := strings.IndexAny(field, ".["); i >= 0 {
		first = field[:i]
	}
	if slices.Contains(requestFields[:], first) {
		return "request." + field
	}
	return field
}

// rule puts together what says when the poll is final, and judges it.
func (s *PollSubmission) rule(f *findings) store.JSONText {
	parts := make(map[string]json.RawMessage)
	for name, raw := range map[string][]byte{"until": s.Until, "hold_if": s.HoldIf, "evaluate": s.Evaluate} {
		if len(raw) > 0 {
			parts[name] = raw
		}
	}
	if len(s.Until) == 0 {
		if f.names("until") {
			return ""
		}
		f.add("until", "is required: which answers are final")
		return ""
	}
	if s.ErrorBudget != nil {
		parts["error_budget"] = fmt.Append(nil, *s.ErrorBudget)
	}
	text, err := json.Marshal(parts)
	if err != nil {
		f.add("until", "it, hold_if or evaluate is not JSON")
		return ""
	}
	rule, wrong := rule.ParsePoll(text)
	*f = append(*f, wrong...)
	return rule
}

// resultDraft judges a poll's result callback. What it does not say of reference, topic and labels is the poll's.
func (e *Engine) resultDraft(v *acceptView, project string, s *PollSubmission, now time.Time, f *findings) *store.ResultDraft {
	r := *s.OnResult
	r.Body, r.BodyField = []byte("{}"), "payload"
	if r.Ref == "" {
		r.Ref = s.Ref
	}
	if r.Topic == "" {
		r.Topic = s.Topic
	}
	if r.Labels == nil {
		r.Labels = s.Labels
	}
	d, err := e.draft(v, project, &r, now)
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		f.under("on_result", wrong.Fields)
		return nil
	}
	out := &store.ResultDraft{Callback: d.Callback, Supersede: d.Supersede}
	if r.Delay != nil {
		out.Delay = schedule.DueAfter(timeOf(0), *r.Delay)
	}
	if r.ExpiresIn != nil {
		out.ExpiresIn = schedule.DueAfter(timeOf(0), *r.ExpiresIn)
	}
	return out
}

// ResolvePoll ends an open poll from outside, also one that is being asked at this moment: what that brings has no effect any more; and one
// that is dead, for then a person has found out. store.ErrNotFound is for what is no poll, too.
func (e *Engine) ResolvePoll(ctx context.Context, project, id string, r ResolveRequest, by store.Actor) (store.ResolvedPoll, error) {
	f := findings(slices.Clone(r.Invalid))
	if len(r.Data) > MaxPollContext {
		f.add("data", "is %d bytes; at most %d are allowed", len(r.Data), MaxPollContext)
	} else if len(r.Data) > 0 && !json.Valid(r.Data) {
		f.add("data", "is not JSON")
	} else if e.o.PanGuard == store.PanReject && store.HasPAN(r.Data) {
		f.add("data", hasCard)
	}
	if len(f) > 0 {
		return store.ResolvedPoll{}, &store.InvalidError{Fields: f}
	}
	p, err := e.o.Store.ResolvePoll(ctx, project, id, store.JSONText(r.Data), e.clock.now(), by)
	if err != nil {
		return p, err
	}
	if p.Result == store.ResolveDone {
		e.wrote.Store(true)
		e.metrics.terminal.WithLabelValues(string(p.Callback.State), string(p.Callback.Reason)).Inc()
	}
	if p.Was != nil {
		e.takeOut(ctx, []store.OpenRow{*p.Was})
	}
	return p, nil
}

// Poll returns a poll as it stands: store.ErrNotFound, also for what is no poll.
func (e *Engine) Poll(ctx context.Context, project, id string) (PollView, error) {
	d, err := e.o.Store.PollDetail(ctx, project, id)
	if err != nil {
		return PollView{}, err
	}
	c, err := e.o.Store.Get(ctx, project, id)
	if err != nil {
		return PollView{}, err
	}
	rule, err := fullRule(c.Success.Rule)
	if err != nil {
		return PollView{}, fmt.Errorf("read the rule of poll %s: %w", id, err)
	}
	if e.o.PanGuard.Masks() {
		d.Context = store.JSONText(store.MaskPANText(string(d.Context)))
		d.Data = store.JSONText(store.MaskPANText(string(d.Data)))
	}
	return PollView{Callback: c, Detail: d, Rule: rule}, nil
}

// fullRule returns the rule of a poll with what its caller has left out.
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

// runBorn tells the index of callbacks that the store has made, until ctx ends.
func (e *Engine) runBorn(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-e.o.Store.Born():
			e.wrote.Store(true)
			e.metrics.accepted.Inc()
			e.activity.born(&r, e.clock.now())
			e.tellPause(ctx, r.Project, r.LaneID)
			e.enqueue.add(openItem(&r))
		}
	}
}

// tellPause has the index know that a lane is paused, which may have been made just now in a project that is, before it hears of what
// is in it.
func (e *Engine) tellPause(ctx context.Context, project string, lane int64) {
	v, err := e.catalog.project(ctx, project)
	if err == nil && v.PausedUntil > e.clock.now() && !e.pauses.has(lane) {
		e.settingsChanged(ctx)
	}
}
