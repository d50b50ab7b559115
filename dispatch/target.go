package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
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
	secrets []sign.Secret
}

// target finds where a claimed callback goes. Its errors are errDeleted, errHeld, or say why an endpoint or a secret cannot be had.
func (e *Engine) target(ctx context.Context, w *store.Stamped, now int64) (target, error) {
	t := target{url: w.URL, signer: w.Signer}
	project, err := e.catalog.project(ctx, w.Project)
	if err != nil {
		return t, err
	}
	to := signing{project: w.Project, lane: w.Lane, endpoint: w.EndpointID}
	var ep *store.Endpoint
	if w.EndpointID != "" {
		if ep, err = e.sendingEndpoint(ctx, w.EndpointID, now); err != nil {
			return t, err
		}
		if w.Follows {
			t.url = ep.URL
		}
		t.signer = project.signerOf(ep)
		to.home, to.changed = store.SameHost(t.url, ep.URL), ep.UpdatedAt
	}
	if t.headers, err = e.headersFor(ctx, w, ep, project, t.url, to.home); err != nil {
		return t, fmt.Errorf("%w: %w", errUnsigned, err)
	}
	kind, err := sign.KindOf(t.signer)
	switch {
	case err != nil:
		return t, fmt.Errorf("%w: %w", errUnsigned, err)
	case kind.Use == "":
		return t, nil
	}
	to.signer, to.url = t.signer, t.url
	t.secrets, err = e.secrets.signing(ctx, to, now)
	if errors.Is(err, errNotForHost) && ep != nil && kind.SendsSecret() {
		// The callback was moved away from its endpoint's host, where the endpoint's credential stays.
		t.signer, t.secrets, err = sign.None, nil, nil
	}
	if err != nil {
		return t, fmt.Errorf("%w: %w", errUnsigned, err)
	}
	return t, nil
}

// errUnsigned: the secret that signs, or a header's, cannot be had. Nothing is sent without it because of
// that.
var errUnsigned = errors.New("a secret cannot be had")

// sendingEndpoint returns an endpoint as it is now, or errDeleted or errHeld.
func (e *Engine) sendingEndpoint(ctx context.Context, id string, now int64) (*store.Endpoint, error) {
	ep, err := e.catalog.endpoint(ctx, id)
	switch {
	case notFound(err):
		return nil, errDeleted
	case err != nil:
		return nil, err
	case ep.DeletedAt != 0:
		return nil, errDeleted
	case !ep.Sends(now):
		return nil, errHeld
	}
	return ep, nil
}

// headersFor returns the headers that an attempt sends: the callback's own, then those of its endpoint, which
// may be nil, then the project's. Credentials that were given for other hosts than that of url are left out;
// home says that url is at the endpoint's own host.
func (e *Engine) headersFor(
	ctx context.Context, w *store.Stamped, ep *store.Endpoint, p *projectView, url string, home bool,
) ([]store.Header, error) {
	headers, err := e.openOwn(ctx, w, url)
	if err != nil {
		return nil, err
	}
	if ep != nil {
		of := store.WithoutCredentials(ep.Headers)
		if home {
			of, err = e.o.Keyring.openHeaders(ep.Project, endpointOwner(ep.ID), "", ep.Headers)
			if e.opened(err) != nil {
				return nil, err
			}
		}
		headers = withDefaults(headers, of)
	}
	return e.withProjectHeaders(p, url, headers)
}

// withProjectHeaders adds a project's default headers to those of a callback. Credentials go only to the
// hosts that they were given for.
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
