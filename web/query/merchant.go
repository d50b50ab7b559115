package query

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// ViewRoot is the path prefix of the pages of merchants. The token of a link follows it.
const ViewRoot = "/view"

// ViewURL returns the URL of a link's pages. It is a path if publicURL is empty.
func ViewURL(publicURL, token string) string {
	return strings.TrimRight(publicURL, "/") + ViewRoot + "/" + token
}

// A Merchant is the view of a caller that may see one endpoint alone: by a link, or by a key of the endpoint.
// Everything that such a caller reads or does passes through it. A callback of another endpoint or project is
// store.ErrNotFound, and so is a poll: what the sender asks an upstream is no notification.
//
// A callback that the sender schedules for a later time is store.ErrNotFound until then.
//
// Its callbacks lack what is internal to the sender: project, lane, lock key, labels, headers, signer,
// success rule, and of the policy all but the tiers. Values of the URL's query are masked. A URL of another
// host than the endpoint's present one is masked whole, and an attempt there has no request and no response.
// A callback that goes to another host cannot be sent again, and has no payload if it never went to that one.
type Merchant struct {
	Engine   Engine
	Store    Store
	Limits   *MerchantLimits
	Project  string
	Endpoint store.Endpoint
}

// List returns a page of the endpoint's callbacks. It ignores the conditions of f that are internal to the
// sender.
func (m *Merchant) List(ctx context.Context, f store.Filter) (store.Page, error) {
	page, err := m.Store.List(ctx, m.Project, store.Filter{
		EndpointID: m.Endpoint.ID, Kind: store.Notify, States: f.States, Topic: f.Topic, Ref: f.Ref,
		Class: f.Class, Status: f.Status, From: f.From, To: f.To, Now: f.Now, Begun: true,
		Limit: f.Limit, After: f.After,
	})
	if err != nil {
		return store.Page{}, err
	}
	page.Callbacks = slices.Clone(page.Callbacks)
	for i := range page.Callbacks {
		page.Callbacks[i] = m.redacted(page.Callbacks[i])
	}
	return page, nil
}

// Get returns a callback of the endpoint.
func (m *Merchant) Get(ctx context.Context, id string) (store.Callback, error) {
	c, err := m.own(ctx, id)
	if err != nil {
		return store.Callback{}, err
	}
	return m.redacted(c), nil
}

// own reads a callback, or returns store.ErrNotFound if it is not the endpoint's.
func (m *Merchant) own(ctx context.Context, id string) (store.Callback, error) {
	c, err := m.Store.Get(ctx, m.Project, id)
	if err != nil {
		return store.Callback{}, err
	}
	if c.EndpointID != m.Endpoint.ID || m.Endpoint.ID == "" || c.Kind != store.Notify ||
		!c.Begun(m.Engine.Now()) {
		return store.Callback{}, store.ErrNotFound
	}
	return c, nil
}

// redacted returns a callback without what is internal to the sender.
func (m *Merchant) redacted(c store.Callback) store.Callback {
	c.URL = m.shownURL(c.URL)
	c.Project, c.Lane, c.LockKey, c.Strict, c.Labels, c.Headers = "", "", "", false, nil, nil
	c.Policy = store.Policy{Tiers: c.Policy.Tiers, RepeatLast: c.Policy.RepeatLast}
	c.Success, c.Signer, c.Version = store.Success{}, "", nil
	c.DivertCount, c.Since, c.CreatedBy = 0, nil, ""
	return c
}

// shownURL masks a URL of a callback or an attempt. It masks all of a URL of another host than the
// endpoint's present one: that host may be the sender's own.
func (m *Merchant) shownURL(url string) string {
	if !store.SameHost(url, m.Endpoint.URL) {
		return Mask
	}
	return store.MaskURL(url)
}

// foreignErrors are the classes whose error texts describe the merchant's own server. Others may name hosts
// of the sender, such as its name server or proxy.
var foreignErrors = []store.Class{
	store.ClassTLSCert, store.ClassTLSProto, store.ClassProtocol, store.ClassDecode,
	store.ClassHeadersTooLarge, store.ClassRedirect,
}

// Attempts returns attempts of a callback, newest first, with numbers below before. Zero: all.
func (m *Merchant) Attempts(ctx context.Context, id string, before, limit int) ([]store.Attempt, error) {
	c, err := m.own(ctx, id)
	if err != nil {
		return nil, err
	}
	attempts, err := m.Store.Attempts(ctx, m.Project, id, before, limit)
	return m.redactedAttempts(attempts, &c), err
}

// redactedAttempts returns attempts of a callback without what is internal to the sender: the delay in its
// queue, what may name a host of its own, and what was sent to other hosts and answered by them.
func (m *Merchant) redactedAttempts(attempts []store.Attempt, c *store.Callback) []store.Attempt {
	attempts = slices.Clone(attempts)
	for i := range attempts {
		a := &attempts[i]
		a.URL = m.shownURL(cmp.Or(a.URL, c.URL))
		if a.URL == Mask {
			*a = store.Attempt{
				CallbackID: a.CallbackID, Project: a.Project, Number: a.Number, Trigger: a.Trigger,
				Outcome: a.Outcome, Charged: a.Charged, Class: a.Class, Status: a.Status,
				StartedAt: a.StartedAt, EndedAt: a.EndedAt, DueAt: a.DueAt, NextDueAt: a.NextDueAt,
				Stale: a.Stale, URL: a.URL,
			}
			continue
		}
		if !slices.Contains(foreignErrors, a.Class) {
			a.Error = ""
		}
		if a.Rule != nil {
			rule := *a.Rule
			rule.Name = ""
			a.Rule = &rule
		}
		a.Diverts, a.DivertReason, a.Lateness = 0, "", 0
	}
	return attempts
}

// goesHome reports whether the next attempt of a callback, or of a redacted one, goes to the endpoint's
// present host. The sender may have set another one, such as a host of its own.
func (m *Merchant) goesHome(c *store.Callback) bool {
	return c.Follows || store.SameHost(c.URL, m.Endpoint.URL)
}

// wentHome reports whether one of the attempts went to the endpoint's present host.
func (m *Merchant) wentHome(c *store.Callback, attempts []store.Attempt) bool {
	return slices.ContainsFunc(attempts, func(a store.Attempt) bool {
		return store.SameHost(cmp.Or(a.URL, c.URL), m.Endpoint.URL)
	})
}

// Payload returns the payload of a callback, or store.ErrOtherHost if the callback goes to another host and
// none of its latest merchantAttempts attempts went to the endpoint's present one.
func (m *Merchant) Payload(ctx context.Context, id string) (store.Payload, error) {
	c, err := m.own(ctx, id)
	if err != nil {
		return store.Payload{}, err
	}
	if !m.goesHome(&c) {
		attempts, err := m.Store.Attempts(ctx, m.Project, id, 0, merchantAttempts)
		if err != nil {
			return store.Payload{}, err
		}
		if !m.wentHome(&c, attempts) {
			return store.Payload{}, store.ErrOtherHost
		}
	}
	return m.Store.Payload(ctx, m.Project, id)
}

// merchantAttempts is the most attempts that are read for a merchant, the latest ones. The merchant chooses
// the size of each response.
const merchantAttempts = 50

// Report returns the delivery report of a callback, with its latest merchantAttempts attempts.
func (m *Merchant) Report(ctx context.Context, id string) (*control.Report, error) {
	if _, err := m.own(ctx, id); err != nil {
		return nil, err
	}
	whole, err := m.Engine.Report(ctx, m.Project, id, merchantAttempts)
	if err != nil {
		return nil, err
	}
	r := *whole
	if !m.goesHome(&r.Callback) && !m.wentHome(&r.Callback, r.Attempts) {
		r.PayloadSize, r.PayloadSum, r.PayloadHidden = 0, "", true
	}
	r.Attempts = m.redactedAttempts(r.Attempts, &r.Callback)
	r.Callback = m.redacted(r.Callback)
	return &r, nil
}

// MayResend reports whether Resend may send the callback again in its state at now. It may be redacted. The
// sender has withdrawn a canceled one, and one that has stopped processes must be looked at first.
func (m *Merchant) MayResend(c *store.Callback, now int64) bool {
	return m.goesHome(c) && stateAllows(c, now)
}

func stateAllows(c *store.Callback, now int64) bool {
	switch c.StateAt(now) {
	case store.Scheduled, store.Succeeded:
		return !c.PayloadPurged
	case store.Dead:
		return !c.PayloadPurged && c.Reason != store.Poison
	case store.Attempting, store.Canceled:
	}
	return false
}

// Resend sends a callback once more, or sends a scheduled one now. A wait that is not zero means that nothing
// was sent, because a limit was reached. Its errors include store.ErrAttempting, store.ErrPayloadPurged,
// store.ErrOtherHost, and store.ErrTerminal for a callback that may not be sent again.
func (m *Merchant) Resend(
	ctx context.Context, id string, by store.Actor,
) (c store.Callback, wait time.Duration, err error) {
	c, err = m.own(ctx, id)
	if err != nil {
		return store.Callback{}, 0, err
	}
	now := m.Engine.Now()
	switch {
	case !m.goesHome(&c):
		return store.Callback{}, 0, store.ErrOtherHost
	case stateAllows(&c, now):
	case c.StateAt(now) == store.Attempting:
		return store.Callback{}, 0, store.ErrAttempting
	case c.PayloadPurged:
		return store.Callback{}, 0, store.ErrPayloadPurged
	default:
		return store.Callback{}, 0, store.ErrTerminal
	}
	if wait := m.Limits.takeResend(m.Endpoint.ID, id); wait > 0 {
		return store.Callback{}, wait, nil
	}
	c, err = m.Engine.Retry(ctx, m.Project, id, control.RetryRequest{Ladder: store.Once, Newest: true}, by)
	if err != nil {
		return store.Callback{}, 0, err
	}
	return m.redacted(c), 0, nil
}

// pauses are the blocks by which people keep a callback from being sent.
var pauses = []string{
	control.BlockSendingStopped, control.BlockSendingHeld, control.BlockProjectPaused,
	control.BlockEndpointPaused, control.BlockLanePaused, control.BlockEndpointOff,
}

// Paused reports whether the callback waits because the sender has stopped or paused sending.
func (m *Merchant) Paused(ctx context.Context, id string) (bool, error) {
	if _, err := m.own(ctx, id); err != nil {
		return false, err
	}
	why, err := m.Engine.Explain(ctx, m.Project, id)
	return slices.ContainsFunc(why.Blocking, func(b control.Block) bool {
		return slices.Contains(pauses, b.Code)
	}), err
}

// Limits of merchants in one process. Requests come from links and from keys of one endpoint.
const (
	merchantRequests = 10              // requests per second of one link or key; twice as many at once
	resendPause      = time.Minute     // between two resends of a callback
	endpointResends  = 30              // resends of one endpoint at once
	endpointPause    = 2 * time.Second // until another one after that
)

// MerchantLimits limit what merchants do in this process. They are safe for concurrent use.
type MerchantLimits struct{ requests, callbacks, endpoints Rates }

// NewMerchantLimits returns limits that nothing has used yet.
func NewMerchantLimits() *MerchantLimits {
	return &MerchantLimits{
		requests: Rates{limit: bucketLimit{
			every: time.Second / merchantRequests, burst: 2 * merchantRequests,
		}},
		callbacks: Rates{limit: bucketLimit{every: resendPause, burst: 1}},
		endpoints: Rates{limit: bucketLimit{every: endpointPause, burst: endpointResends}},
	}
}

// Take counts a request by a link or a key, or returns how long the request must wait.
func (l *MerchantLimits) Take(id string) (wait time.Duration) { return l.requests.Take(id) }

// takeResend counts a resend of a callback, or returns how long it must wait and counts nothing.
func (l *MerchantLimits) takeResend(endpoint, callback string) (wait time.Duration) {
	wait = l.callbacks.Take(callback)
	if wait > 0 {
		return wait
	}
	wait = l.endpoints.Take(endpoint)
	if wait > 0 {
		l.callbacks.giveBack(callback)
	}
	return wait
}
