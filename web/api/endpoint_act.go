package api

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// pauseEndpoint is POST /v1/endpoints/{id}/pause. Accepts go on.
func (a *API) pauseEndpoint(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.EndpointPrefix)
	if err != nil {
		return err
	}
	until, reason, err := a.readPause(c)
	if err != nil {
		return err
	}
	return a.endpoint(c)(a.Engine.PauseEndpoint(ctx, who.Project, id, until, who.By(reason)))
}

// resumeEndpoint is POST /v1/endpoints/{id}/resume.
func (a *API) resumeEndpoint(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.EndpointPrefix)
	if err != nil {
		return err
	}
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	return a.endpoint(c)(a.Engine.PauseEndpoint(ctx, who.Project, id, 0, who.By(reason)))
}

// testEndpoint is POST /v1/endpoints/{id}/test: 202 with the callback that says of itself that it is a test.
func (a *API) testEndpoint(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.EndpointPrefix)
	if err != nil {
		return err
	}
	var f fields
	var reason string
	if err := readFields(c, true, &f, func(key, value []byte) bool { return f.reason(key, value, &reason) }); err != nil {
		return err
	}
	// To the engine an endpoint that is not there is a wrong field of a callback; here it is what the path names.
	if _, err := a.Store.Endpoint(ctx, who.Project, id); err != nil {
		return err
	}
	cb, err := a.Engine.TestEndpoint(ctx, who.Project, id, who.By(reason))
	if err != nil {
		return err
	}
	a.answer(c, http.StatusAccepted, appendCallback(nil, &cb, a.Engine.Now(), false))
	return nil
}

// endpointSecret is GET /v1/endpoints/{id}/secret. Reading it is audited.
func (a *API) endpointSecret(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.EndpointPrefix)
	if err != nil {
		return err
	}
	return a.reveal(ctx, c, who, control.SecretQuery{Endpoint: id})
}

// rotateEndpointSecret is POST /v1/endpoints/{id}/rotate_secret.
func (a *API) rotateEndpointSecret(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.EndpointPrefix)
	if err != nil {
		return err
	}
	return a.rotate(ctx, c, who, control.SecretQuery{Endpoint: id})
}
