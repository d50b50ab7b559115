package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestViewLink follows a link to its end in every way: it expires, it is revoked in another process, its
// endpoint is deleted.
func TestViewLink(t *testing.T) {
	with(nil, func(o *options) { o.Embedded = false }).run(t, func(b *fixture) {
		two := b.join("two")
		ep := b.endpoint(control.EndpointChange{})
		link := func(life time.Duration) (string, control.ViewLink) {
			made := must(b.engine.CreateViewLink(b.Context(), project, ep.ID, control.ViewLinkRequest{
				ExpiresIn: &life, Resend: true, Embed: []string{"https://portal.example"}, Language: "en",
			}, operator))
			return made.Token, made.ViewLink
		}
		opened := func(token string) error {
			link, err := two.engine.OpenViewLink(b.Context(), token)
			b.ok(err)
			found, err := two.engine.LinkedEndpoint(b.Context(), &link)
			if err == nil {
				b.is("endpoint", found.ID, ep.ID)
			}
			return err
		}
		token, made := link(time.Minute)
		got := must(two.engine.OpenViewLink(b.Context(), token))
		b.is("link", got.ExpiresAt, made.ExpiresAt)
		b.check(got.Resend && got.Embed[0] == "https://portal.example", "it is %+v", got)
		b.fails("a new link", opened(token), nil)
		time.Sleep(time.Minute)
		b.fails("an expired link", opened(token), store.ErrNotFound)

		token, _ = link(time.Hour)
		_, err := two.engine.RevokeViewLinks(b.Context(), "other", ep.ID, operator)
		b.fails("revoke in another project", err, store.ErrNotFound)
		b.fails("the link after it", opened(token), nil)
		b.is("version", must(b.engine.RevokeViewLinks(b.Context(), project, ep.ID, operator)).LinkVersion, 1)
		b.fails("a revoked link", opened(token), store.ErrNotFound)

		token, _ = link(time.Hour)
		b.fails("a link after the revocation", opened(token), nil)
		must(b.engine.DeleteEndpoint(b.Context(), project, ep.ID, operator))
		b.fails("of a deleted endpoint", opened(token), store.ErrNotFound)
		_, err = b.engine.CreateViewLink(b.Context(), project, ep.ID, control.ViewLinkRequest{}, operator)
		b.fails("a link to it", err, store.ErrNotFound)
		_, err = b.engine.OpenViewLink(b.Context(), token[1:])
		b.fails("a changed token", err, store.ErrNotFound)

		var actions []string
		page := must(b.db.Audit(b.Context(), project, store.AuditFilter{Object: ep.ID, Limit: 100}))
		for _, entry := range page.Entries {
			actions = append(actions, entry.Action)
			b.is("actor", entry.Actor, operator.Name)
		}
		slices.Sort(actions) // changes of one millisecond have no order
		b.is("audit", strings.Join(actions, " "), "endpoint.create endpoint.delete "+
			"endpoint.revoke_view_links endpoint.view_link endpoint.view_link endpoint.view_link")
	})
}

// TestViewLinkRefused: an invalid request names its fields, and nothing is audited.
func TestViewLinkRefused(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		ep := b.endpoint(control.EndpointChange{})
		for _, life := range []time.Duration{-1, 0, time.Minute - 1, control.MaxLinkLife + 1} {
			_, err := b.engine.CreateViewLink(b.Context(), project, ep.ID, control.ViewLinkRequest{
				ExpiresIn: &life, Embed: []string{"https://a.example", "*"}, Language: "fr",
			}, operator)
			b.is("fields", len(b.wrongFields(err)), 3)
		}
		_, err := b.engine.CreateViewLink(b.Context(), project, ep.ID,
			control.ViewLinkRequest{Embed: make([]string, 11)}, operator)
		b.is("fields", len(b.wrongFields(err)), 1)
		page := must(b.db.Audit(b.Context(), project, store.AuditFilter{Object: ep.ID, Limit: 100}))
		b.is("audit", len(page.Entries), 1)
	})
}

// TestKeyOfOneEndpoint: a key with an endpoint has no scope in the project.
func TestKeyOfOneEndpoint(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		ep := b.endpoint(control.EndpointChange{})
		create := func(endpoint string, scopes ...string) (store.Key, string, error) {
			return b.engine.CreateKey(b.Context(), project,
				control.KeyRequest{Name: "tea shop", Scopes: scopes, EndpointID: endpoint}, operator)
		}
		for _, scopes := range [][]string{{"send"}, {"read", "operate"}, {"admin"}, {}} {
			_, _, err := create(ep.ID, scopes...)
			b.is("fields", len(b.wrongFields(err)), 1)
		}
		_, _, err := create("", "resend")
		b.is("fields of a key without an endpoint", len(b.wrongFields(err)), 1)
		_, _, err = create("01JD6QZ0000000000000000007", "read")
		b.fails("an unknown endpoint", err, store.ErrNotFound)
		for _, scope := range store.EndpointScopes {
			_, text, err := create(ep.ID, string(scope))
			b.ok(err)
			key := must(b.engine.Authenticate(b.Context(), text))
			b.is("endpoint", key.EndpointID, ep.ID)
			for _, s := range append(store.Scopes[:], store.ScopeResend) {
				b.check(!key.Allows(s), "it has %s in the project", s)
			}
			b.check(key.AllowsOwn(store.ScopeRead), "%s does not read", scope)
			b.is("sends again", key.AllowsOwn(store.ScopeResend), scope == store.ScopeResend)
			b.check(!key.AllowsOwn(store.ScopeOperate) && !key.AllowsOwn(store.ScopeAdmin), "it operates")
		}
	})
}
