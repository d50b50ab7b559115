package accept

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// secure prepares a draft for storage: it checks that the signer may be used at the callback's host, and
// seals credentials. Its error is a *store.InvalidError, or that of the check.
func (ac *Accepter) secure(ctx context.Context, d *store.Draft) error {
	c := &d.Callback
	if err := ac.checkSigner(ctx, c, ""); err != nil {
		return err
	}
	c.Headers = ac.o.Keyring.SealHeaders(c.Project, secret.CallbackOwner(c.ID), c.URL, c.Headers)
	if d.Poll == nil || d.Poll.OnResult == nil {
		return nil
	}
	result := &d.Poll.OnResult.Callback
	if err := ac.checkSigner(ctx, result, "on_result."); err != nil {
		return err
	}
	result.Headers = ac.o.Keyring.SealResult(c.Project, c.ID, result.URL, result.Headers)
	return nil
}

// checkSigner checks that the secret of a callback's signer may be used at the host of the callback's URL:
// the caller may choose any URL, and must not get a secret sent there or a signature of the project for it.
// Its *store.InvalidError names the field signer, or url for the signer of an endpoint, after prefix. A
// callback to its endpoint's own host needs no check: the secret belongs to that host.
func (ac *Accepter) checkSigner(ctx context.Context, c *store.Callback, prefix string) error {
	signer, field := c.Signer, prefix+"signer"
	if c.EndpointID != "" {
		if c.Follows {
			return nil
		}
		ep, err := ac.Catalog.Endpoint(ctx, c.EndpointID)
		if err != nil {
			return err
		}
		if store.SameHost(c.URL, ep.URL) {
			return nil
		}
		project, err := ac.Catalog.Project(ctx, c.Project)
		if err != nil {
			return err
		}
		// The caller chose the URL, not the signer.
		signer, field = project.SignerOf(ep), prefix+"url"
	}
	kind, err := sign.KindOf(signer)
	if err != nil {
		return Invalid(field, err.Error())
	}
	if !kind.IsBound() {
		return nil
	}
	own, err := ac.secret.Owned(ctx, secret.Owner{Project: c.Project, Endpoint: c.EndpointID}, ac.clock.Now())
	if err != nil {
		return err
	}
	secrets := own.ByUse[kind.Use]
	if len(secrets) == 0 && sign.IsPrivate(kind.Use) && c.EndpointID == "" {
		return nil // the first attempt generates the key; it may sign for every host
	}
	if _, err := secret.ForHost(secrets, c.URL); err != nil {
		return Invalid(field, fmt.Sprintf("%s is allowed only at the hosts of its secret; to add a host, "+
			"POST /v1/secret/rotate with use %q, the secret and hosts", kind.Name, kind.Use))
	}
	return nil
}
