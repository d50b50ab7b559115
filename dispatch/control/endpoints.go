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

// Limits of endpoints: characters of texts, elements of lists, attempts in flight.
const (
	MaxName           = 128
	MaxExternalID     = 128
	MaxTopics         = 100
	MaxPauseReason    = 256
	MaxConcurrency    = 10_000
	MaxEndpointsBatch = 1000
)

// An EndpointChange creates or changes an endpoint. A nil field or an empty Choice gets its default in a new
// endpoint, and keeps its value in an existing one.
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
	// Clear names fields to reset: "policy", "success", "signer", "external_id", "rate", "concurrency".
	Clear []string
	// Secret is a signing secret in the format of its signer's use, and SecretLabel the name that receivers
	// know it by. Empty: one is generated if the use allows that.
	Secret      string
	SecretLabel string
	// Admin: the caller has the scope admin, and may send stored credentials of the endpoint to another host.
	Admin bool
	// Reason is recorded in the audit.
	Reason string
	// Invalid are the errors of fields that could not be decoded.
	Invalid []store.FieldError
}

// An EndpointReceipt is the result of creating or replacing one endpoint.
type EndpointReceipt struct {
	Endpoint store.Endpoint
	// Created: the endpoint is new.
	Created bool
	// Secret is the secret that the call generated or stored, in its receiver's format; zero: the call stored
	// none.
	Secret secret.RevealedSecret
	Err    error
}

// apply validates a change and makes it in ep.
func (ct *Controller) apply(v *accept.ProjectView, ch *EndpointChange, ep *store.Endpoint) error {
	f := accept.Findings(slices.Clone(ch.Invalid))
	if ep.IsSink() {
		return errSink
	}
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
		f.Add("external_id", "must not begin with %q, which is reserved for ids", store.EndpointPrefix)
	}
	if ep.IsSink() {
		f.Add("external_id", "must not begin with %q, which is reserved for alerts", store.SinkPrefix)
	}
	text("name", ch.Name, MaxName, &ep.Name)
	ct.applyURL(ch, ep, &f)
	if ch.Topics != nil {
		checkTopics(*ch.Topics, &f)
		ep.Topics = *ch.Topics
	}
	chosen := v.CheckChoice(&ch.Choice, &f).Or(accept.EndpointSending(ep))
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

// applyURL sets and checks the URL, which every endpoint has, and which other URLs its callbacks may use.
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
		f.Add("url_override", `must be "deny", "same_host" or "any"`)
	}
}

// applyLimits sets the rate, the concurrency and Enabled. Each enabling or disabling replaces the reason of
// the last disabling, such as a 410.
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
			f.Add("concurrency", "must be 1 to %d", MaxConcurrency)
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

// checkTopics validates the topic patterns that an endpoint subscribes to.
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
			f.Add(field, `may contain * only alone or at the end after a dot, as in "payment.*"`)
		}
	}
}

// draftEndpoint returns a new endpoint after validation.
func (ct *Controller) draftEndpoint(v *accept.ProjectView, project string,
	ch *EndpointChange) (store.Endpoint, error) {
	now := ct.clock.Now()
	ep := store.Endpoint{
		ID: ct.ids.New(clock.TimeOf(now)), Project: project, URLOverride: store.OverrideDeny, Enabled: true,
		CreatedAt: now, UpdatedAt: now,
	}
	return ep, ct.apply(v, ch, &ep)
}

// CreateEndpoint creates an endpoint and its signing secret.
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
	key, err := ct.requireSecret(ctx, v, &ep, &ch)
	if err != nil {
		return EndpointReceipt{}, err
	}
	r := EndpointReceipt{Created: true}
	// Store the secret first. If creating the endpoint fails, the secret belongs to no endpoint and is never
	// used, and the caller may try again.
	r.Secret, err = ct.addEndpointSecret(ctx, v, &ep, key, ch.SecretLabel, 0, by)
	if err != nil {
		return EndpointReceipt{}, err
	}
	r.Endpoint, err = ct.o.Store.CreateEndpoint(ctx, ep, by)
	if err != nil {
		r = EndpointReceipt{} // without its secret: no endpoint uses it
	}
	return r, ct.settingsChanged(ctx, "create endpoint", err)
}

// PutEndpoints creates endpoints, or replaces those with the same external id. A missing field gets its
// default; pauses and Enabled stay as they are. Receipts are in the order of changes. A call with several
// changes generates no missing secrets: each is generated at the first attempt.
//
// The secret of an endpoint that stays at its host is stored after the endpoint. So a receipt may have an
// error although its endpoint is stored.
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
			replaced, s, err := ct.replaceSecretFirst(ctx, v, *ch.ExternalID, ch, by)
			if _, wrong := errors.AsType[*store.InvalidError](err); err != nil && !wrong {
				return nil, fmt.Errorf("put endpoints: %w", err)
			}
			if replaced {
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
		receipts[i].Secret, receipts[i].Err = ct.addEndpointSecret(ctx, v, &done[i].Endpoint, keys[i],
			changes[i].SecretLabel, 0, by)
	}
	ct.accept.SettingsChanged(ctx)
	return receipts, nil
}

// PatchEndpoint changes the given fields of an endpoint. If the change moves the endpoint to another host,
// its new secret is stored first, and the old one ends at once. Otherwise the secret is stored after the
// change, and the old one signs for secret.Overlap.
func (ct *Controller) PatchEndpoint(ctx context.Context, project, id string, ch EndpointChange,
	by store.Actor) (store.Endpoint, error) {
	v, err := ct.accept.Catalog.Project(ctx, project)
	if err != nil {
		return store.Endpoint{}, err
	}
	replaced, _, err := ct.replaceSecretFirst(ctx, v, store.EndpointPrefix+id, &ch, by)
	if err != nil {
		return store.Endpoint{}, err
	}
	now := ct.clock.Now() // read after the secret was stored, so that the endpoint is the later change
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
		key, err = ct.requireSecret(ctx, v, ep, &ch)
		return err
	}, now, by)
	if err != nil {
		return ep, fmt.Errorf("change endpoint %s: %w", id, err)
	}
	if key != nil && !replaced {
		_, err = ct.addEndpointSecret(ctx, v, &ep, key, ch.SecretLabel, now+secret.Overlap.Milliseconds(), by)
	}
	ct.accept.SettingsChanged(ctx)
	return ep, err
}

// DeleteEndpoint deletes an endpoint. Its open callbacks are canceled. One that is being attempted is
// canceled if that attempt fails. An endpoint that alerts send to is refused. With ApprovalAbove, a redrive
// deletes an endpoint that has open callbacks: it may need an approval. DeleteEndpoint returns that redrive,
// or one without an ID if the endpoint is deleted.
func (ct *Controller) DeleteEndpoint(ctx context.Context, project, id string,
	by store.Actor) (store.Redrive, error) {
	if err := ct.isSink(ctx, project, id); err != nil {
		return store.Redrive{}, err
	}
	if ct.o.ApprovalAbove > 0 {
		r, err := ct.deleteByRedrive(ctx, project, id, by)
		if err != nil || r.ID != "" {
			return r, err
		}
	}
	return store.Redrive{}, ct.deleteEndpoint(ctx, project, id, by)
}

func (ct *Controller) deleteEndpoint(ctx context.Context, project, id string, by store.Actor) error {
	_, err := ct.o.Store.DeleteEndpoint(ctx, project, id, ct.clock.Now(), by)
	if err := ct.settingsChanged(ctx, "delete endpoint "+id, err); err != nil {
		return err
	}
	ct.cancelDeleted(ctx)
	return nil
}

// cancelDeleted cancels the first callbacks of deleted endpoints now. The sweep of this or another process
// cancels the rest, and all of them if this fails.
func (ct *Controller) cancelDeleted(ctx context.Context) {
	if err := ct.index.CancelDeleted(ctx); err != nil {
		ct.log.Warn("canceling callbacks of a deleted endpoint failed, the sweep cancels them", "error", err)
	}
}

// PauseEndpoint pauses an endpoint until a time in Unix milliseconds; 0 resumes it. New callbacks are still
// accepted.
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
	return ep, ct.settingsChanged(ctx, "pause endpoint "+id, err)
}

// secretNeeded is the error of a signer whose secret cannot be generated.
func secretNeeded(use string) error {
	return accept.Invalid("secret", fmt.Sprintf("is required: a secret for %q cannot be generated", use))
}

// parseSecret decodes the secret of a change; nil: the change has none.
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
		return nil, accept.Invalid("secret_label", labelRule)
	}
	return key, nil
}

// requireSecret is parseSecret for one endpoint. It fails if the endpoint would have no secret and none can
// be generated.
func (ct *Controller) requireSecret(ctx context.Context, v *accept.ProjectView, ep *store.Endpoint,
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

// addEndpointSecret stores a secret of an endpoint, and returns it in its receiver's format. A nil key: it
// generates the secret. The previous secret signs until retireAt.
func (ct *Controller) addEndpointSecret(
	ctx context.Context, v *accept.ProjectView, ep *store.Endpoint, key []byte, label string, retireAt int64,
	by store.Actor,
) (secret.RevealedSecret, error) {
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
		hosts = secret.GeneratedHosts(use)
	}
	now := ct.clock.Now()
	row := store.Secret{Project: ep.Project, Owner: ep.ID, Use: use, Label: label, Hosts: hosts,
		CreatedAt: now}
	return ct.addSecret(ctx, row, key, max(retireAt, now), by)
}
