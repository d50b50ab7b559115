package ui

import (
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/signin"
)

// askViewLink asks what a link to the merchant's page allows.
func (f *form) askViewLink(*endpointRow) error {
	resend := f.ask("resend", checkField, "endpoint.view_link.resend")
	embed := f.ask("embed", textField, "endpoint.view_link.embed")
	embed.Mono, embed.Rows, embed.Suggest = true, 2, "https://portal.example"
	f.Fields = []field{f.askMono("expires_in", "endpoint.view_link.expires", "7d"), resend, embed}
	return nil
}

// linkPage shows a link to a merchant's page. Only the response to the form has it.
type linkPage struct {
	base
	FullID, Link string
	ExpiresAt    int64
}

// createViewLink creates a link to the merchant's page of an endpoint, and shows it.
func (u *UI) createViewLink(r *request, id string) (*response, error) {
	public, err := u.publicURL(r)
	if err != nil {
		return nil, err
	}
	expires, err := r.duration("expires_in")
	if err != nil {
		return nil, err
	}
	asked := control.ViewLinkRequest{
		ExpiresIn: expires, Resend: r.value("resend") != "", Embed: strings.Fields(r.text("embed")),
	}
	link, err := u.Engine.CreateViewLink(r.ctx, r.caller.Project, id, asked, r.by())
	if err != nil {
		return nil, err
	}
	p := &linkPage{base: u.base(r, "endpoints", "endpoint.view_link.made"),
		FullID: store.EndpointPrefix + id, ExpiresAt: link.ExpiresAt}
	p.Link = query.ViewURL(public, link.Token)
	return show("endpoint_link", p)
}

// publicURL returns the URL that browsers use: the setting, or the address of this request on loopback. For
// any other address the setting is required, because a proxy may end TLS: the scheme is not known then.
func (u *UI) publicURL(r *request) (string, error) {
	if here := "http://" + r.http.Host; u.PublicURL == "" && signin.IsLoopback(here) {
		return here, nil
	}
	if u.PublicURL == "" {
		return "", invalid("public_url", r.lang.text("endpoint.view_link.public_url"))
	}
	return u.PublicURL, nil
}

// revokeViewLinks revokes the links to the merchant's page of an endpoint.
func (u *UI) revokeViewLinks(r *request, id string) error {
	_, err := u.Engine.RevokeViewLinks(r.ctx, r.caller.Project, id, r.by())
	return err
}
