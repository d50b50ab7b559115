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

// MaxHosts is the most hosts in the list of a secret, or of a project's credential headers.
const MaxHosts = 100

// checkHosts validates a list of hosts. anyHost allows "*", which only private keys may use.
func checkHosts(field string, hosts []string, anyHost bool, f *accept.Findings) {
	if len(hosts) > MaxHosts {
		f.Add(field, "has %d hosts; at most %d are allowed", len(hosts), MaxHosts)
		return
	}
	for i, host := range hosts {
		at := fmt.Sprintf("%s[%d]", field, i)
		if host == store.AnyHost {
			if !anyHost {
				f.Add(at, `"*" is for private keys; list the hosts that may receive this credential`)
			}
			continue
		}
		if err := store.CheckHost(host); err != nil {
			f.Add(at, "%s", err)
		}
	}
}

// guardEndpoint returns store.ErrNeedsAdmin for a change by a key without the scope admin that would send
// stored credentials of an endpoint to another host, or use its stored secret with another signer.
// Credentials that the request itself contains may go anywhere.
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
			return nil // the request replaces the secret that the old host received
		}
		return store.ErrNeedsAdmin
	}
	if kind == was && !(moved && kind.IsBound()) {
		return nil
	}
	own, err := ct.secret.Owned(ctx, secret.Owner{Project: after.Project, Endpoint: after.ID}, ct.clock.Now())
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
	for _, secret := range kept { // after a rotation the previous secret signs as well
		if !slices.Contains(secret.Hosts, store.AnyHost) {
			return store.ErrNeedsAdmin
		}
	}
	return nil
}

// keepsCredentials reports whether the endpoint has, after the change, credential headers whose values the
// request did not contain.
func keepsCredentials(after *store.Endpoint, ch *EndpointChange) bool {
	if ch.Headers == nil {
		return store.HasCredentials(after.Headers)
	}
	return slices.ContainsFunc(*ch.Headers, func(h store.Header) bool { return h.Sealed() != "" })
}

// applyHeaders sets the headers of a change. A header may be a sealed credential that the endpoint already
// has. A header with an unchanged value keeps its ciphertext, so that repeating a PUT changes nothing.
func (ct *Controller) applyHeaders(ch *EndpointChange, ep *store.Endpoint, f *accept.Findings) error {
	if ch.Headers == nil {
		return nil
	}
	owner := secret.EndpointOwner(ep.ID)
	for _, h := range *ch.Headers {
		if h.Sealed() != "" && !slices.ContainsFunc(ep.Headers, func(own store.Header) bool {
			return own.Value == h.Value && strings.EqualFold(own.Name, h.Name)
		}) {
			f.Add("headers."+h.Name, "is not a stored header of the endpoint; send its value")
			return nil
		}
	}
	plain, err := ct.o.Keyring.OpenHeaders(ep.Project, owner, "", *ch.Headers)
	if ct.secret.RecordOpen(err) != nil {
		return err
	}
	for _, h := range sign.CheckHeaders(plain) {
		f.Add(h.Field, "%s", h.Message)
	}
	ep.Headers = ct.reuseSealed(ep.Project, owner, ep.Headers, plain)
	return nil
}

// reuseSealed seals headers. A header whose name and value are unchanged keeps its ciphertext.
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

// replaceSecretFirst stores the secret of a change that also moves the endpoint to another host, before the
// endpoint moves. Otherwise an attempt at the new host could be signed with the old secret. name is an id or
// an external id. replaced is false if the change does not do both.
func (ct *Controller) replaceSecretFirst(
	ctx context.Context, v *accept.ProjectView, name string, ch *EndpointChange, by store.Actor,
) (replaced bool, s secret.RevealedSecret, err error) {
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
	// Find a conflict now: a refused change must not replace the secret.
	if taken, err := ct.accept.Catalog.Named(ctx, v.ID, []string{after.ExternalID}); err != nil {
		return false, s, err
	} else if other := taken[after.ExternalID]; other != nil && other.ID != after.ID {
		return false, s, store.ErrExists
	}
	s, err = ct.addEndpointSecret(ctx, v, &after, key, ch.SecretLabel, ct.clock.Now(), by)
	return err == nil, s, err
}
