package ui

import (
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
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
	p.Link = query.ViewURL(u.publicURL(r), link.Token)
	return show("endpoint_link", p)
}

// publicURL returns the URL that browsers use: the setting, or the address of this request.
func (u *UI) publicURL(r *request) string {
	if u.PublicURL != "" {
		return u.PublicURL
	}
	return "http://" + r.http.Host
}

// revokeViewLinks revokes the links to the merchant's page of an endpoint.
func (u *UI) revokeViewLinks(r *request, id string) error {
	_, err := u.Engine.RevokeViewLinks(r.ctx, r.caller.Project, id, r.by())
	return err
}
