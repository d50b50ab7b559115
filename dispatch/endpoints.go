package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// EndpointRows is what people change of endpoints in SQL, each in one audited transaction, scoped by project. An unknown id is
// store.ErrNotFound, an external id that another one has store.ErrExists.
type EndpointRows interface {
	CreateEndpoint(ctx context.Context, ep store.Endpoint, by store.Actor) (store.Endpoint, error)
	// UpsertEndpoints makes endpoints, or changes those of the same external id, and answers each in its place.
	UpsertEndpoints(ctx context.Context, project string, wants []store.EndpointUpsert, now int64, by store.Actor) ([]store.UpsertedEndpoint, error)
	// PatchEndpoint changes one under its lock; an error of change is returned, and nothing is changed. Change may be called more than once.
	PatchEndpoint(ctx context.Context, project, id string, change func(*store.Endpoint) error, now int64, by store.Actor) (store.Endpoint, error)
	DeleteEndpoint(ctx context.Context, project, id string, now int64, by store.Actor) (store.Endpoint, error)
	// DisableEndpoint stops sending to one, and says whether that is new.
	DisableEndpoint(ctx context.Context, project, id, reason string, now int64, by store.Actor) (bool, error)
	// CancelDeleted cancels up to limit open callbacks of deleted endpoints, and returns those that were.
	CancelDeleted(ctx context.Context, now int64, limit int) ([]store.OpenRow, error)
	// ReportHealth keeps what attempts said of endpoints.
	ReportHealth(ctx context.Context, reports []store.EndpointHealth, now int64) error
}

// Bounds of an endpoint.
const (
	MaxName           = 128
	MaxExternalID     = 128
	MaxTopics         = 100
	MaxPauseReason    = 256
	MaxConcurrency    = 10_000
	MaxEndpointsBatch = 1000
)

// An EndpointChange is an endpoint as a caller asks for it. Nil fields and an empty Choice are not given: a new endpoint gets their
// defaults, one that is changed keeps what it has.
type EndpointChange struct {
	ExternalID  *string
	Name        *string
	URL         *string
	URLOverride *string
	Topics      *[]string
	Choice
	Headers     *[]store.Header
	Rate        *string
	Concurrency *int
	Enabled     *bool
	// Clear names fields that are to be as if never given: "policy", "success", "signer", "external_id", "rate", "concurrency".
	Clear []string
	// Secret is a signing secret as its signer's use writes it, and SecretLabel what receivers know it by. Empty: one is made where
	// that can be done.
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
	// Secret is the one that was made or given with the call, as its receiver is given it; zero: there is none, or it was there before.
	Secret ShownSecret
	Err    error
}

// apply judges a change and makes it.
func (e *Engine) apply(v *projectView, ch *EndpointChange, ep *store.Endpoint) error {
	f := findings(slices.Clone(ch.Invalid))
	for _, field := range ch.Clear {
		clearField(ep, field)
	}
	text := func(field string, given *string, most int, to *string) {
		if given != nil {
			checkText(field, *given, most, &f)
			*to = *given
		}
	}
	text("external_id", ch.ExternalID, MaxExternalID, &ep.ExternalID)
	if strings.HasPrefix(ep.ExternalID, store.EndpointPrefix) {
		f.add("external_id", "must not begin with %q, which ids made here do", store.EndpointPrefix)
	}
	text("name", ch.Name, MaxName, &ep.Name)
	e.applyURL(ch, ep, &f)
	if ch.Topics != nil {
		checkTopics(*ch.Topics, &f)
		ep.Topics = *ch.Topics
	}
	chosen := v.judge(&ch.Choice, &f)
	if !chosen.policy.IsZero() {
		ep.Policy = chosen.policy
	}
	if chosen.success != (store.Success{}) {
		ep.Success = chosen.success
	}
	if chosen.signer != "" {
		ep.Signer = chosen.signer
	}
	if err := e.applyHeaders(ch, ep, &f); err != nil {
		return err
	}
	applyLimits(ch, ep, &f)
	if len(f) > 0 {
		return &store.InvalidError{Fields: f}
	}
	return nil
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

func (e *Engine) applyURL(ch *EndpointChange, ep *store.Endpoint, f *findings) {
	if ch.URL != nil {
		_, err := LaneOf(*ch.URL)
		if err == nil && e.o.CheckURL != nil {
			err = e.o.CheckURL(*ch.URL)
		}
		if err != nil {
			f.add("url", "%s", err)
		}
		ep.URL = *ch.URL
	}
	if ep.URL == "" {
		f.add("url", "is required")
	}
	if ch.URLOverride == nil {
		return
	}
	switch o := store.URLOverride(*ch.URLOverride); o {
	case store.OverrideDeny, store.OverrideSameHost, store.OverrideAny:
		ep.URLOverride = o
	default:
		f.add("url_override", `is "deny", "same_host" or "any"`)
	}
}

func applyLimits(ch *EndpointChange, ep *store.Endpoint, f *findings) {
	if ch.Rate != nil {
		rate, err := store.ParseRate(*ch.Rate)
		if err != nil {
			f.add("rate", "%s", err)
		}
		ep.Rate = rate
	}
	if ch.Concurrency != nil {
		if *ch.Concurrency < 1 || *ch.Concurrency > MaxConcurrency {
			f.add("concurrency", "is 1 to %d", MaxConcurrency)
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
func checkTopics(topics []string, f *findings) {
	if len(topics) > MaxTopics {
		f.add("topics", "has %d patterns; at most %d are allowed", len(topics), MaxTopics)
		return
	}
	for i, topic := range topics {
		field := fmt.Sprintf("topics[%d]", i)
		checkText(field, topic, MaxTopic, f)
		switch stem := strings.TrimSuffix(topic, ".*"); {
		case topic == "*":
		case stem == "":
			f.add(field, "is empty")
		case strings.Contains(stem, "*"):
			f.add(field, `may have * only by itself or at its end, after a dot: "payment.*"`)
		}
	}
}

// draftEndpoint returns a new endpoint, judged.
func (e *Engine) draftEndpoint(v *projectView, project string, ch *EndpointChange) (store.Endpoint, error) {
	now := e.clock.now()
	ep := store.Endpoint{
		ID: e.ids.make(timeOf(now)), Project: project, URLOverride: store.OverrideDeny, Enabled: true, CreatedAt: now, UpdatedAt: now,
	}
	return ep, e.apply(v, ch, &ep)
}

// CreateEndpoint makes an endpoint, and its signing secret.
func (e *Engine) CreateEndpoint(ctx context.Context, project string, ch EndpointChange, by store.Actor) (EndpointReceipt, error) {
	v, err := e.catalog.project(ctx, project)
	if err != nil {
		return EndpointReceipt{}, err
	}
	ep, err := e.draftEndpoint(v, project, &ch)
	if err != nil {
		return EndpointReceipt{}, err
	}
	key, err := e.judgeSecret(ctx, v, &ep, &ch)
	if err != nil {
		return EndpointReceipt{}, err
	}
	r := EndpointReceipt{Created: true}
	// The secret first: without its endpoint it is nobody's, and whoever is refused may ask again.
	if r.Secret, err = e.giveSecret(ctx, v, &ep, key, ch.SecretLabel, 0, by); err != nil {
		return EndpointReceipt{}, err
	}
	if r.Endpoint, err = e.o.Store.CreateEndpoint(ctx, ep, by); err != nil {
		return EndpointReceipt{}, fmt.Errorf("create endpoint: %w", err)
	}
	e.settingsChanged(ctx)
	return r, nil
}

// PutEndpoints makes endpoints, or changes those of the same external id so that they are as asked for: what is not given gets its
// default, but that a pause and Enabled stay as they are. Each is answered in its place. Of several, secrets that are not given are
// made when they are first needed.
func (e *Engine) PutEndpoints(ctx context.Context, project string, changes []EndpointChange, by store.Actor) ([]EndpointReceipt, error) {
	if len(changes) > MaxEndpointsBatch {
		return nil, fmt.Errorf("put endpoints: %d; at most %d in one call", len(changes), MaxEndpointsBatch)
	}
	v, err := e.catalog.project(ctx, project)
	if err != nil {
		return nil, err
	}
	wants := make([]store.EndpointUpsert, len(changes))
	keys, first := make([][]byte, len(changes)), make([]*ShownSecret, len(changes))
	for i := range changes {
		ch := &changes[i]
		if ch.ExternalID != nil {
			wants[i].ExternalID = *ch.ExternalID
			given, s, err := e.giveSecretFirst(ctx, v, *ch.ExternalID, ch, by)
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
			if err := e.apply(v, ch, &fresh); err != nil {
				return err
			}
			if ch.Headers == nil {
				fresh.Headers = nil
			}
			if err := e.guardEndpoint(ctx, v, ep, &fresh, ch); err != nil {
				return err
			}
			key, err := e.parseSecret(v, &fresh, ch)
			keys[i], *ep = key, fresh
			return err
		}
	}
	done, err := e.o.Store.UpsertEndpoints(ctx, project, wants, e.clock.now(), by)
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
		receipts[i].Secret, receipts[i].Err = e.giveSecret(ctx, v, &done[i].Endpoint, keys[i], changes[i].SecretLabel, 0, by)
	}
	e.settingsChanged(ctx)
	return receipts, nil
}

func invalid(field, message string) error {
	return &store.InvalidError{Fields: []store.FieldError{{Field: field, Message: message}}}
}

// PatchEndpoint changes what is given, and nothing else.
func (e *Engine) PatchEndpoint(ctx context.Context, project, id string, ch EndpointChange, by store.Actor) (store.Endpoint, error) {
	v, err := e.catalog.project(ctx, project)
	if err != nil {
		return store.Endpoint{}, err
	}
	given, _, err := e.giveSecretFirst(ctx, v, store.EndpointPrefix+id, &ch, by)
	if err != nil {
		return store.Endpoint{}, err
	}
	now := e.clock.now() // the secret is there before the endpoint counts as changed
	var key []byte
	ep, err := e.o.Store.PatchEndpoint(ctx, project, id, func(ep *store.Endpoint) error {
		before := *ep
		if err := e.apply(v, &ch, ep); err != nil {
			return err
		}
		if err := e.guardEndpoint(ctx, v, &before, ep, &ch); err != nil {
			return err
		}
		var err error
		key, err = e.judgeSecret(ctx, v, ep, &ch)
		return err
	}, now, by)
	if err != nil {
		return ep, fmt.Errorf("change endpoint %s: %w", id, err)
	}
	if key != nil && !given {
		_, err = e.giveSecret(ctx, v, &ep, key, ch.SecretLabel, now+secretOverlap.Milliseconds(), by)
	}
	e.settingsChanged(ctx)
	return ep, err
}

// DeleteEndpoint removes an endpoint. Its open callbacks are canceled, those that are being attempted when that fails.
func (e *Engine) DeleteEndpoint(ctx context.Context, project, id string, by store.Actor) error {
	if _, err := e.o.Store.DeleteEndpoint(ctx, project, id, e.clock.now(), by); err != nil {
		return fmt.Errorf("delete endpoint %s: %w", id, err)
	}
	e.settingsChanged(ctx)
	// The sweep goes on with it, here or in another process; most have little to cancel.
	if err := e.cancelDeleted(ctx); err != nil {
		e.log.Warn("callbacks of a deleted endpoint are canceled later", "error", err)
	}
	return nil
}

// cancelDeleted cancels callbacks of deleted endpoints, a bounded number.
func (e *Engine) cancelDeleted(ctx context.Context) error {
	const batch, batches = 200, 50
	for range batches {
		rows, err := e.o.Store.CancelDeleted(ctx, e.clock.now(), batch)
		if err != nil {
			return fmt.Errorf("cancel callbacks of deleted endpoints: %w", err)
		}
		if len(rows) == 0 {
			return nil
		}
		e.wrote.Store(true)
		e.metrics.terminal.WithLabelValues(string(store.Canceled), string(store.EndpointDeleted)).Add(float64(len(rows)))
		e.takeOut(ctx, rows)
		if len(rows) < batch {
			return nil
		}
	}
	return nil
}

// PauseEndpoint holds an endpoint until a time; resuming it is a pause until 0. Accepts go on.
func (e *Engine) PauseEndpoint(ctx context.Context, project, id string, until int64, by store.Actor) (store.Endpoint, error) {
	if utf8.RuneCountInString(by.Reason) > MaxPauseReason {
		return store.Endpoint{}, invalid("reason", fmt.Sprintf("is longer than %d characters", MaxPauseReason))
	}
	ep, err := e.o.Store.PatchEndpoint(ctx, project, id, func(ep *store.Endpoint) error {
		ep.PausedUntil, ep.PauseReason = until, by.Reason
		if until == 0 {
			ep.PauseReason = ""
		}
		return nil
	}, e.clock.now(), by)
	if err != nil {
		return ep, fmt.Errorf("pause endpoint %s: %w", id, err)
	}
	e.settingsChanged(ctx)
	return ep, nil
}

// secretNeeded says that a signer's secret can only be given.
func secretNeeded(use string) error {
	return invalid("secret", fmt.Sprintf("is needed: one of use %q cannot be made here", use))
}

// signerOf returns the signer of an endpoint.
func (v *projectView) signerOf(ep *store.Endpoint) string {
	return sending{signer: ep.Signer}.or(projectSending(&v.Defaults)).or(programSending()).signer
}

// parseSecret reads the secret of a change; nil: none was given.
func (e *Engine) parseSecret(v *projectView, ep *store.Endpoint, ch *EndpointChange) ([]byte, error) {
	use, err := sign.UseOf(v.signerOf(ep))
	if err != nil {
		return nil, invalid("signer", err.Error())
	}
	if ch.Secret == "" {
		return nil, nil
	}
	if use == "" {
		return nil, invalid("secret", "is not used by this signer")
	}
	key, err := sign.ParseSecretFor(use, ch.Secret)
	if err != nil {
		return nil, invalid("secret", err.Error())
	}
	if !validLabel(ch.SecretLabel) {
		return nil, invalid("secret_label", labelText)
	}
	return key, nil
}

// labelText says what a secret's label is: it is sent in a header.
const labelText = "is at most 128 printable ASCII characters"

func validLabel(label string) bool {
	return len(label) <= MaxName && strings.IndexFunc(label, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// judgeSecret is parseSecret for one endpoint, which must have a secret if none can be made.
func (e *Engine) judgeSecret(ctx context.Context, v *projectView, ep *store.Endpoint, ch *EndpointChange) ([]byte, error) {
	key, err := e.parseSecret(v, ep, ch)
	if err != nil || key != nil {
		return key, err
	}
	signer := v.signerOf(ep)
	use, err := sign.UseOf(signer)
	if err != nil || use == "" {
		return nil, err
	}
	if sign.CanMake(use) {
		return nil, nil
	}
	to := signing{project: ep.Project, endpoint: ep.ID, signer: signer, home: true}
	if _, err := e.secrets.signing(ctx, to, e.clock.now()); errors.Is(err, errNoSecret) {
		return nil, secretNeeded(use)
	} else if err != nil {
		return nil, err
	}
	return nil, nil
}

// giveSecret stores a secret of an endpoint, made if key is nil, and returns it as its receiver is given it.
func (e *Engine) giveSecret(ctx context.Context, v *projectView, ep *store.Endpoint, key []byte, label string, retireAt int64, by store.Actor) (ShownSecret, error) {
	use, err := sign.UseOf(v.signerOf(ep))
	if err != nil || use == "" {
		return ShownSecret{}, err
	}
	var hosts []string
	if key == nil {
		if key, err = sign.NewSecret(use); err != nil {
			return ShownSecret{}, secretNeeded(use)
		}
		hosts = madeHosts(use)
	}
	now := e.clock.now()
	row := store.Secret{Project: ep.Project, Owner: ep.ID, Use: use, Label: label, Hosts: hosts, CreatedAt: now}
	id, err := e.secrets.add(ctx, row, key, max(retireAt, now), false, by)
	if err != nil {
		return ShownSecret{}, err
	}
	e.secrets.forget(ep.Project)
	return shown(use, &sign.Secret{ID: id, Label: label, Hosts: hosts, Key: key})
}
