package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// MaxCancelRef is the most callbacks that one CancelRef cancels.
const MaxCancelRef = 1000

// Cancel ends a callback; no further attempt is made. SQL commits first, then the index removes the callback.
// If the index still gives out a claim, the stamp refuses it.
func (ct *Controller) Cancel(ctx context.Context, project, id string,
	by store.Actor) (store.CanceledCallback, error) {
	c, err := ct.o.Store.Cancel(ctx, project, id, ct.clock.Now(), by)
	if err != nil {
		return c, err
	}
	ct.removeCanceled(ctx, c)
	return c, nil
}

// A CancelRefRequest selects the callbacks of a reference. A Topic that is not empty restricts them to that
// topic. With Terminal the answer includes the callbacks that had ended before, so that a caller who cancels
// a timer learns its outcome.
type CancelRefRequest struct {
	Ref, Topic string
	Terminal   bool
}

// CancelRef cancels at most MaxCancelRef open callbacks of a reference, and returns at most as many.
func (ct *Controller) CancelRef(ctx context.Context, project string, r CancelRefRequest,
	by store.Actor) ([]store.CanceledCallback, error) {
	if err := ct.boundCancel(ctx, project, r); err != nil {
		return nil, err
	}
	list, err := ct.o.Store.CancelRef(ctx, project, r.Ref, r.Topic, MaxCancelRef, ct.clock.Now(), by)
	if err != nil {
		return nil, err
	}
	ct.removeCanceled(ctx, list...)
	if !r.Terminal {
		return list, nil
	}
	return ct.withTerminal(ctx, project, r, list)
}

// boundCancel refuses to cancel more callbacks of a reference than a redrive may without an approval.
func (ct *Controller) boundCancel(ctx context.Context, project string, r CancelRefRequest) error {
	limit := int64(ct.o.ApprovalAbove)
	if limit == 0 {
		return nil
	}
	now := ct.clock.Now()
	f := store.Filter{Ref: r.Ref, Topic: r.Topic, To: now + 1,
		States: []store.State{store.Scheduled, store.Attempting}}
	_, more, err := ct.countRedrive(ctx, &store.Redrive{Project: project, Filter: f, CreatedAt: now}, limit)
	if errors.Is(err, errUncounted) || err == nil && more {
		err = accept.Invalid("ref", fmt.Sprintf("has more than %d open callbacks (setting approval_above): "+
			"cancel them with a redrive", limit))
	}
	return err
}

// withTerminal appends the callbacks of a reference that had ended before the cancel.
func (ct *Controller) withTerminal(ctx context.Context, project string, r CancelRefRequest,
	list []store.CanceledCallback) ([]store.CanceledCallback, error) {
	known := make(map[string]bool, len(list))
	for i := range list {
		known[list[i].Callback.ID] = true
	}
	f := store.Filter{
		Ref: r.Ref, Topic: r.Topic, States: []store.State{store.Succeeded, store.Dead, store.Canceled},
		Now: ct.clock.Now(), Limit: terminalPage,
	}
	for len(list) < MaxCancelRef {
		page, err := ct.o.Store.List(ctx, project, f)
		if err != nil {
			return nil, fmt.Errorf("list ended callbacks: %w", err)
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

// terminalPage is how many ended callbacks one query reads.
const terminalPage = 500

// removeCanceled removes canceled callbacks from the index. SQL has committed the cancel.
func (ct *Controller) removeCanceled(ctx context.Context, list ...store.CanceledCallback) {
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

// Retry makes a callback due now, in any state but attempting. The attempt ignores the breaker, the rate and
// the Retry-After of its lane. Its errors include store.ErrNotFound, store.ErrAttempting,
// store.ErrPayloadPurged, store.ErrEndpointDeleted and store.ErrNewerVersion.
func (ct *Controller) Retry(ctx context.Context, project, id string, r RetryRequest,
	by store.Actor) (store.Callback, error) {
	ladder := cmp.Or(r.Ladder, store.Once)
	if ladder != store.Once && ladder != store.Restart {
		return store.Callback{}, accept.Invalid("ladder", `must be "once" or "restart"`)
	}
	var before []store.OpenRow
	if r.URL != "" {
		err := ct.accept.CheckURL(r.URL)
		if err != nil {
			return store.Callback{}, accept.Invalid("url", err.Error())
		}
		before, err = ct.o.Store.ByID(ctx, []string{id})
		if err != nil {
			return store.Callback{}, fmt.Errorf("retry %s: %w", id, err)
		}
	}
	change := store.Retry{Ladder: ladder, URL: r.URL, Newest: r.Newest, Now: ct.clock.Now()}
	c, err := ct.o.Store.Retry(ctx, project, id, change, by)
	if err != nil {
		return c, err
	}
	from := c.LaneID
	if len(before) > 0 {
		from = before[0].LaneID
	}
	if r.URL != "" {
		ct.accept.SettingsChanged(ctx) // a new lane may be paused with its project
	}
	ct.index.Relocate(ctx, &c, from)
	return c, nil
}

// Reschedule moves a callback to another due time. Exactly one of due (Unix milliseconds) and delay is given.
// A dead callback gets one more attempt at that time.
func (ct *Controller) Reschedule(ctx context.Context, project, id string, due *int64, delay *time.Duration,
	by store.Actor) (store.Callback, error) {
	now := ct.clock.Now()
	var f accept.Findings
	at := checkMove(due, delay, now, &f)
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

// An EditRequest changes a callback. Nil fields, and an empty policy, leave the value as it is. The payload
// never changes.
type EditRequest struct {
	URL     *string
	Headers *[]store.Header
	// Choice may contain a policy and nothing else.
	accept.Choice
	// ExpiresIn counts from now. NoExpiry removes the expiry.
	ExpiresIn *time.Duration
	NoExpiry  bool
	Invalid   []store.FieldError
}

// Edit changes a callback that is scheduled or dead. Its errors include store.ErrNotFound,
// store.ErrAttempting, store.ErrTerminal (succeeded or canceled), store.ErrPayloadPurged and
// store.ErrEndpointDeleted. A dead callback stays dead until it is retried.
func (ct *Controller) Edit(ctx context.Context, project, id string, r EditRequest,
	by store.Actor) (store.Callback, error) {
	v, err := ct.accept.Catalog.Project(ctx, project)
	if err != nil {
		return store.Callback{}, err
	}
	now := ct.clock.Now()
	f := accept.Findings(slices.Clone(r.Invalid))
	policy, err := ct.checkEdit(v, &r, &f)
	if err != nil {
		return store.Callback{}, err
	}
	var laneBefore int64
	c, err := ct.o.Store.Edit(ctx, project, id, func(c *store.Callback) error {
		laneBefore = c.LaneID
		r.apply(c, policy, now)
		c.Headers = ct.o.Keyring.SealHeaders(project, secret.CallbackOwner(c.ID), c.URL, c.Headers)
		return nil
	}, now, by)
	if err != nil {
		return c, err
	}
	if laneBefore != c.LaneID {
		ct.accept.SettingsChanged(ctx) // a new lane may be paused with its project
	}
	if c.State == store.Scheduled {
		ct.index.Relocate(ctx, &c, laneBefore)
	}
	return c, nil
}

// checkEdit validates the parts of an edit that do not depend on the callback. It returns the new policy;
// nil: the callback keeps its own.
func (ct *Controller) checkEdit(v *accept.ProjectView, r *EditRequest,
	f *accept.Findings) (*store.Policy, error) {
	if r.URL != nil {
		if err := ct.accept.CheckURL(*r.URL); err != nil {
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
		f.Add("expires_in", "must be more than 0s and at most 400d")
	}
	chosen := v.CheckChoice(&r.Choice, f)
	if len(*f) > 0 {
		return nil, f.Err()
	}
	if chosen.Policy.IsZero() {
		return nil, nil
	}
	p, err := v.PolicyOf(chosen.Policy)
	return &p, err
}

// apply makes the changes. The URL changes first, because new headers are meant for the new URL.
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
const TestTopic = store.OwnTopics + "test"

// TestEndpoint sends a test callback to an endpoint. The callback takes the usual way through the index and
// is signed and judged like any other, but its policy allows one attempt only.
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
		Choice: accept.Choice{PolicyName: "none"}, CreatedBy: strings.TrimPrefix(by.ID, store.KeyPrefix),
		Own: true,
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

// A RetryRequest configures a Retry.
type RetryRequest struct {
	// Ladder is store.Once or store.Restart; empty means store.Once.
	Ladder store.Ladder
	// URL replaces the callback's URL if it is not empty.
	URL string
	// Newest refuses to send an ended callback again after a newer version was accepted.
	Newest bool
}
