package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// MaxCancelRef is the most callbacks of one reference that one call cancels.
const MaxCancelRef = 1000

// Cancel keeps a callback from being attempted again. SQL decides; the index is told afterwards, and a claim
// that it still gives out is refused by the stamp.
func (ct *Controller) Cancel(ctx context.Context, project, id string,
	by store.Actor) (store.CanceledCallback, error) {
	c, err := ct.o.Store.Cancel(ctx, project, id, ct.clock.Now(), by)
	if err != nil {
		return c, err
	}
	ct.dropCanceled(ctx, c)
	return c, nil
}

// A CancelRefRequest says which callbacks of a reference are to be canceled: those of one topic, if it is not
// empty. With Terminal those that had ended already are answered too, so that whoever cancels a timer learns
// in any case what became of it.
type CancelRefRequest struct {
	Ref, Topic string
	Terminal   bool
}

// CancelRef cancels the open callbacks of a reference: at most MaxCancelRef, and no more are answered.
func (ct *Controller) CancelRef(ctx context.Context, project string, which CancelRefRequest,
	by store.Actor) ([]store.CanceledCallback, error) {
	list, err := ct.o.Store.CancelRef(ctx, project, which.Ref, which.Topic, MaxCancelRef, ct.clock.Now(), by)
	if err != nil {
		return nil, err
	}
	ct.dropCanceled(ctx, list...)
	if !which.Terminal {
		return list, nil
	}
	return ct.withTerminal(ctx, project, which, list)
}

// withTerminal adds the callbacks of a reference that had ended before it was canceled.
func (ct *Controller) withTerminal(ctx context.Context, project string, which CancelRefRequest,
	list []store.CanceledCallback) ([]store.CanceledCallback, error) {
	known := make(map[string]bool, len(list))
	for i := range list {
		known[list[i].Callback.ID] = true
	}
	f := store.Filter{
		Ref: which.Ref, Topic: which.Topic, States: []store.State{store.Succeeded, store.Dead,
			store.Canceled}, Now: ct.clock.Now(), Limit: pageOfTerminal,
	}
	for len(list) < MaxCancelRef {
		page, err := ct.o.Store.List(ctx, project, f)
		if err != nil {
			return nil, fmt.Errorf("list what had ended: %w", err)
		}
		for i := range page.Callbacks {
			if c := page.Callbacks[i]; !known[c.ID] && len(list) < MaxCancelRef {
				list = append(list, store.CanceledCallback{Result: store.CancelAlreadyTerminal, Callback: c})
			}
		}
		if page.Next == nil {
			break
		}
		f.After = page.Next
	}
	return list, nil
}

// pageOfTerminal is how many that have ended are read at once.
const pageOfTerminal = 500

// dropCanceled takes callbacks from the index that were canceled.
func (ct *Controller) dropCanceled(ctx context.Context, list ...store.CanceledCallback) {
	var rows []store.OpenRow
	for i := range list {
		c := &list[i].Callback
		if list[i].Result == store.CancelDone {
			rows = append(rows, store.OpenRow{ID: c.ID, LaneID: c.LaneID, Project: c.Project,
				LockKey: c.LockKey, Strict: c.Strict})
			ct.observer.Ended(1, store.Canceled, c.Reason)
		}
	}
	ct.index.Ended(ctx, rows)
}

// Retry makes a callback due now.
func (ct *Controller) Retry(ctx context.Context, project, id string, r RetryRequest,
	by store.Actor) (store.Callback, error) {
	ladder := cmp.Or(r.Ladder, store.Once)
	if ladder != store.Once && ladder != store.Restart {
		return store.Callback{}, accept.Invalid("ladder", `is "once" or "restart"`)
	}
	var before []store.OpenRow
	if r.URL != "" {
		err := ct.accept.JudgeURL(r.URL)
		if err != nil {
			return store.Callback{}, accept.Invalid("url", err.Error())
		}
		before, err = ct.o.Store.ByID(ctx, []string{id})
		if err != nil {
			return store.Callback{}, fmt.Errorf("retry %s: %w", id, err)
		}
	}
	change := store.Retry{Ladder: ladder, URL: r.URL, Now: ct.clock.Now()}
	c, err := ct.o.Store.Retry(ctx, project, id, change, by)
	if err != nil {
		return c, err
	}
	from := c.LaneID
	if len(before) > 0 {
		from = before[0].LaneID
	}
	if r.URL != "" {
		ct.accept.SettingsChanged(ctx) // a lane that was just made may be paused with its project
	}
	ct.index.Relocate(ctx, &c, from)
	return c, nil
}

// Reschedule moves a callback to another due time, given as Unix milliseconds or as a delay: exactly one of
// the two. One that is dead gets one more attempt then.
func (ct *Controller) Reschedule(ctx context.Context, project, id string, due *int64, delay *time.Duration,
	by store.Actor) (store.Callback, error) {
	now := ct.clock.Now()
	var f accept.Findings
	at := judgeMove(due, delay, now, &f)
	if len(f) > 0 {
		return store.Callback{}, f.Err()
	}
	if delay != nil {
		at = schedule.DueAfter(time.UnixMilli(now), *delay)
	}
	c, err := ct.o.Store.Reschedule(ctx, project, id, at, now, by)
	if err != nil {
		return c, err
	}
	ct.index.Place(ctx, c)
	return c, nil
}

// A EditRequest says what is to be changed of a callback. Nil fields, and a policy that is not given, stay as
// they are; its payload never changes.
type EditRequest struct {
	URL     *string
	Headers *[]store.Header
	// Choice may have a policy, and nothing else.
	accept.Choice
	// ExpiresIn runs from now; NoExpiry takes the expiry away.
	ExpiresIn *time.Duration
	NoExpiry  bool
	Invalid   []store.FieldError
}

// Edit changes a callback that is scheduled or dead: store.ErrNotFound, store.ErrAttempting,
// store.ErrTerminal (succeeded or canceled), store.ErrPayloadPurged. A dead one stays dead until it is
// retried.
func (ct *Controller) Edit(ctx context.Context, project, id string, r EditRequest,
	by store.Actor) (store.Callback, error) {
	v, err := ct.accept.Catalog.Project(ctx, project)
	if err != nil {
		return store.Callback{}, err
	}
	now := ct.clock.Now()
	f := accept.Findings(slices.Clone(r.Invalid))
	policy, err := ct.judgeMend(v, &r, &f)
	if err != nil {
		return store.Callback{}, err
	}
	var before int64 // its lane
	c, err := ct.o.Store.Edit(ctx, project, id, func(c *store.Callback) error {
		before = c.LaneID
		r.apply(c, policy, now)
		c.Headers = ct.o.Keyring.SealHeaders(project, secret.CallbackOwner(c.ID), c.URL, c.Headers)
		return nil
	}, now, by)
	if err != nil {
		return c, fmt.Errorf("change %s: %w", id, err)
	}
	if before != c.LaneID {
		ct.accept.SettingsChanged(ctx) // a lane that was just made may be paused with its project
	}
	if c.State == store.Scheduled {
		ct.index.Relocate(ctx, &c, before)
	}
	return c, nil
}

// judgeMend judges what does not depend on the callback, and returns its new policy; nil: it keeps the one
// that it has.
func (ct *Controller) judgeMend(v *accept.ProjectView, r *EditRequest,
	f *accept.Findings) (*store.Policy, error) {
	if r.URL != nil {
		if err := ct.accept.JudgeURL(*r.URL); err != nil {
			f.Add("url", "%s", err)
		}
	}
	if r.Headers != nil {
		for _, h := range sign.CheckHeaders(*r.Headers) {
			f.Add(h.Field, "%s", h.Message)
		}
		if ct.o.PanGuard == store.PanReject {
			accept.CheckHeaderCards(*r.Headers, f)
		}
	}
	if r.ExpiresIn != nil && (*r.ExpiresIn <= 0 || *r.ExpiresIn > accept.MaxDelay) {
		f.Add("expires_in", "is more than 0s and at most 400d")
	}
	chosen := v.Judge(&r.Choice, f)
	if len(*f) > 0 {
		return nil, f.Err()
	}
	if chosen.Policy.IsZero() {
		return nil, nil
	}
	p, err := v.PolicyOf(chosen.Policy)
	return &p, err
}

// apply changes a callback. New headers are given for the new address.
func (r *EditRequest) apply(c *store.Callback, policy *store.Policy, now int64) {
	if r.URL != nil {
		c.MoveTo(*r.URL)
	}
	if r.Headers != nil {
		c.Headers = *r.Headers
	}
	if policy != nil {
		c.Policy = *policy
	}
	switch {
	case r.NoExpiry:
		c.ExpiresAt = 0
	case r.ExpiresIn != nil:
		c.ExpiresAt = schedule.DueAfter(clock.TimeOf(now), *r.ExpiresIn)
	}
}

// TestTopic is the topic of test sends.
const TestTopic = "dispatcher.test"

// TestEndpoint accepts a callback to the endpoint that says of itself that it is a test. It takes the way of
// every other: through the index, signed, judged by the endpoint's rule; but it is attempted once only.
func (ct *Controller) TestEndpoint(ctx context.Context, project, id string,
	by store.Actor) (store.Callback, error) {
	now := ct.clock.Now()
	body, err := json.Marshal(map[string]any{
		"type": TestTopic, "endpoint": store.EndpointPrefix + id, "timestamp": clock.Instant(now),
	})
	if err != nil {
		return store.Callback{}, fmt.Errorf("encode a test: %w", err)
	}
	receipts, err := ct.accept.Accept(ctx, project, []accept.Submission{{
		Endpoint: store.EndpointPrefix + id, Topic: TestTopic, Body: body, BodyField: "payload",
		Choice: accept.Choice{PolicyName: "none"},
	}})
	if err != nil {
		return store.Callback{}, err
	}
	if receipts[0].Err != nil {
		return store.Callback{}, receipts[0].Err
	}
	c := receipts[0].Callback
	made, err := json.Marshal(map[string]string{"callback": store.CallbackPrefix + c.ID})
	if err != nil {
		return c, fmt.Errorf("audit: %w", err)
	}
	return c, ct.audit(ctx, project, "endpoint.test", id, string(made), by)
}

// A RetryRequest asks for an attempt now.
type RetryRequest struct {
	// Ladder is store.Once or store.Restart; empty means store.Once.
	Ladder store.Ladder
	// URL replaces the callback's address when it is not empty.
	URL string
}
