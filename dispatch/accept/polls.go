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

// MaxPollContext is the most bytes of a poll's context, and of the data of a resolve.
const MaxPollContext = 4 << 10

// A PollSubmission is a poll as a caller describes it, decoded but not validated. The Submission contains the
// request that is repeated (URL or Endpoint, Method, Headers, the body, Signer), the policy, and Ref, Topic,
// Labels, LockKey, Lane, DueAt or Delay, ExpiresIn and the idempotency key. Its Invalid names fields as in a
// poll ("request.url"). An empty Method means GET without a body, and POST with one.
type PollSubmission struct {
	Submission
	// Until, HoldIf and Evaluate are the JSON of those fields; empty: not given. A nil ErrorBudget is not
	// given.
	Until, HoldIf, Evaluate []byte
	ErrorBudget             *int
	// Context is JSON; empty: none.
	Context []byte
	// OnResult is the callback that delivers the result, without a body; nil: none. Its Invalid names fields
	// relative to it.
	OnResult *Submission
	// Own refuses the poll with store.ErrPollLive if another open poll has the same reference and URL.
	Own bool
}

// AcceptPoll commits a poll. If an open poll has the same reference and URL, it returns that one as a replay.
// Its error is a *store.InvalidError, or one of those of Accept.
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
			wrong.Fields[i].Field = requestField(wrong.Fields[i].Field)
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

// pollDraft validates a poll and returns its draft: the request, validated like a callback, and what only
// polls have. Its result callback is validated too, because an error at the end of the poll would reach no
// caller. The error is a *store.InvalidError with the wrong fields under their names in a poll.
func (ac *Accepter) pollDraft(v *acceptView, project string, s *PollSubmission,
	now time.Time) (store.Draft, error) {
	request := s.Submission
	request.Invalid = nil
	if request.Method == "" && request.Body == nil {
		request.Method = "GET"
	}
	request.Success = rule.Default // a valid stand-in: the draft gets the rule of the poll below
	f := Findings(slices.Clone(s.Invalid))
	d, err := ac.draft(v, project, &request, now)
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok { // draft returns no other error
		for _, w := range wrong.Fields {
			f = append(f, store.FieldError{Field: requestField(w.Field), Message: w.Message})
		}
	}
	if s.Ref == "" && !f.Has("ref") {
		f.Add("ref", "is required: there is one open poll for a reference and URL")
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
	d.Callback.Kind, d.Poll, d.OwnPoll = store.Poll, detail, s.Own
	d.Callback.Success = store.Success{Rule: rule}
	return d, nil
}

// requestFields are the fields of a submission that belong to a poll's request.
var requestFields = [...]string{"url", "endpoint", "method", "headers", "payload", "body", "body_base64",
	"content_type", "signer"}

// requestField returns the name of a submission's field in a poll.
func requestField(field string) string {
	first := field
	if i := strings.IndexAny(field, ".["); i >= 0 {
		first = field[:i]
	}
	if slices.Contains(requestFields[:], first) {
		return "request." + field
	}
	return field
}

// rule builds and validates the rule that decides when the poll is final.
func (s *PollSubmission) rule(f *Findings) store.JSONText {
	parts := make(map[string]json.RawMessage)
	for name, raw := range map[string][]byte{"until": s.Until, "hold_if": s.HoldIf, "evaluate": s.Evaluate} {
		if len(raw) > 0 {
			parts[name] = raw
		}
	}
	if len(s.Until) == 0 {
		if f.Has("until") {
			return ""
		}
		f.Add("until", "is required: it defines the final responses")
		return ""
	}
	if s.ErrorBudget != nil {
		parts["error_budget"] = fmt.Append(nil, *s.ErrorBudget)
	}
	text, err := json.Marshal(parts)
	if err != nil {
		f.Add("until", "until, hold_if or evaluate is not JSON")
		return ""
	}
	rule, wrong := rule.ParsePoll(text)
	for _, w := range wrong {
		if w.Field == "" { // the rule as a whole
			w = store.FieldError{Field: "until", Message: "with hold_if and evaluate " + w.Message}
		}
		*f = append(*f, w)
	}
	return rule
}

// resultDraft validates a poll's result callback. Reference, topic and labels default to the poll's. The body
// is a stand-in: the store writes the real one when the poll ends.
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

// RunSpawned adds callbacks to the index that the store created, until ctx ends. They are results of polls,
// committed with the end of the poll. If the process dies before, the sweep finds them.
func (ac *Accepter) RunSpawned(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-ac.o.Store.Spawned():
			ac.observer.Spawned(&r, ac.clock.Now())
			ac.syncPause(ctx, r.Project, r.LaneID)
			ac.index.Add(index.OpenItem(&r))
		}
	}
}

// syncPause makes sure that the index knows the pause of a lane before it gets the lane's first callback. The
// lane may have just been created in a paused project.
func (ac *Accepter) syncPause(ctx context.Context, project string, lane int64) {
	v, err := ac.Catalog.Project(ctx, project)
	if err == nil && v.PausedUntil > ac.clock.Now() && !ac.index.Paused(lane) {
		ac.SettingsChanged(ctx)
	}
}
