package accept

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// MaxPollContext is the most bytes of a poll's context, and of what comes with a resolve.
const MaxPollContext = 4 << 10

// A PollSubmission is a poll as a caller asks for it, decoded but not yet judged. Of the Submission it has
// the request that is made again and again (URL or Endpoint, Method, Headers, the body, Signer), the policy,
// and Ref, Topic, Labels, LockKey, Lane, DueAt or Delay, ExpiresIn and the idempotency key; Invalid names
// fields as they stand in the poll ("request.url"). Method is GET without a body, else POST, if it is empty.
type PollSubmission struct {
	Submission
	// Until, HoldIf and Evaluate are the JSON of the fields of those names; empty: not given. ErrorBudget is
	// nil if it was not given.
	Until, HoldIf, Evaluate []byte
	ErrorBudget             *int
	// Context is JSON; empty: none.
	Context []byte
	// OnResult is the callback that tells the result, without a body; nil: none. Its Invalid names fields
	// relative to it.
	OnResult *Submission
}

// AcceptPoll commits a poll, or answers with the open one of the same reference and address as a replay. Its
// error is a *store.InvalidError, or one of Accept's; the answer has none.
func (ac *Accepter) AcceptPoll(ctx context.Context, project string,
	s PollSubmission) (store.Accepted, error) {
	named := []Submission{s.Submission}
	if s.OnResult != nil {
		named = append(named, *s.OnResult)
	}
	v, err := ac.view(ctx, project, named)
	if err != nil {
		return store.Accepted{}, fmt.Errorf("accept poll: %w", err)
	}
	d, err := ac.pollDraft(v, project, &s, clock.TimeOf(ac.clock.Now()))
	if err == nil {
		err = ac.secure(ctx, &d)
	}
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		for i := range wrong.Fields {
			wrong.Fields[i].Field = ofRequest(wrong.Fields[i].Field)
		}
	}
	if err != nil {
		return store.Accepted{}, err
	}
	if d.Idempotency != nil {
		if !ac.keys.begin(project, d.Idempotency) {
			return store.Accepted{}, store.ErrIdempotencyInProgress
		}
		defer ac.keys.end(project, d.Idempotency)
	}
	accepted, err := ac.commit(ctx, []store.Draft{d}, &v.Project, v.Quotas.OpenCallbacks)
	if err != nil {
		return store.Accepted{}, fmt.Errorf("accept poll: %w", err)
	}
	return accepted[0], accepted[0].Err
}

// pollDraft judges a poll. Its error is a *store.InvalidError with every field that is wrong.
func (ac *Accepter) pollDraft(v *acceptView, project string, s *PollSubmission,
	now time.Time) (store.Draft, error) {
	asked := s.Submission
	asked.Invalid = nil
	if asked.Method == "" && asked.Body == nil {
		asked.Method = "GET"
	}
	asked.Success = rule.Default // what is final takes its place
	f := Findings(slices.Clone(s.Invalid))
	d, err := ac.draft(v, project, &asked, now)
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		for _, w := range wrong.Fields {
			f = append(f, store.FieldError{Field: ofRequest(w.Field), Message: w.Message})
		}
	}
	if s.Ref == "" && !f.Names("ref") {
		f.Add("ref", "is required: there is one open poll of each reference and address")
	}
	rule := s.rule(&f)
	if len(s.Context) > MaxPollContext {
		f.Add("context", "is %d bytes; at most %d are allowed", len(s.Context), MaxPollContext)
	}
	if ac.o.PanGuard == store.PanReject && store.HasPAN(s.Context) {
		f.Add("context", HasCard)
	}
	detail := &store.PollDetail{Context: store.JSONText(s.Context)}
	if s.OnResult != nil {
		detail.OnResult = ac.resultDraft(v, project, s, now, &f)
	}
	if len(f) > 0 {
		return store.Draft{}, f.Err()
	}
	d.Callback.Kind, d.Poll = store.Poll, detail
	d.Callback.Success = store.Success{Rule: rule}
	return d, nil
}

// requestFields are those of a submission that stand in a poll's request.
var requestFields = [...]string{"url", "endpoint", "method", "headers", "payload", "body", "body_base64",
	"content_type", "signer"}

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
func (s *PollSubmission) rule(f *Findings) store.JSONText {
	parts := make(map[string]json.RawMessage)
	for name, raw := range map[string][]byte{"until": s.Until, "hold_if": s.HoldIf, "evaluate": s.Evaluate} {
		if len(raw) > 0 {
			parts[name] = raw
		}
	}
	if len(s.Until) == 0 {
		if f.Names("until") {
			return ""
		}
		f.Add("until", "is required: which answers are final")
		return ""
	}
	if s.ErrorBudget != nil {
		parts["error_budget"] = fmt.Append(nil, *s.ErrorBudget)
	}
	text, err := json.Marshal(parts)
	if err != nil {
		f.Add("until", "it, hold_if or evaluate is not JSON")
		return ""
	}
	rule, wrong := rule.ParsePoll(text)
	*f = append(*f, wrong...)
	return rule
}

// resultDraft judges a poll's result callback. What it does not say of reference, topic and labels is the
// poll's.
func (ac *Accepter) resultDraft(v *acceptView, project string, s *PollSubmission, now time.Time,
	f *Findings) *store.ResultDraft {
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
	d, err := ac.draft(v, project, &r, now)
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		f.Under("on_result", wrong.Fields)
		return nil
	}
	out := &store.ResultDraft{Callback: d.Callback, Supersede: d.Supersede}
	if r.Delay != nil {
		out.Delay = schedule.DueAfter(clock.TimeOf(0), *r.Delay)
	}
	if r.ExpiresIn != nil {
		out.ExpiresIn = schedule.DueAfter(clock.TimeOf(0), *r.ExpiresIn)
	}
	return out
}

// RunSpawned tells the index of callbacks that the store has made, until ctx ends.
func (ac *Accepter) RunSpawned(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-ac.o.Store.Spawned():
			ac.observer.Spawned(&r, ac.clock.Now())
			ac.tellPause(ctx, r.Project, r.LaneID)
			ac.index.Add(index.OpenItem(&r))
		}
	}
}

// tellPause has the index know that a lane is paused, which may have been made just now in a project that is,
// before it hears of what is in it.
func (ac *Accepter) tellPause(ctx context.Context, project string, lane int64) {
	v, err := ac.Catalog.Project(ctx, project)
	if err == nil && v.PausedUntil > ac.clock.Now() && !ac.index.Paused(lane) {
		ac.SettingsChanged(ctx)
	}
}
