package attempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// openOwn returns a stamped callback's own headers in clear, without credentials that were given for another
// host than that of url. What was sealed for a poll is opened only for the callback that carries the poll's
// result.
func (rn *Runner) openOwn(ctx context.Context, cb *store.Stamped, url string) ([]store.Header, error) {
	own := secret.CallbackOwner(cb.ID)
	for i := range cb.Headers {
		h := &cb.Headers[i]
		of, _ := secret.SealedFor(h.Sealed(), own)
		if h.Sealed() == "" || of == own {
			continue
		}
		poll, err := rn.o.Store.PollDetail(ctx, cb.Project, strings.TrimPrefix(of, store.CallbackPrefix))
		if err != nil {
			return nil, fmt.Errorf("read the poll of a result: %cb", err)
		}
		if poll.ResultID != cb.ID {
			return nil, fmt.Errorf("header %s was sealed for %s, whose result this is not: %cb", h.Name, of,
				secret.ErrTampered)
		}
		break
	}
	opened, err := rn.o.Keyring.OpenHeaders(cb.Project, own, url, cb.Headers)
	return opened, rn.secret.Opened(err)
}

// withDefaults returns headers with those of others added that have not the name of one of them.
func withDefaults(headers, others []store.Header) []store.Header {
	all := headers
	for _, h := range others {
		same := func(own store.Header) bool { return strings.EqualFold(own.Name, h.Name) }
		if !slices.ContainsFunc(headers, same) {
			all = append(slices.Clip(all), h)
		}
	}
	return all
}

// errDeleted: the callback's endpoint exists no more. errPaused: it is paused or disabled.
var (
	errDeleted = errors.New("the endpoint is deleted")
	errPaused  = errors.New("the endpoint is held")
)

// pausedDelay is when a callback is due again whose endpoint turned out to be held: the index, which holds its
// lane, is being told.
const pausedDelay = time.Second

// A target is where an attempt goes, and how it is signed.
type target struct {
	url     string
	headers []store.Header
	signer  string
	secrets []sign.Secret
}

// target finds where a claimed callback goes. Its errors are errDeleted, errPaused, or say why an endpoint or a
// secret cannot be had.
func (rn *Runner) target(ctx context.Context, cb *store.Stamped, now int64) (target, error) {
	t := target{url: cb.URL, signer: cb.Signer}
	project, err := rn.accept.Catalog.Project(ctx, cb.Project)
	if err != nil {
		return t, err
	}
	to := secret.Signing{Project: cb.Project, Lane: cb.Lane, Endpoint: cb.EndpointID}
	var ep *store.Endpoint
	if cb.EndpointID != "" {
		ep, err = rn.sendingEndpoint(ctx, cb.EndpointID, now)
		if err != nil {
			return t, err
		}
		if cb.Follows {
			t.url = ep.URL
		}
		t.signer = project.SignerOf(ep)
		to.Home, to.Changed = store.SameHost(t.url, ep.URL), ep.UpdatedAt
	}
	t.headers, err = rn.headersFor(ctx, cb, ep, project, t.url, to.Home)
	if err != nil {
		return t, fmt.Errorf("%cb: %cb", errUnsigned, err)
	}
	kind, err := sign.KindOf(t.signer)
	switch {
	case err != nil:
		return t, fmt.Errorf("%cb: %cb", errUnsigned, err)
	case kind.Use == "":
		return t, nil
	}
	to.Kind, to.URL = kind, t.url
	t.secrets, err = rn.secret.Signing(ctx, to, now)
	if errors.Is(err, secret.ErrNotForHost) && ep != nil && kind.SendsSecret() {
		// The callback was moved away from its endpoint's host, where the endpoint's credential stays.
		t.signer, t.secrets, err = sign.None, nil, nil
	}
	if err != nil {
		return t, fmt.Errorf("%cb: %cb", errUnsigned, err)
	}
	return t, nil
}

// errUnsigned: the secret that signs, or a header's, cannot be had. Nothing is sent without it because of
// that.
var errUnsigned = errors.New("a secret cannot be had")

// sendingEndpoint returns an endpoint as it is now, or errDeleted or errPaused.
func (rn *Runner) sendingEndpoint(ctx context.Context, id string, now int64) (*store.Endpoint, error) {
	ep, err := rn.accept.Catalog.Endpoint(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, errDeleted
	case err != nil:
		return nil, err
	case ep.DeletedAt != 0:
		return nil, errDeleted
	case !ep.Sends(now):
		return nil, errPaused
	}
	return ep, nil
}

// headersFor returns the headers that an attempt sends: the callback's own, then those of its endpoint, which
// may be nil, then the project's. Credentials that were given for other hosts than that of url are left out;
// home says that url is at the endpoint's own host.
func (rn *Runner) headersFor(
	ctx context.Context, cb *store.Stamped, ep *store.Endpoint, p *accept.ProjectView, url string, home bool,
) ([]store.Header, error) {
	headers, err := rn.openOwn(ctx, cb, url)
	if err != nil {
		return nil, err
	}
	if ep != nil {
		of := store.WithoutCredentials(ep.Headers)
		if home {
			of, err = rn.o.Keyring.OpenHeaders(ep.Project, secret.EndpointOwner(ep.ID), "", ep.Headers)
			if rn.secret.Opened(err) != nil {
				return nil, err
			}
		}
		headers = withDefaults(headers, of)
	}
	return rn.withProjectHeaders(p, url, headers)
}

// withProjectHeaders adds a project's default headers to those of a callback. Credentials go only to the
// hosts that they were given for.
func (rn *Runner) withProjectHeaders(p *accept.ProjectView, url string,
	headers []store.Header) ([]store.Header, error) {
	defaults := p.Defaults.Headers
	if len(defaults) == 0 {
		return headers, nil
	}
	if !store.NamesHost(p.Defaults.HeaderHosts, url) {
		return withDefaults(headers, store.WithoutCredentials(defaults)), nil
	}
	opened, err := rn.o.Keyring.OpenHeaders(p.ID, secret.ProjectOwner, "", defaults)
	if rn.secret.Opened(err) != nil {
		return nil, err
	}
	return withDefaults(headers, opened), nil
}

// withoutTarget is what becomes of a claimed callback that has no target: it is canceled with its endpoint, held
// with it, or put off.
func (rn *Runner) withoutTarget(cb *store.Stamped, now int64, why error, out *ended) {
	r := &out.result
	switch {
	case errors.Is(why, errDeleted):
		r.State, r.Reason = store.Canceled, store.EndpointDeleted
	case errors.Is(why, errPaused):
		out.putBack = "lane_stopped"
		r.State, r.DueAt, r.Diverts = store.Scheduled, now+pausedDelay.Milliseconds(), 1
	default:
		rn.log.Warn("an attempt is put off: its endpoint cannot be read", "callback_id",
			store.CallbackPrefix+cb.ID, "error", why)
		out.putBack = "endpoint_unread"
		r.State, r.DueAt, r.Diverts = store.Scheduled, now+5*time.Second.Milliseconds(), 1
	}
}
