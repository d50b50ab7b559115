package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// secret is GET /v1/secret?lane=&signer=|endpoint=|use=.
func (a *API) secret(ctx context.Context, c *gin.Context, who caller) error {
	q, err := parseQuery(c)
	if err != nil {
		return err
	}
	lane, name, use, signer := q.One("lane"), q.One("endpoint"), q.One("use"), q.One("signer")
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	if lane == "" && name == "" && use == "" {
		q.Add("lane", "is needed, or endpoint, or use")
		return q.Err()
	}
	if signer != "" && (lane == "" || strings.HasPrefix(lane, store.EndpointPrefix)) {
		q.Add("signer", "is for a lane; an endpoint has its own")
		return q.Err()
	}
	meant := control.SecretQuery{Lane: lane, Use: use, Signer: signer}
	if name == "" && strings.HasPrefix(lane, store.EndpointPrefix) {
		name, meant.Lane = lane, "" // the lane of an endpoint, which has a secret of its own
	}
	if name != "" {
		ep, err := a.endpointNamed(ctx, who.Project, name)
		if err != nil {
			return err
		}
		meant.Endpoint = ep.ID
	}
	return a.reveal(ctx, c, who, meant)
}

// reveal answers with a secret.
func (a *API) reveal(ctx context.Context, c *gin.Context, who caller, meant control.SecretQuery) error {
	return reply(a, c, http.StatusOK, func(s *secret.ShownSecret) client.Secret {
		if meant.Endpoint != "" {
			meant.Lane = store.EndpointPrefix + meant.Endpoint
		}
		return client.Secret{
			Lane: meant.Lane, EndpointID: prefixed(store.EndpointPrefix, meant.Endpoint), ShownSecret: *shownOf(s),
		}
	})(a.Engine.RevealSecret(ctx, who.Project, meant, who.By("")))
}

func shownOf(s *secret.ShownSecret) *client.ShownSecret {
	return &client.ShownSecret{Use: s.Use, ID: s.ID, Label: s.Label, Secret: s.Secret, Public: s.Public, Hosts: s.Hosts}
}

// rotateSecret is POST /v1/secret/rotate: of the project's root secret, or of its own one of a use.
func (a *API) rotateSecret(ctx context.Context, c *gin.Context, who caller) error {
	return a.rotate(ctx, c, who, control.SecretQuery{})
}

// rotate has a secret rotated that is an endpoint's, or the project's of the use that the request names.
func (a *API) rotate(ctx context.Context, c *gin.Context, who caller, meant control.SecretQuery) error {
	var (
		r   client.ProjectRotation
		err error
	)
	if meant.Endpoint != "" { // its use is its signer's to say
		r.Rotation, err = readAll[client.Rotation](c, true)
	} else {
		r, err = readAll[client.ProjectRotation](c, true)
	}
	if err != nil {
		return err
	}
	meant.Use = r.Use
	rotation := control.Rotation{
		Secret: r.Secret, Label: r.Label, Hosts: r.Hosts, Overlap: length(r.Overlap), Reason: r.Reason,
	}
	s, until, err := a.Engine.RotateSecret(ctx, who.Project, meant, rotation, who.By(r.Reason))
	if err != nil {
		return err
	}
	out := client.RotatedSecret{
		EndpointID: prefixed(store.EndpointPrefix, meant.Endpoint),
		RotatedAt:  moment(a.Engine.Now()), PreviousSignsUntil: moment(until),
	}
	if s.Secret != "" {
		out.ShownSecret = shownOf(&s)
	}
	return a.show(c, http.StatusOK, out)
}

// reencrypt is POST /v1/secret/reencrypt: a step of a change of the master key, which concerns all projects.
func (a *API) reencrypt(ctx context.Context, c *gin.Context, who caller) error {
	r, err := readAll[client.ReencryptRequest](c, true)
	if err != nil {
		return err
	}
	return reply(a, c, http.StatusOK, func(r *control.Reencryption) client.Reencryption {
		return client.Reencryption{KeyID: r.KeyID, Done: r.Done, Failed: r.Failed, Left: r.Left, Next: r.Next}
	})(a.Engine.Reencrypt(ctx, r.From, who.By(r.Reason)))
}
