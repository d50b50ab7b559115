package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A MendRequest says what is to be changed of a callback. Nil fields, and a policy that is not given, stay as they are; its payload
// never changes.
type MendRequest struct {
	URL     *string
	Headers *[]store.Header
	// Choice may have a policy, and nothing else.
	Choice
	// ExpiresIn runs from now; NoExpiry takes the expiry away.
	ExpiresIn *time.Duration
	NoExpiry  bool
	Invalid   []store.FieldError
}

// Mend changes a callback that is scheduled or dead: store.ErrNotFound, store.ErrAttempting, store.ErrTerminal (succeeded or canceled),
// store.ErrPayloadPurged. A dead one stays dead until it is retried.
func (e *Engine) Mend(ctx context.Context, project, id string, r MendRequest, by store.Actor) (store.Callback, error) {
	v, err := e.catalog.project(ctx, project)
	if err != nil {
		return store.Callback{}, err
	}
	now := e.clock.now()
	f := findings(slices.Clone(r.Invalid))
	policy, err := e.judgeMend(v, &r, &f)
	if err != nil {
		return store.Callback{}, err
	}
	var before int64 // its lane
	c, err := e.o.Store.Mend(ctx, project, id, func(c *store.Callback) error {
		before = c.LaneID
		r.apply(c, policy, now)
		c.Headers = e.o.Keyring.sealHeaders(project, callbackOwner(c.ID), c.URL, c.Headers)
		return nil
	}, now, by)
	if err != nil {
		return c, fmt.Errorf("change %s: %w", id, err)
	}
	e.wrote.Store(true)
	if before != c.LaneID {
		e.settingsChanged(ctx) // a lane that was just made may be paused with its project
	}
	if c.State == store.Scheduled {
		e.place(ctx, &c, before)
	}
	return c, nil
}

// judgeMend judges what does not depend on the callback, and returns its new policy; nil: it keeps the one that it has.
func (e *Engine) judgeMend(v *projectView, r *MendRequest, f *findings) (*store.Policy, error) {
	if r.URL != nil {
		if err := e.judgeURL(*r.URL); err != nil {
			f.add("url", "%s", err)
		}
	}
	if r.Headers != nil {
		for _, h := range sign.CheckHeaders(*r.Headers) {
			f.add(h.Field, "%s", h.Message)
		}
		if e.o.PanGuard == store.PanReject {
			checkHeaderCards(*r.Headers, f)
		}
	}
	if r.ExpiresIn != nil && (*r.ExpiresIn <= 0 || *r.ExpiresIn > MaxDelay) {
		f.add("expires_in", "is more than 0s and at most 400d")
	}
	chosen := v.judge(&r.Choice, f)
	if len(*f) > 0 {
		return nil, &store.InvalidError{Fields: *f}
	}
	if chosen.policy.IsZero() {
		return nil, nil
	}
	p, err := v.policyOf(chosen.policy)
	return &p, err
}

// apply changes a callback. New headers are given for the new address.
func (r *MendRequest) apply(c *store.Callback, policy *store.Policy, now int64) {
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
		c.ExpiresAt = schedule.DueAfter(timeOf(now), *r.ExpiresIn)
	}
}

// TestTopic is the topic of test sends.
const TestTopic = "dispatcher.test"

// TestEndpoint accepts a callback to the endpoint that says of itself that it is a test. It takes the way of every other: through the
// index, signed, judged by the endpoint's rule; but it is attempted once only.
func (e *Engine) TestEndpoint(ctx context.Context, project, id string, by store.Actor) (store.Callback, error) {
	now := e.clock.now()
	body, err := json.Marshal(map[string]any{
		"type": TestTopic, "endpoint": store.EndpointPrefix + id, "timestamp": instant(now),
	})
	if err != nil {
		return store.Callback{}, fmt.Errorf("encode a test: %w", err)
	}
	receipts, err := e.Accept(ctx, project, []Submission{{
		Endpoint: store.EndpointPrefix + id, Topic: TestTopic, Body: body, BodyField: "payload",
		Choice: Choice{PolicyName: "none"},
	}})
	if err != nil {
		return store.Callback{}, err
	}
	if receipts[0].Err != nil {
		return store.Callback{}, receipts[0].Err
	}
	c := receipts[0].Callback
	made, err := json.Marshal(map[string]string{"callback": store.CallbackPrefix + c.ID})
	if err == nil {
		err = e.o.Store.AppendAudit(ctx, store.AuditEntry{
			ID: e.ids.make(timeOf(now)), Project: project, At: now, Actor: by.Name, Address: by.Address,
			Action: "endpoint.test", Object: id, Reason: by.Reason, After: string(made), Detail: string(made),
		})
	}
	if err != nil {
		return c, fmt.Errorf("audit: %w", err)
	}
	return c, nil
}
