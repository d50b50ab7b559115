package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// createEndpoint is POST /v1/endpoints: 201 with the endpoint and, this once, its secret.
func (a *API) createEndpoint(ctx context.Context, c *gin.Context, who caller) error {
	ch, reason, err := readEndpoint(c, false)
	if err != nil {
		return err
	}
	made := reply(a, c, http.StatusCreated, a.receiptOf)
	return made(a.Engine.CreateEndpoint(ctx, who.Project, ch, who.By(reason)))
}

// readEndpoint reads an endpoint and a reason. What is wrong with its fields is in the change's Invalid.
func readEndpoint(c *gin.Context, patch bool) (ch control.EndpointChange, reason string, err error) {
	r, d, err := read[client.EndpointChange](c, false)
	if err != nil {
		return ch, "", err
	}
	return endpointChange(&d, &r.EndpointFields, patch), r.Reason, nil
}

// endpointChange is what a request has asked for. In a PATCH null takes away what can be taken away;
// elsewhere it is not given.
func endpointChange(d *decoder, r *client.EndpointFields, patch bool) control.EndpointChange {
	return control.EndpointChange{
		ExternalID: r.ExternalID.Pointer(), Name: orDefault(r.Name, patch, ""), URL: r.URL.Pointer(),
		URLOverride: orDefault(r.URLOverride, patch, string(store.OverrideDeny)),
		Topics:      orDefault(r.Topics, patch, []string{}), Headers: d.headersOrNil(r.Headers, patch),
		Rate: r.Rate.Pointer(), Concurrency: r.Concurrency.Pointer(), Enabled: r.Enabled,
		Secret: r.Secret, SecretLabel: r.SecretLabel, Choice: d.withProfile(r.Profile), Invalid: d.invalid,
		Clear: nullFields(patch,
			clearable{"external_id", r.ExternalID},
			clearable{"policy", r.Policy}, clearable{"success", r.Success}, clearable{"signer", r.Signer},
			clearable{"rate", r.Rate}, clearable{"concurrency", r.Concurrency}),
	}
}

// putEndpoint is PUT /v1/endpoints/by-external-id/{external_id}: 201 where it was made, 200 where it was
// replaced.
func (a *API) putEndpoint(ctx context.Context, c *gin.Context, who caller, external string) error {
	ch, reason, err := readEndpoint(c, false)
	if err != nil {
		return err
	}
	if ch.ExternalID != nil && *ch.ExternalID != external {
		ch.Invalid = append(ch.Invalid, store.FieldError{Field: "external_id",
			Message: "differs from the one in the path"})
	}
	ch.ExternalID = &external
	receipts, err := a.upsert(ctx, who, []control.EndpointChange{ch}, reason)
	if err != nil {
		return err
	}
	r := &receipts[0]
	if r.Err != nil {
		return r.Err
	}
	return a.respond(c, upsertStatus(r), a.receiptOf(r))
}

func upsertStatus(r *control.EndpointReceipt) int {
	if r.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// upsert asks the engine, and holds it to one receipt for each change. A request that gives a secret may
// change one.
func (a *API) upsert(
	ctx context.Context, who caller, changes []control.EndpointChange, reason string,
) ([]control.EndpointReceipt, error) {
	for i := range changes {
		changes[i].Admin = who.Allows(store.ScopeAdmin)
		if changes[i].Secret != "" && !changes[i].Admin {
			return nil, missingScope(store.ScopeAdmin)
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
		var (
			d decoder
			r client.EndpointFields
		)
		d.object(request, "", raw, d.into(&r))
		changes[i] = endpointChange(&d, &r, false)
	}
	receipts, err := a.upsert(ctx, who, changes, reason)
	if err != nil {
		return err
	}
	return a.respond(c, http.StatusMultiStatus, map[string][]client.EndpointResult{
		"results": each(receipts, func(r *control.EndpointReceipt) client.EndpointResult {
			if r.Err != nil {
				p := a.problem(c, r.Err)
				return client.EndpointResult{Status: p.Status, Problem: &p.Problem}
			}
			return client.EndpointResult{Status: upsertStatus(r), Endpoint: new(a.receiptOf(r))}
		}),
	})
}

// endpointOf is an endpoint as its caller sees it now.
func (a *API) endpointOf(ep *store.Endpoint) client.Endpoint {
	return client.Endpoint{
		ID: store.EndpointPrefix + ep.ID, ExternalID: ep.ExternalID, Name: ep.Name, URL: ep.URL,
		URLOverride: string(cmp.Or(ep.URLOverride, store.OverrideDeny)), Topics: ep.Topics,
		Policy: policyChoiceOf(&ep.Policy), Success: successOf(&ep.Success), Signer: signerOf(ep.Signer),
		Headers: headersOf(query.MaskHeaders(ep.Headers)), Rate: ep.Rate.String(),
		Concurrency: ep.Concurrency,
		Enabled:     ep.Enabled, DisabledReason: ep.DisabledReason,
		Pause: a.pauseOf(ep.PausedUntil, ep.PauseReason), Lane: ep.LaneKey(),
		FailingSince:  moment(ep.FailingSince),
		LastSuccessAt: moment(ep.LastSuccessAt), LastFailureAt: moment(ep.LastFailureAt),
		CreatedAt: moment(ep.CreatedAt), UpdatedAt: moment(ep.UpdatedAt),
	}
}

// receiptOf is an endpoint and, where it was made or given with the call, its secret.
func (a *API) receiptOf(r *control.EndpointReceipt) client.EndpointWithSecret {
	out := client.EndpointWithSecret{Endpoint: a.endpointOf(&r.Endpoint)}
	if r.Secret.Secret != "" {
		out.Secret, out.Public = r.Secret.Secret, client.Null[string]()
		if r.Secret.Public != "" {
			out.Public = client.Set(r.Secret.Public)
		}
	}
	return out
}

// endpointNamed finds an endpoint as callers name it: by its id, or by their own name for it.
func (a *API) endpointNamed(ctx context.Context, project, name string) (store.Endpoint, error) {
	if id, ok := store.BareID(store.EndpointPrefix, name); ok {
		return a.Store.Endpoint(ctx, project, id)
	}
	return a.Store.EndpointByExternalID(ctx, project, name)
}

// listEndpoints is GET /v1/endpoints.
func (a *API) listEndpoints(ctx context.Context, c *gin.Context, who caller) error {
	ask := func(q *query.Values) reader[store.Endpoint] {
		f := store.EndpointFilter{
			Search: q.One("search"), Topic: q.One("topic"), Held: q.Yes("held"), Failing: q.Yes("failing"),
			Now: a.Engine.Now(),
		}
		return func(ctx context.Context, who caller, after store.Cursor, limit int) ([]store.Endpoint,
			error) {
			f.After, f.Limit = after.ID, limit
			return a.Store.Endpoints(ctx, who.Project, f)
		}
	}
	at := func(ep *store.Endpoint) store.Cursor { return store.Cursor{ID: ep.ID} }
	return listOf(a, query.ListEndpoints, ask, at, a.endpointOf)(ctx, c, who)
}

// patchEndpoint is PATCH /v1/endpoints/{id}. A request that gives a secret changes one.
func (a *API) patchEndpoint(ctx context.Context, c *gin.Context, who caller, id string) error {
	ch, reason, err := readEndpoint(c, true)
	if err != nil {
		return err
	}
	ch.Admin = who.Allows(store.ScopeAdmin)
	if ch.Secret != "" && ch.URL == nil && !ch.Admin {
		return missingScope(store.ScopeAdmin) // with another host it replaces the credential that stays behind
	}
	return reply(a, c, http.StatusOK, a.endpointOf)(
		a.Engine.PatchEndpoint(ctx, who.Project, id, ch, who.By(reason)))
}

// testEndpoint sends the callback that says of itself that it is a test.
func (a *API) testEndpoint(ctx context.Context, project, id string, by store.Actor) (store.Callback, error) {
	// To the engine an endpoint that is not there is a wrong field of a callback; here it is what the path
	// names.
	if _, err := a.Store.Endpoint(ctx, project, id); err != nil {
		return store.Callback{}, err
	}
	return a.Engine.TestEndpoint(ctx, project, id, by)
}

// endpointSecret is GET /v1/endpoints/{id}/secret. Reading it is audited.
func (a *API) endpointSecret(ctx context.Context, c *gin.Context, who caller, id string) error {
	return a.reveal(ctx, c, who, control.SecretQuery{Endpoint: id})
}

// rotateEndpointSecret is POST /v1/endpoints/{id}/rotate_secret.
func (a *API) rotateEndpointSecret(ctx context.Context, c *gin.Context, who caller, id string) error {
	return a.rotate(ctx, c, who, control.SecretQuery{Endpoint: id})
}
