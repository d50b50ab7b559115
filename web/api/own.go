package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// This file has what a key of one endpoint may do. Every other route refuses such a key.

// An ownHandler handles a request with a key of one endpoint. The zero value refuses it.
type ownHandler struct {
	scope store.Scope
	h     func(ctx context.Context, c *gin.Context, who caller, m *query.Merchant) error
}

// ownHandlers returns the handlers for keys of one endpoint, by the names of their routes.
func (a *API) ownHandlers() map[string]ownHandler {
	const read, resend = store.ScopeRead, store.ScopeResend
	return map[string]ownHandler{
		"GET /v1/callbacks":              {read, a.ownList},
		"GET /v1/callbacks/:id":          {read, a.ownGet},
		"GET /v1/callbacks/:id/attempts": {read, a.ownAttempts},
		"GET /v1/callbacks/:id/payload":  {read, a.ownPayload},
		"GET /v1/callbacks/:id/evidence": {read, a.ownEvidence},
		"POST /v1/callbacks/:id/retry":   {resend, a.ownRetry},
	}
}

// admitOwn returns the handler of a request with a key of one endpoint.
func (a *API) admitOwn(who caller, own ownHandler) (handler, error) {
	switch {
	case own.h == nil:
		return nil, fmt.Errorf("%w: the key is only for the callbacks of one endpoint", httperr.ErrForbidden)
	case !who.Key.AllowsOwn(own.scope):
		return nil, missingScope(own.scope)
	}
	return func(ctx context.Context, c *gin.Context, who caller) error {
		if wait := a.Merchants.Take(who.KeyID()); wait > 0 {
			return httperr.Later(httperr.ErrRate, wait)
		}
		ep, err := a.Store.Endpoint(ctx, who.Project, who.Key.EndpointID)
		if err != nil {
			return err
		}
		return own.h(ctx, c, who, &query.Merchant{
			Engine: a.Engine, Store: a.Store, Limits: a.Merchants, Project: who.Project, Endpoint: ep,
		})
	}, nil
}

// ownFilters are the filters of a list that do not depend on what is internal to the sender.
var ownFilters = []string{
	"state", "topic", "ref", "class", "status_code", "from", "to", "limit", "cursor", "format",
}

// ownList is list for a key of one endpoint.
func (a *API) ownList(ctx context.Context, c *gin.Context, who caller, m *query.Merchant) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	for name := range q.Values {
		if !slices.Contains(ownFilters, name) {
			q.Add(name, "is not a filter for a key of one endpoint")
		}
	}
	read := func(ctx context.Context, f *query.Filter) (store.Page, error) { return m.List(ctx, f.Filter) }
	return a.listBy(ctx, c, q, read)
}

func (a *API) ownGet(ctx context.Context, c *gin.Context, _ caller, m *query.Merchant) error {
	id, err := byID(store.CallbackPrefix)(c)
	if err != nil {
		return err
	}
	return a.replyCallback(c, http.StatusOK)(m.Get(ctx, id))
}

func (a *API) ownAttempts(ctx context.Context, c *gin.Context, who caller, m *query.Merchant) error {
	id, err := byID(store.CallbackPrefix)(c)
	if err != nil {
		return err
	}
	return a.listAttempts(ctx, c, who, id, m.Attempts)
}

func (a *API) ownPayload(ctx context.Context, c *gin.Context, _ caller, m *query.Merchant) error {
	id, err := byID(store.CallbackPrefix)(c)
	if err != nil {
		return err
	}
	p, err := m.Payload(ctx, id)
	if err != nil {
		return err
	}
	a.payloadText(c, id, p)
	return nil
}

func (a *API) ownEvidence(ctx context.Context, c *gin.Context, _ caller, m *query.Merchant) error {
	id, err := byID(store.CallbackPrefix)(c)
	if err != nil {
		return err
	}
	return a.writeReport(c, func() (*control.Report, error) { return m.Report(ctx, id) })
}

// ownRetry is retry for a key of one endpoint: one attempt, to the callback's own URL.
func (a *API) ownRetry(ctx context.Context, c *gin.Context, who caller, m *query.Merchant) error {
	id, err := byID(store.CallbackPrefix)(c)
	if err != nil {
		return err
	}
	r, d, err := read[client.RetryRequest](c, true)
	if err != nil {
		return err
	}
	if r.Ladder != "" && store.Ladder(r.Ladder) != store.Once {
		d.add("ladder", "must be once for a key of one endpoint")
	}
	if r.URL != "" {
		d.add("url", "must not be given with a key of one endpoint")
	}
	if err := d.err(); err != nil {
		return err
	}
	cb, wait, err := m.Resend(ctx, id, who.By(r.Reason))
	if wait > 0 {
		return httperr.Later(httperr.ErrResends, wait)
	}
	return a.replyCallback(c, http.StatusOK)(cb, err)
}

// createViewLink handles POST /v1/endpoints/{id}/view_link.
func (a *API) createViewLink(ctx context.Context, c *gin.Context, who caller, id string) error {
	r, d, err := read[client.ViewLinkRequest](c, true)
	if err != nil {
		return err
	}
	asked := control.ViewLinkRequest{
		ExpiresIn: length(r.ExpiresIn), Resend: r.Resend, Embed: r.Embed, Language: r.Lang,
		Invalid: d.invalid,
	}
	link, err := a.Engine.CreateViewLink(ctx, who.Project, id, asked, who.By(r.Reason))
	if err != nil {
		return err
	}
	return a.respond(c, http.StatusOK, client.ViewLink{
		URL: query.ViewURL(a.PublicURL, link.Token), ExpiresAt: moment(link.ExpiresAt),
	})
}
