package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Bounds of an endpoint.
const (
	MaxName           = 128
	MaxExternalID     = 128
	MaxTopics         = 100
	MaxPauseReason    = 256
	MaxConcurrency    = 10_000
	MaxEndpointsBatch = 1000
)

// An EndpointChange is an endpoint as a caller asks for it. Nil fields and an empty Choice are not given: a
// new endpoint gets their defaults, one that is changed keeps what it has.
type EndpointChange struct {
	ExternalID  *string
	Name        *string
	URL         *string
	URLOverride *string
	Topics      *[]string
	accept.Choice
	Headers     *[]store.Header
	Rate        *string
	Concurrency *int
	Enabled     *bool
	// Clear names fields that are to be as if never given: "policy", "success", "signer", "external_id",
	// "rate", "concurrency".
	Clear []string
	// Secret is a signing secret as its signer's use writes it, and SecretLabel what receivers know it by.
	// Empty: one is made where that can be done.
	Secret      string
	SecretLabel string
	// Admin: the caller holds the scope admin, and may send credentials that the endpoint has to another
	// host.
	Admin bool
	// Reason is for the audit.
	Reason string
	// Invalid are fields that could not even be decoded.
	Invalid []store.FieldError
}

// An EndpointReceipt is what became of one endpoint that was to be made or replaced.
type EndpointReceipt struct {
	Endpoint store.Endpoint
	// Created: it did not exist before.
	Created bool
	// Secret is the one that was made or given with the call, as its receiver is given it; zero: there is
	// none, or it was there before.
	Secret secret.RevealedSecret
	Err    error
}

// apply judges a change and makes it.
func (ct *Controller) apply(v *accept.ProjectView, ch *EndpointChange, ep *store.Endpoint) error {
	f := accept.Findings(slices.Clone(ch.Invalid))
	for _, field := range ch.Clear {
		clearField(ep, field)
	}
	text := func(field string, given *string, most int, to *string) {
		if given != nil {
			accept.CheckText(field, *given, most, &f)
			*to = *given
		}
	}
	text("external_id", ch.ExternalID, MaxExternalID, &ep.ExternalID)
	if strings.HasPrefix(ep.ExternalID, store.EndpointPrefix) {
		f.Add("external_id", "must not begin with %q, which ids made here do", store.EndpointPrefix)
	}
	text("name", ch.Name, MaxName, &ep.Name)
	ct.applyURL(ch, ep, &f)
	if ch.Topics != nil {
		checkTopics(*ch.Topics, &f)
		ep.Topics = *ch.Topics
	}
	chosen := v.Judge(&ch.Choice, &f).Or(accept.EndpointSending(ep))
	ep.Policy, ep.Success, ep.Signer = chosen.Policy, chosen.Success, chosen.Signer
	if err := ct.applyHeaders(ch, ep, &f); err != nil {
		return err
	}
	applyLimits(ch, ep, &f)
	return f.Err()
}

func clearField(ep *store.Endpoint, field string) {
	switch field {
	case "external_id":
		ep.ExternalID = ""
	case "policy":
		ep.Policy = store.PolicyChoice{}
	case "success":
		ep.Success = store.Success{}
	case "signer":
		ep.Signer = ""
	case "rate":
		ep.Rate = store.Rate{}
	case "concurrency":
		ep.Concurrency = 0
	}
}

func (ct *Controller) applyURL(ch *EndpointChange, ep *store.Endpoint, f *accept.Findings) {
	if ch.URL != nil {
		_, err := store.AddressLane(*ch.URL)
		if err == nil && ct.o.CheckURL != nil {
			err = ct.o.CheckURL(*ch.URL)
		}
		if err != nil {
			f.Add("url", "%s", err)
		}
		ep.URL = *ch.URL
	}
	if ep.URL == "" {
		f.Add("url", "is required")
	}
	if ch.URLOverride == nil {
		return
	}
	switch o := store.URLOverride(*ch.URLOverride); o {
	case store.OverrideDeny, store.OverrideSameHost, store.OverrideAny:
		ep.URLOverride = o
	default:
		f.Add("url_override", `is "deny", "same_host" or "any"`)
	}
}

func applyLimits(ch *EndpointChange, ep *store.Endpoint, f *accept.Findings) {
	if ch.Rate != nil {
		rate, err := store.ParseRate(*ch.Rate)
		if err != nil {
			f.Add("rate", "%s", err)
		}
		ep.Rate = rate
	}
	if ch.Concurrency != nil {
		if *ch.Concurrency < 1 || *ch.Concurrency > MaxConcurrency {
			f.Add("concurrency", "is 1 to %d", MaxConcurrency)
		}
		ep.Concurrency = *ch.Concurrency
	}
	if ch.Enabled != nil {
		ep.Enabled, ep.DisabledReason = *ch.Enabled, ""
		if !ep.Enabled {
			ep.DisabledReason = string(store.Requested)
		}
	}
}

// checkTopics judges the patterns of events that an endpoint subscribes to.
func checkTopics(topics []string, f *accept.Findings) {
	if len(topics) > MaxTopics {
		f.Add("topics", "has %d patterns; at most %d are allowed", len(topics), MaxTopics)
		return
	}
	for i, topic := range topics {
		field := fmt.Sprintf("topics[%d]", i)
		accept.CheckText(field, topic, accept.MaxTopic, f)
		switch stem := strings.TrimSuffix(topic, ".*"); {
		case topic == "*":
		case stem == "":
			f.Add(field, "is empty")
		case strings.Contains(stem, "*"):
			f.Add(field, `may have * only by itself or at its end, after a dot: "payment.*"`)
		}
	}
}

// draftEndpoint returns a new endpoint, judged.
func (ct *Controller) draftEndpoint(v *accept.ProjectView, project string,
	ch *EndpointChange) (store.Endpoint, error) {
	now := ct.clock.Now()
	ep := store.Endpoint{
		ID: ct.ids.New(clock.TimeOf(now)), Project: project, URLOverride: store.OverrideDeny, Enabled: true,
		CreatedAt: now, UpdatedAt: now,
	}
	return ep, ct.apply(v, ch, &ep)
}

// CreateEndpoint makes an endpoint, and its signing secret.
func (ct *Controller) CreateEndpoint(ctx context.Context, project string, ch EndpointChange,
	by store.Actor) (EndpointReceipt, error) {
	v, err := ct.accept.Catalog.Project(ctx, project)
	if err != nil {
		return EndpointReceipt{}, err
	}
	ep, err := ct.draftEndpoint(v, project, &ch)
	if err != nil {
		return EndpointReceipt{}, err
	}
	key, err := ct.judgeSecret(ctx, v, &ep, &ch)
	if err != nil {
		return EndpointReceipt{}, err
	}
	r := EndpointReceipt{Created: true}
	// The secret first: without its endpoint it is nobody's, and whoever is refused may ask again.
	r.Secret, err = ct.giveSecret(ctx, v, &ep, key, ch.SecretLabel, 0, by)
	if err != nil {
		return EndpointReceipt{}, err
	}
	r.Endpoint, err = ct.o.Store.CreateEndpoint(ctx, ep, by)
	if err != nil {
		r = EndpointReceipt{} // its secret is of no use: there is no endpoint
	}
	return r, ct.changed(ctx, "create endpoint", err)
}

// PutEndpoints makes endpoints, or changes those of the same external id so that they are as asked for: what
// is not given gets its default, but that a pause and Enabled stay as they are. Each is answered in its
// place. Of several, secrets that are not given are made when they are first needed.
func (ct *Controller) PutEndpoints(ctx context.Context, project string, changes []EndpointChange,
	by store.Actor) ([]EndpointReceipt, error) {
	if len(changes) > MaxEndpointsBatch {
		return nil, fmt.Errorf("put endpoints: %d; at most %d in one call", len(changes), MaxEndpointsBatch)
	}
	v, err := ct.accept.Catalog.Project(ctx, project)
	if err != nil {
		return nil, err
	}
	wants := make([]store.EndpointUpsert, len(changes))
	keys, first := make([][]byte, len(changes)), make([]*secret.RevealedSecret, len(changes))
	for i := range changes {
		ch := &changes[i]
		if ch.ExternalID != nil {
			wants[i].ExternalID = *ch.ExternalID
			given, s, err := ct.giveSecretFirst(ctx, v, *ch.ExternalID, ch, by)
			if _, wrong := errors.AsType[*store.InvalidError](err); err != nil && !wrong {
				return nil, fmt.Errorf("put endpoints: %w", err)
			}
			if given {
				first[i] = &s
			}
		}
		wants[i].Change = func(ep *store.Endpoint) error {
			fresh := *ep
			fresh.Name, fresh.URL, fresh.URLOverride, fresh.Topics = "", "", store.OverrideDeny, nil
			fresh.Policy, fresh.Success, fresh.Signer = store.PolicyChoice{}, store.Success{}, ""
			fresh.Rate, fresh.Concurrency = store.Rate{}, 0
			if err := ct.apply(v, ch, &fresh); err != nil {
				return err
			}
			if ch.Headers == nil {
				fresh.Headers = nil
			}
			if err := ct.guardEndpoint(ctx, v, ep, &fresh, ch); err != nil {
				return err
			}
			key, err := ct.parseSecret(v, &fresh, ch)
			keys[i], *ep = key, fresh
			return err
		}
	}
	done, err := ct.o.Store.UpsertEndpoints(ctx, project, wants, ct.clock.Now(), by)
	if err != nil {
		return nil, fmt.Errorf("put endpoints: %w", err)
	}
	receipts := make([]EndpointReceipt, len(changes))
	for i := range done {
		receipts[i] = EndpointReceipt{Endpoint: done[i].Endpoint, Created: done[i].Created, Err: done[i].Err}
		if first[i] != nil && done[i].Err == nil {
			receipts[i].Secret = *first[i]
			continue
		}
		if done[i].Err != nil || keys[i] == nil && !(done[i].Created && len(changes) == 1) {
			continue
		}
		receipts[i].Secret, receipts[i].Err = ct.giveSecret(ctx, v, &done[i].Endpoint, keys[i],
			changes[i].SecretLabel, 0, by)
	}
	ct.accept.SettingsChanged(ctx)
	return receipts, nil
}

// PatchEndpoint changes what is given, and nothing else.
func (ct *Controller) PatchEndpoint(ctx context.Context, project, id string, ch EndpointChange,
	by store.Actor) (store.Endpoint, error) {
	v, err := ct.accept.Catalog.Project(ctx, project)
	if err != nil {
		return store.Endpoint{}, err
	}
	given, _, err := ct.giveSecretFirst(ctx, v, store.EndpointPrefix+id, &ch, by)
	if err != nil {
		return store.Endpoint{}, err
	}
	now := ct.clock.Now() // the secret is there before the endpoint counts as changed
	var key []byte
	ep, err := ct.o.Store.PatchEndpoint(ctx, project, id, func(ep *store.Endpoint) error {
		before := *ep
		if err := ct.apply(v, &ch, ep); err != nil {
			return err
		}
		if err := ct.guardEndpoint(ctx, v, &before, ep, &ch); err != nil {
			return err
		}
		var err error
		key, err = ct.judgeSecret(ctx, v, ep, &ch)
		return err
	}, now, by)
	if err != nil {
		return ep, fmt.Errorf("change endpoint %s: %w", id, err)
	}
	if key != nil && !given {
		_, err = ct.giveSecret(ctx, v, &ep, key, ch.SecretLabel, now+secret.Overlap.Milliseconds(), by)
	}
	ct.accept.SettingsChanged(ctx)
	return ep, err
}

// DeleteEndpoint removes an endpoint. Its open callbacks are canceled, those that are being attempted when
// that fails.
func (ct *Controller) DeleteEndpoint(ctx context.Context, project, id string, by store.Actor) error {
	_, err := ct.o.Store.DeleteEndpoint(ctx, project, id, ct.clock.Now(), by)
	if err := ct.changed(ctx, "delete endpoint "+id, err); err != nil {
		return err
	}
	// The sweep goes on with it, here or in another process; most have little to cancel.
	if err := ct.index.CancelDeleted(ctx); err != nil {
		ct.log.Warn("callbacks of a deleted endpoint are canceled later", "error", err)
	}
	return nil
}

// PauseEndpoint holds an endpoint until a time; resuming it is a pause until 0. Accepts go on.
func (ct *Controller) PauseEndpoint(ctx context.Context, project, id string, until int64,
	by store.Actor) (store.Endpoint, error) {
	var f accept.Findings
	checkReason(by, &f)
	if len(f) > 0 {
		return store.Endpoint{}, f.Err()
	}
	ep, err := ct.o.Store.PatchEndpoint(ctx, project, id, func(ep *store.Endpoint) error {
		ep.PausedUntil, ep.PauseReason = until, by.Reason
		if until == 0 {
			ep.PauseReason = ""
		}
		return nil
	}, ct.clock.Now(), by)
	return ep, ct.changed(ctx, "pause endpoint "+id, err)
}

// secretNeeded says that a signer's secret can only be given.
func secretNeeded(use string) error {
	return accept.Invalid("secret", fmt.Sprintf("is needed: one of use %q cannot be made here", use))
}

// parseSecret reads the secret of a change; nil: none was given.
func (ct *Controller) parseSecret(v *accept.ProjectView, ep *store.Endpoint,
	ch *EndpointChange) ([]byte, error) {
	use, err := sign.UseOf(v.SignerOf(ep))
	if err != nil {
		return nil, accept.Invalid("signer", err.Error())
	}
	if ch.Secret == "" {
		return nil, nil
	}
	if use == "" {
		return nil, accept.Invalid("secret", "is not used by this signer")
	}
	key, err := sign.ParseSecretFor(use, ch.Secret)
	if err != nil {
		return nil, accept.Invalid("secret", err.Error())
	}
	if !validLabel(ch.SecretLabel) {
		return nil, accept.Invalid("secret_label", labelText)
	}
	return key, nil
}

// judgeSecret is parseSecret for one endpoint, which must have a secret if none can be made.
func (ct *Controller) judgeSecret(ctx context.Context, v *accept.ProjectView, ep *store.Endpoint,
	ch *EndpointChange) ([]byte, error) {
	key, err := ct.parseSecret(v, ep, ch)
	if err != nil || key != nil {
		return key, err
	}
	kind, err := sign.KindOf(v.SignerOf(ep))
	if err != nil || kind.Use == "" || sign.CanMake(kind.Use) {
		return nil, err
	}
	to := secret.Signing{Project: ep.Project, Endpoint: ep.ID, Kind: kind, Home: true}
	_, err = ct.secret.Signing(ctx, to, ct.clock.Now())
	if errors.Is(err, secret.ErrNoSecret) {
		return nil, secretNeeded(kind.Use)
	}
	return nil, err
}

// giveSecret stores a secret of an endpoint, made if key is nil, and returns it as its receiver is given it.
func (ct *Controller) giveSecret(ctx context.Context, v *accept.ProjectView, ep *store.Endpoint, key []byte,
	label string, retireAt int64, by store.Actor) (secret.RevealedSecret, error) {
	use, err := sign.UseOf(v.SignerOf(ep))
	if err != nil || use == "" {
		return secret.RevealedSecret{}, err
	}
	var hosts []string
	if key == nil {
		key, err = sign.NewSecret(use)
		if err != nil {
			return secret.RevealedSecret{}, secretNeeded(use)
		}
		hosts = secret.MadeHosts(use)
	}
	now := ct.clock.Now()
	row := store.Secret{Project: ep.Project, Owner: ep.ID, Use: use, Label: label, Hosts: hosts,
		CreatedAt: now}
	return ct.addSecret(ctx, row, key, max(retireAt, now), by)
}
