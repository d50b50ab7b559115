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
	if w.EndpointID != "" {
		if err := e.aim(ctx, w, &t, now); err != nil {
			return t, err
		}
	}
	if t.signer == outbound.SignerNone {
		return t, nil
	}
	var err error
	if t.secrets, err = e.secrets.signing(ctx, w.Project, w.EndpointID, w.Lane, t.signer, now); err != nil {
		return t, fmt.Errorf("%w: %w", errUnsigned, err)
	}
	return t, nil
}

// errUnsigned: the secret that signs cannot be had. Nothing is sent unsigned because of that.
var errUnsigned = errors.New("the signing secret cannot be had")

// aim completes a target by its endpoint, as that is now.
func (e *Engine) aim(ctx context.Context, w *store.Stamped, t *target, now int64) error {
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
	p, err := e.catalog.project(ctx, w.Project)
	if err != nil {
		return err
	}
	if w.Follows {
		t.url = ep.URL
	}
	t.headers = withDefaults(withDefaults(w.Headers, ep.Headers), p.Defaults.Headers)
	t.signer = sending{signer: ep.Signer}.or(projectSending(&p.Defaults)).or(programSending()).signer
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
