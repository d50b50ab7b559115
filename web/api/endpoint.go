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

// createEndpoint handles POST /v1/endpoints: 201 with the endpoint and its secret. No later call returns the
// secret with the endpoint.
func (a *API) createEndpoint(ctx context.Context, c *gin.Context, who caller) error {
	ch, reason, err := readEndpoint(c, false)
	if err != nil {
		return err
	}
	made := reply(a, c, http.StatusCreated, a.receiptOf)
	return made(a.Engine.CreateEndpoint(ctx, who.Project, ch, who.By(reason)))
}

// readEndpoint reads an endpoint and a reason. Invalid fields are in the change's Invalid.
func readEndpoint(c *gin.Context, patch bool) (ch control.EndpointChange, reason string, err error) {
	r, d, err := read[client.EndpointChange](c, false)
	if err != nil {
		return ch, "", err
	}
	return endpointChange(&d, &r.EndpointFields, patch), r.Reason, nil
}

// endpointChange converts the fields of a request. In a PATCH, null removes a value; elsewhere null means not
// given.
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

// putEndpoint handles PUT /v1/endpoints/by-external-id/{external_id}: 201 if it created the endpoint, 200 if
// it replaced it.
func (a *API) putEndpoint(ctx context.Context, c *gin.Context, who caller, external string) error {
	ch, reason, err := readEndpoint(c, false)
	if err != nil {
		return err
	}
	if ch.ExternalID != nil && *ch.ExternalID != external {
		ch.Invalid = append(ch.Invalid, store.FieldError{
			Field: "external_id", Message: "differs from the external_id in the path",
		})
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

// upsert calls the engine, and checks that it returns one receipt per change. A request with a secret may
// replace a secret, so it requires the scope admin.
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

// putEndpoints handles POST /v1/endpoints/batch: 207, with the result that each endpoint would get from a
// single PUT.
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

// endpointOf converts an endpoint. Credentials in its headers are masked.
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

// receiptOf converts an endpoint with its secret, if this call set or generated one.
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

// endpointNamed finds an endpoint by its id or its external id.
func (a *API) endpointNamed(ctx context.Context, project, name string) (store.Endpoint, error) {
	if id, ok := store.BareID(store.EndpointPrefix, name); ok {
		return a.Store.Endpoint(ctx, project, id)
	}
	return a.Store.EndpointByExternalID(ctx, project, name)
}

// listEndpoints handles GET /v1/endpoints.
func (a *API) listEndpoints(ctx context.Context, c *gin.Context, who caller) error {
	parse := func(q *query.Values) reader[store.Endpoint] {
		f := store.EndpointFilter{
			Search: q.One("search"), Topic: q.One("topic"),
			NotSending: q.Yes("held"), Failing: q.Yes("failing"),
			Now: a.Engine.Now(),
		}
		return func(
			ctx context.Context, who caller, after store.Cursor, limit int,
		) ([]store.Endpoint, error) {
			f.After, f.Limit = after.ID, limit
			return a.Store.Endpoints(ctx, who.Project, f)
		}
	}
	at := func(ep *store.Endpoint) store.Cursor { return store.Cursor{ID: ep.ID} }
	return listOf(a, query.ListEndpoints, parse, at, a.endpointOf)(ctx, c, who)
}

// patchEndpoint handles PATCH /v1/endpoints/{id}. A new secret requires the scope admin, unless the URL
// changes too.
func (a *API) patchEndpoint(ctx context.Context, c *gin.Context, who caller, id string) error {
	ch, reason, err := readEndpoint(c, true)
	if err != nil {
		return err
	}
	ch.Admin = who.Allows(store.ScopeAdmin)
	if ch.Secret != "" && ch.URL == nil && !ch.Admin {
		// With a URL the engine decides: the old secret does not move to another host, so an endpoint that
		// moves needs a new one.
		return missingScope(store.ScopeAdmin)
	}
	return reply(a, c, http.StatusOK, a.endpointOf)(
		a.Engine.PatchEndpoint(ctx, who.Project, id, ch, who.By(reason)))
}

// testEndpoint sends a test callback to an endpoint.
func (a *API) testEndpoint(ctx context.Context, project, id string, by store.Actor) (store.Callback, error) {
	// The engine reports an unknown endpoint as an invalid field. Here the path names it, so it is a 404.
	if _, err := a.Store.Endpoint(ctx, project, id); err != nil {
		return store.Callback{}, err
	}
	return a.Engine.TestEndpoint(ctx, project, id, by)
}

// endpointSecret handles GET /v1/endpoints/{id}/secret. The audit log records the read.
func (a *API) endpointSecret(ctx context.Context, c *gin.Context, who caller, id string) error {
	return a.reveal(ctx, c, who, control.SecretQuery{Endpoint: id})
}

// rotateEndpointSecret handles POST /v1/endpoints/{id}/rotate_secret.
func (a *API) rotateEndpointSecret(ctx context.Context, c *gin.Context, who caller, id string) error {
	return a.rotate(ctx, c, who, control.SecretQuery{Endpoint: id})
}
