package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// errDeleted: the callback's endpoint exists no more. errHeld: it is paused or disabled.
var (
	errDeleted = errors.New("the endpoint is deleted")
	errHeld    = errors.New("the endpoint is held")
)

// heldDelay is when a callback is due again whose endpoint turned out to be held: the index, which holds its lane, is being told.
const heldDelay = time.Second

// A target is where an attempt goes, and how it is signed.
type target struct {
	url     string
	headers []store.Header
	signer  string
	secrets []outbound.Secret
}

// target finds where a claimed callback goes. Its errors are errDeleted, errHeld, or say why an endpoint or a secret cannot be had.
func (e *Engine) target(ctx context.Context, w *store.Stamped, now int64) (target, error) {
	t := target{url: w.URL, headers: w.Headers, signer: w.Signer}
	project, err := e.catalog.project(ctx, w.Project)
	if err != nil {
		return t, err
	}
	to := signing{project: w.Project, lane: w.Lane, endpoint: w.EndpointID}
	if w.EndpointID != "" {
		if err = e.aim(ctx, w, project, &t, &to, now); err != nil {
			return t, err
		}
	}
	if t.headers, err = e.openOwn(ctx, w, t.url, t.headers); err != nil {
		return t, fmt.Errorf("%w: %w", errUnsigned, err)
	}
	if t.headers, err = e.withProjectHeaders(project, t.url, t.headers); err != nil {
		return t, fmt.Errorf("%w: %w", errUnsigned, err)
	}
	if t.signer == outbound.SignerNone {
		return t, nil
	}
	to.signer, to.url = t.signer, t.url
	t.secrets, err = e.secrets.signing(ctx, to, now)
	if errors.Is(err, errNotForHost) && w.EndpointID != "" && sendsSecret(t.signer) {
		// The callback was moved away from its endpoint's host, where its credential stays.
		t.signer, t.secrets, err = outbound.SignerNone, nil, nil
	}
	if err != nil {
		return t, fmt.Errorf("%w: %w", errUnsigned, err)
	}
	return t, nil
}

// sendsSecret says whether a signer sends its secret itself.
func sendsSecret(signer string) bool {
	name, err := outbound.NameOf(signer)
	return err == nil && outbound.SendsSecret(name)
}

// withProjectHeaders adds a project's default headers to those of a callback. Credentials go only to the hosts that they
// were given for.
func (e *Engine) withProjectHeaders(p *projectView, url string, headers []store.Header) ([]store.Header, error) {
	defaults := p.Defaults.Headers
	if len(defaults) == 0 {
		return headers, nil
	}
	if !store.NamesHost(p.Defaults.HeaderHosts, url) {
		return withDefaults(headers, store.WithoutCredentials(defaults)), nil
	}
	opened, err := e.o.Keyring.openHeaders(p.ID, projectOwner, "", defaults)
	if e.opened(err) != nil {
		return nil, err
	}
	return withDefaults(headers, opened), nil
}

// errUnsigned: the secret that signs, or a header's, cannot be had. Nothing is sent without it because of that.
var errUnsigned = errors.New("a secret cannot be had")

// aim completes a target, and what is to be signed, by its endpoint as that is now. At another host than its own the
// endpoint's credentials are left out.
func (e *Engine) aim(ctx context.Context, w *store.Stamped, p *projectView, t *target, to *signing, now int64) error {
	ep, err := e.catalog.endpoint(ctx, w.EndpointID)
	switch {
	case notFound(err):
		return errDeleted
	case err != nil:
		return err
	case ep.DeletedAt != 0:
		return errDeleted
	case !ep.Sends(now):
		return errHeld
	}
	t.signer = p.signerOf(ep)
	to.changed = ep.UpdatedAt
	if to.home = w.Follows; to.home {
		t.url = ep.URL
	} else {
		to.home = store.SameHost(t.url, ep.URL)
	}
	if !to.home {
		t.headers = withDefaults(t.headers, store.WithoutCredentials(ep.Headers))
		return nil
	}
	opened, err := e.o.Keyring.openHeaders(ep.Project, endpointOwner(ep.ID), "", ep.Headers)
	if e.opened(err) != nil {
		return fmt.Errorf("%w: %w", errUnsigned, err)
	}
	t.headers = withDefaults(t.headers, opened)
	return nil
}

// unaimed is what becomes of a claimed callback that has no target: it is canceled with its endpoint, held with it, or put off.
func (e *Engine) unaimed(w *store.Stamped, now int64, why error, out *ended) {
	r := &out.result
	switch {
	case errors.Is(why, errDeleted):
		r.State, r.Reason = store.Canceled, store.EndpointDeleted
	case errors.Is(why, errHeld):
		out.putBack = "lane_stopped"
		r.State, r.DueAt, r.Diverts = store.Scheduled, now+heldDelay.Milliseconds(), 1
	default:
		e.log.Warn("an attempt is put off: its endpoint cannot be read", "callback_id", store.CallbackPrefix+w.ID, "error", why)
		out.putBack = "endpoint_unread"
		r.State, r.DueAt, r.Diverts = store.Scheduled, now+5*time.Second.Milliseconds(), 1
	}
}
