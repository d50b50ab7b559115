package accept

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// secure makes a draft fit to be stored: its signer may be used where it goes, and its credentials are
// sealed. Its error is a *store.InvalidError, or says why that could not be found out.
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

// checkSigner judges whether a callback's signer may be used where it goes. Fields of its *store.InvalidError
// begin with prefix.
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
		signer, field = project.SignerOf(ep), prefix+"url"
	}
	kind, err := sign.KindOf(signer)
	if err != nil {
		return Invalid(field, err.Error())
	}
	if !kind.IsBound() {
		return nil
	}
	own, err := ac.secret.Own(ctx, secret.Owner{Project: c.Project, Endpoint: c.EndpointID}, ac.clock.Now())
	if err != nil {
		return err
	}
	secrets := own.ByUse[kind.Use]
	if len(secrets) == 0 && sign.IsPrivate(kind.Use) && c.EndpointID == "" {
		return nil // the first one is made when it is needed, for every host
	}
	if _, err := secret.ForHost(secrets, c.URL); err != nil {
		return Invalid(field, fmt.Sprintf("%s is used only at hosts that its secret was given for: "+
			"POST /v1/secret/rotate with use %q, the secret and hosts", kind.Name, kind.Use))
	}
	return nil
}
