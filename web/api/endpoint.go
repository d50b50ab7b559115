package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// createEndpoint is POST /v1/endpoints: 201 with the endpoint and, this once, its secret.
func (a *API) createEndpoint(ctx context.Context, c *gin.Context, who caller) error {
	var (
		d      endpointDecoder
		reason string
	)
	if err := readObject(c, false, &d.fields, d.with(&reason)); err != nil {
		return err
	}
	r, err := a.Engine.CreateEndpoint(ctx, who.Project, d.done(), who.By(reason))
	if err != nil {
		return err
	}
	a.answer(c, http.StatusCreated, appendEndpointReceipt(nil, &r, a.Engine.Now()))
	return nil
}

// putEndpoint is PUT /v1/endpoints/by-external-id/{external_id}: 201 where it was made, 200 where it was replaced.
func (a *API) putEndpoint(ctx context.Context, c *gin.Context, who caller) error {
	external, err := externalID(c)
	if err != nil {
		return err
	}
	var (
		d      endpointDecoder
		reason string
	)
	if err := readObject(c, false, &d.fields, d.with(&reason)); err != nil {
		return err
	}
	if given := d.change.ExternalID; given != nil && *given != external {
		d.add("external_id", "differs from the one in the path")
	}
	d.change.ExternalID = &external
	receipts, err := a.upsert(ctx, who, []control.EndpointChange{d.done()}, reason)
	if err != nil {
		return err
	}
	r := &receipts[0]
	if r.Err != nil {
		return r.Err
	}
	a.answer(c, upsertStatus(r), appendEndpointReceipt(nil, r, a.Engine.Now()))
	return nil
}

func upsertStatus(r *control.EndpointReceipt) int {
	if r.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// upsert asks the engine, and holds it to one receipt for each change. Who gives a secret to what may exist already changes one.
func (a *API) upsert(ctx context.Context, who caller, changes []control.EndpointChange, reason string) ([]control.EndpointReceipt, error) {
	for i := range changes {
		if changes[i].Admin = who.Allows(store.ScopeAdmin); changes[i].Secret != "" && !changes[i].Admin {
			return nil, lacks(store.ScopeAdmin)
		}
	}
	receipts, err := a.Engine.PutEndpoints(ctx, who.Project, changes, who.By(reason))
	if err != nil {
		return nil, err
	}
	if len(receipts) != len(changes) {
		return nil, fmt.Errorf("put endpoints: %d receipts for %d changes", len(receipts), len(changes))
	}
	return receipts, nil
}

// putEndpoints is POST /v1/endpoints/batch: 207, and for each endpoint what a PUT of its own would have got.
func (a *API) putEndpoints(ctx context.Context, c *gin.Context, who caller) error {
	var (
		f      fields
		reason string
	)
	items, err := readItems(c, &f, "endpoints", control.MaxEndpointsBatch, func(key, value []byte) bool {
		return f.reason(key, value, &reason)
	})
	if err != nil {
		return err
	}
	changes := make([]control.EndpointChange, len(items))
	for i, raw := range items {
		var d endpointDecoder
		d.object(request, "", raw, d.member)
		changes[i] = d.done()
	}
	receipts, err := a.upsert(ctx, who, changes, reason)
	if err != nil {
		return err
	}
	now := a.Engine.Now()
	b := append(make([]byte, 0, 1024*len(items)), `{"results":[`...)
	for i := range receipts {
		if i > 0 {
			b = append(b, ',')
		}
		r := &receipts[i]
		if r.Err != nil {
			if b, err = a.appendProblem(c, b, r.Err); err != nil {
				return err
			}
			continue
		}
		b = append(b, `{"status":`...)
		b = strconv.AppendInt(b, int64(upsertStatus(r)), 10)
		b = append(b, `,"endpoint":`...)
		b = append(appendEndpointReceipt(b, r, now), '}')
	}
	a.answer(c, http.StatusMultiStatus, append(b, "]}"...))
	return nil
}

// externalID returns the caller's own name for an endpoint from the path.
func externalID(c *gin.Context) (string, error) {
	s := strings.TrimPrefix(c.Param("external_id"), "/")
	wrong := query.CheckText(s, false)
	if wrong != "" || s == "" {
		return "", store.ErrNotFound
	}
	return s, nil
}

// getEndpoint is GET /v1/endpoints/{id}.
func (a *API) getEndpoint(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.EndpointPrefix)
	if err != nil {
		return err
	}
	return a.endpoint(c)(a.Store.Endpoint(ctx, who.Project, id))
}

// getEndpointByExternalID is GET /v1/endpoints/by-external-id/{external_id}.
func (a *API) getEndpointByExternalID(ctx context.Context, c *gin.Context, who caller) error {
	external, err := externalID(c)
	if err != nil {
		return err
	}
	return a.endpoint(c)(a.Store.EndpointByExternalID(ctx, who.Project, external))
}

// endpoint answers with an endpoint.
func (a *API) endpoint(c *gin.Context) func(store.Endpoint, error) error {
	return func(ep store.Endpoint, err error) error {
		if err != nil {
			return err
		}
		o := jsonObject{[]byte("{")}
		o.endpoint(&ep, a.Engine.Now())
		o.close()
		a.answer(c, http.StatusOK, o.b)
		return nil
	}
}

// endpointNamed finds an endpoint as callers name it: by its id, or by their own name for it.
func (a *API) endpointNamed(ctx context.Context, project, name string) (store.Endpoint, error) {
	if id, ok := store.BareID(store.EndpointPrefix, name); ok {
		return a.Store.Endpoint(ctx, project, id)
	}
	return a.Store.EndpointByExternalID(ctx, project, name)
}

// query.ListEndpoints is GET /v1/endpoints.
func (a *API) listEndpoints(ctx context.Context, c *gin.Context, who caller) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	now := a.Engine.Now()
	f := store.EndpointFilter{
		Search: q.One("search"), Topic: q.One("topic"), Held: q.Yes("held"), Failing: q.Yes("failing"), Now: now,
	}
	limit, after := q.Page(query.ListEndpoints)
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	if f.Limit = limit + 1; after != nil {
		f.After = after.ID
	}
	endpoints, err := a.Store.Endpoints(ctx, who.Project, f)
	if err != nil {
		return err
	}
	next := ""
	if len(endpoints) > limit {
		endpoints = endpoints[:limit]
		next = q.Cursors.Encode(query.ListEndpoints, store.Cursor{ID: endpoints[limit-1].ID})
	}
	o := jsonObject{[]byte(`{"data":[`)}
	for i := range endpoints {
		o.element(i)
		o.endpoint(&endpoints[i], now)
		o.close()
	}
	a.answer(c, http.StatusOK, appendNext(o.b, next))
	return nil
}

// patchEndpoint is PATCH /v1/endpoints/{id}. Who gives a secret changes one.
func (a *API) patchEndpoint(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.EndpointPrefix)
	if err != nil {
		return err
	}
	d := endpointDecoder{patch: true}
	var reason string
	if err := readObject(c, false, &d.fields, d.with(&reason)); err != nil {
		return err
	}
	change := d.done()
	change.Admin = who.Allows(store.ScopeAdmin)
	if change.Secret != "" && change.URL == nil && !change.Admin {
		return lacks(store.ScopeAdmin) // with another host it replaces the credential that stays behind
	}
	return a.endpoint(c)(a.Engine.PatchEndpoint(ctx, who.Project, id, change, who.By(reason)))
}

// deleteEndpoint is DELETE /v1/endpoints/{id}.
func (a *API) deleteEndpoint(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.EndpointPrefix)
	if err != nil {
		return err
	}
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	if err := a.Engine.DeleteEndpoint(ctx, who.Project, id, who.By(reason)); err != nil {
		return err
	}
	noContent(c)
	return nil
}
