package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// MaxHosts is the most hosts that a secret, or a project's credential headers, may be given for.
const MaxHosts = 100

// checkHosts judges a list of hosts. Only private keys may be for all of them.
func checkHosts(field string, hosts []string, anyHost bool, f *accept.Findings) {
	if len(hosts) > MaxHosts {
		f.Add(field, "has %d hosts; at most %d are allowed", len(hosts), MaxHosts)
		return
	}
	for i, host := range hosts {
		at := fmt.Sprintf("%s[%d]", field, i)
		if host == store.AnyHost {
			if !anyHost {
				f.Add(at, `"*" is for private keys; name the hosts that are to have this credential`)
			}
			continue
		}
		if err := store.CheckHost(host); err != nil {
			f.Add(at, "%s", err)
		}
	}
}

// guardEndpoint refuses a change by a key without the scope admin, with store.ErrNeedsAdmin, that would carry
// an endpoint's credentials to another host, or have its secret used by another signer. What the request
// brings itself it may send where it likes.
func (ct *Controller) guardEndpoint(
	ctx context.Context, v *accept.ProjectView, before, after *store.Endpoint, ch *EndpointChange,
) error {
	if ch.Admin || before.URL == "" {
		return nil
	}
	moved := !store.SameHost(before.URL, after.URL)
	if moved && keepsCredentials(after, ch) {
		return store.ErrNeedsAdmin
	}
	was, err := sign.KindOf(v.SignerOf(before))
	if err != nil {
		return accept.Invalid("signer", err.Error())
	}
	kind, err := sign.KindOf(v.SignerOf(after))
	if err != nil {
		return accept.Invalid("signer", err.Error())
	}
	if kind.Use == "" {
		return nil
	}
	if ch.Secret != "" {
		if moved && kind.SendsSecret() {
			return nil // the request replaces what stays behind
		}
		return store.ErrNeedsAdmin
	}
	if kind == was && !(moved && kind.IsBound()) {
		return nil
	}
	own, err := ct.secret.Own(ctx, secret.Owner{Project: after.Project, Endpoint: after.ID}, ct.clock.Now())
	if err != nil {
		return err
	}
	kept := own.ByUse[kind.Use]
	if len(kept) == 0 {
		return nil
	}
	if kind != was {
		return store.ErrNeedsAdmin
	}
	for _, secret := range kept { // the one before signs beside the present one for a while
		if !slices.Contains(secret.Hosts, store.AnyHost) {
			return store.ErrNeedsAdmin
		}
	}
	return nil
}

// keepsCredentials says whether an endpoint has credential headers after a change that the request did not
// bring.
func keepsCredentials(after *store.Endpoint, ch *EndpointChange) bool {
	if ch.Headers == nil {
		return store.HasCredentials(after.Headers)
	}
	return slices.ContainsFunc(*ch.Headers, func(h store.Header) bool { return h.Sealed() != "" })
}

// applyHeaders gives an endpoint the headers of a change. A credential that the endpoint has already, sealed,
// may stand in it; so may one of the same value, which keeps its ciphertext, so that nothing is changed by
// giving it again.
func (ct *Controller) applyHeaders(ch *EndpointChange, ep *store.Endpoint, f *accept.Findings) error {
	if ch.Headers == nil {
		return nil
	}
	owner := secret.EndpointOwner(ep.ID)
	for _, h := range *ch.Headers {
		if h.Sealed() != "" && !slices.ContainsFunc(ep.Headers, func(own store.Header) bool {
			return own.Value == h.Value && strings.EqualFold(own.Name, h.Name)
		}) {
			f.Add("headers."+h.Name, "is not one that the endpoint has")
			return nil
		}
	}
	plain, err := ct.o.Keyring.OpenHeaders(ep.Project, owner, "", *ch.Headers)
	if ct.secret.Opened(err) != nil {
		return err
	}
	for _, h := range sign.CheckHeaders(plain) {
		f.Add(h.Field, "%s", h.Message)
	}
	ep.Headers = ct.reuseSealed(ep.Project, owner, ep.Headers, plain)
	return nil
}

// reuseSealed seals headers, but keeps the ciphertext of those that are as they were.
func (ct *Controller) reuseSealed(project, owner string, before, headers []store.Header) []store.Header {
	k := ct.o.Keyring
	known := make(map[string]store.Header)
	if store.SealedKey(before) == k.KeyID() {
		if opened, err := k.OpenHeaders(project, owner, "", before); err == nil {
			for i, h := range opened {
				known[strings.ToLower(h.Name)+"\x00"+h.Value] = before[i]
			}
		}
	}
	sealed := k.SealHeaders(project, owner, "", headers)
	for i, h := range headers {
		kept, same := known[strings.ToLower(h.Name)+"\x00"+h.Value]
		if same && h.Sealed() == "" && sealed[i].Sealed() != "" {
			sealed[i].Value = kept.Value
		}
	}
	return sealed
}

// giveSecretFirst stores the secret of a change that also moves the endpoint, named by id or external id, to
// another host: no attempt there may be signed with the one before. Where there is nothing of the kind to do,
// given is false.
func (ct *Controller) giveSecretFirst(
	ctx context.Context, v *accept.ProjectView, name string, ch *EndpointChange, by store.Actor,
) (given bool, s secret.RevealedSecret, err error) {
	if ch.Secret == "" || ch.URL == nil {
		return false, s, nil
	}
	found, err := ct.accept.Catalog.Named(ctx, v.ID, []string{name})
	if err != nil || found[name] == nil || store.SameHost(found[name].URL, *ch.URL) {
		return false, s, err
	}
	before, after := *found[name], *found[name]
	if err := ct.apply(v, ch, &after); err != nil {
		return false, s, err
	}
	if err := ct.guardEndpoint(ctx, v, &before, &after, ch); err != nil {
		return false, s, err
	}
	key, err := ct.parseSecret(v, &after, ch)
	if err != nil {
		return false, s, err
	}
	// A change that would be refused must not have replaced the secret.
	if taken, err := ct.accept.Catalog.Named(ctx, v.ID, []string{after.ExternalID}); err != nil {
		return false, s, err
	} else if other := taken[after.ExternalID]; other != nil && other.ID != after.ID {
		return false, s, store.ErrExists
	}
	s, err = ct.giveSecret(ctx, v, &after, key, ch.SecretLabel, ct.clock.Now(), by)
	return err == nil, s, err
}
