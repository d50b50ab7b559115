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

// openOwn returns the decrypted headers of a stamped callback, without credentials that were given for
// another host than that of url. Headers that were sealed for a poll are opened only for the callback that
// carries this poll's result, so that a ciphertext that was copied to another row does not open there. Only
// the first such header is checked, because the store gives a result the headers of one poll.
func (rn *Runner) openOwn(ctx context.Context, cb *store.Stamped, url string) ([]store.Header, error) {
	own := secret.CallbackOwner(cb.ID)
	for i := range cb.Headers {
		h := &cb.Headers[i]
		of, _ := secret.CutOwner(h.Sealed(), own)
		if h.Sealed() == "" || of == own {
			continue
		}
		poll, err := rn.o.Store.PollDetail(ctx, cb.Project, strings.TrimPrefix(of, store.CallbackPrefix))
		if err != nil {
			return nil, fmt.Errorf("read the poll of a result: %w", err)
		}
		if poll.ResultID != cb.ID {
			return nil, fmt.Errorf("header %s was sealed for %s, and this is not its result: %w",
				h.Name, of, secret.ErrTampered)
		}
		break
	}
	opened, err := rn.o.Keyring.OpenHeaders(cb.Project, own, url, cb.Headers)
	return opened, rn.secret.RecordOpen(err)
}

// withDefaults returns headers, and those of others whose name is not among them.
func withDefaults(headers, others []store.Header) []store.Header {
	all := headers
	for _, h := range others {
		sameName := func(own store.Header) bool { return strings.EqualFold(own.Name, h.Name) }
		if !slices.ContainsFunc(headers, sameName) {
			all = append(slices.Clip(all), h)
		}
	}
	return all
}

// errDeleted: the callback's endpoint does not exist any more. errPaused: it is paused or disabled.
var (
	errDeleted = errors.New("the endpoint is deleted")
	errPaused  = errors.New("the endpoint is paused or disabled")
)

// pausedDelay is the wait of a callback whose endpoint turned out to be paused. By then the index should have
// the pause of its lane.
const pausedDelay = time.Second

// A target is the URL of an attempt, with its headers and its signature.
type target struct {
	url     string
	headers []store.Header
	signer  string
	secrets []sign.Secret
}

// target returns where a stamped callback is sent now. It is read for each attempt, because a callback may
// follow its endpoint, whose settings may have changed. Its error is errDeleted, errPaused, errUnsigned (a
// secret is missing or cannot be used), or the failure to read the endpoint, the project or a secret.
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
		return t, unsigned(err)
	}
	kind, err := sign.KindOf(t.signer)
	switch {
	case err != nil:
		return t, fmt.Errorf("%w: %w", errUnsigned, err)
	case kind.Use == "":
		return t, nil
	}
	to.Kind, to.URL = kind, t.url
	t.secrets, err = rn.secret.Signing(ctx, to, now)
	if errors.Is(err, secret.ErrNotForHost) && ep != nil && kind.SendsSecret() && !kind.IsSealedURL() {
		// The callback was moved to another host, and the credential of its endpoint must not be sent there.
		t.signer, t.secrets, err = sign.None, nil, nil
	}
	if err != nil {
		return t, unsigned(err)
	}
	return t, nil
}

// errUnsigned: a secret for the signature or for a header is missing or cannot be used. The request is not
// sent without it.
var errUnsigned = errors.New("a secret is missing or cannot be read")

// unsigned returns an error of a secret with errUnsigned, or without it if SQL did not answer.
func unsigned(err error) error {
	for _, of := range [...]error{secret.ErrNoSecret, secret.ErrNotForHost, secret.ErrUnknownKey,
		secret.ErrTampered, store.ErrNotFound} {
		if errors.Is(err, of) {
			return fmt.Errorf("%w: %w", errUnsigned, err)
		}
	}
	return err
}

// sendingEndpoint returns the endpoint as it is now, or errDeleted or errPaused.
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

// headersFor returns the headers of an attempt: the callback's own, then those of its endpoint (nil: none),
// then the project's. The first of a name wins. Credentials for other hosts than that of url are left out.
// home: url is at the endpoint's own host.
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
			if rn.secret.RecordOpen(err) != nil {
				return nil, err
			}
		}
		headers = withDefaults(headers, of)
	}
	return rn.withProjectHeaders(p, url, headers)
}

// withProjectHeaders adds the default headers of the project. Its credentials are sent only to the hosts that
// they were given for.
func (rn *Runner) withProjectHeaders(
	p *accept.ProjectView, url string, headers []store.Header,
) ([]store.Header, error) {
	defaults := p.Defaults.Headers
	if len(defaults) == 0 {
		return headers, nil
	}
	if !store.NamesHost(p.Defaults.HeaderHosts, url) {
		return withDefaults(headers, store.WithoutCredentials(defaults)), nil
	}
	opened, err := rn.o.Keyring.OpenHeaders(p.ID, secret.ProjectOwner, "", defaults)
	if rn.secret.RecordOpen(err) != nil {
		return nil, err
	}
	return withDefaults(headers, opened), nil
}

// withoutTarget decides for a stamped callback without a target: it ends with its deleted endpoint, waits for
// its paused endpoint, or is postponed.
func (rn *Runner) withoutTarget(cb *store.Stamped, now int64, why error, out *ended) {
	r := &out.result
	switch {
	case errors.Is(why, errDeleted):
		r.State, r.Reason = store.Canceled, store.EndpointDeleted
	case errors.Is(why, errPaused):
		out.putBack = divertLaneStopped
		r.State, r.DueAt, r.Diverts = store.Scheduled, now+pausedDelay.Milliseconds(), 1
	default:
		rn.log.Warn("attempt postponed: its endpoint, project or secret cannot be read",
			"callback_id", store.CallbackPrefix+cb.ID, "error", why)
		out.putBack = divertEndpointUnread
		r.State, r.DueAt, r.Diverts = store.Scheduled, now+5*time.Second.Milliseconds(), 1
	}
}
