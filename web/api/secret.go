package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

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
	s, err := a.Engine.RevealSecret(ctx, who.Project, meant, who.By(""))
	if err != nil {
		return err
	}
	o := jsonObject{[]byte("{")}
	if meant.Endpoint != "" {
		meant.Lane = store.EndpointPrefix + meant.Endpoint
	}
	o.orNull("lane", meant.Lane)
	o.id("endpoint_id", store.EndpointPrefix, meant.Endpoint)
	o.shown(&s)
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}

// shown writes the members of a secret.
func (o *jsonObject) shown(s *secret.ShownSecret) {
	o.str("use", s.Use)
	o.orNull("id", s.ID)
	o.orNull("label", s.Label)
	o.str("secret", s.Secret)
	o.orNull("public", s.Public)
	o.texts("hosts", s.Hosts)
}

// rotateSecret is POST /v1/secret/rotate: of the project's root secret, or of its own one of a use.
func (a *API) rotateSecret(ctx context.Context, c *gin.Context, who caller) error {
	return a.rotate(ctx, c, who, control.SecretQuery{})
}

// rotate has a secret rotated that is an endpoint's, or the project's of the use that the request names.
func (a *API) rotate(ctx context.Context, c *gin.Context, who caller, meant control.SecretQuery) error {
	var (
		f fields
		r control.Rotation
	)
	err := readFields(c, true, &f, func(key, value []byte) bool {
		switch name := string(key); name {
		case "use":
			if meant.Endpoint != "" {
				return false // it is its signer's to say
			}
			f.text(name, value, &meant.Use)
		case "secret":
			f.pem(name, value, &r.Secret)
		case "label":
			f.text(name, value, &r.Label)
		case "hosts":
			f.hosts(name, value, &r.Hosts)
		case "overlap":
			f.duration(name, value, &r.Overlap)
		default:
			return f.reason(key, value, &r.Reason)
		}
		return true
	})
	if err != nil {
		return err
	}
	s, until, err := a.Engine.RotateSecret(ctx, who.Project, meant, r, who.By(r.Reason))
	if err != nil {
		return err
	}
	o := jsonObject{[]byte("{")}
	if meant.Endpoint != "" {
		o.id("endpoint_id", store.EndpointPrefix, meant.Endpoint)
	}
	if s.Secret != "" {
		o.shown(&s)
	}
	o.instant("rotated_at", a.Engine.Now())
	o.instant("previous_signs_until", until)
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}

// reencrypt is POST /v1/secret/reencrypt: a step of a change of the master key, which concerns all projects.
func (a *API) reencrypt(ctx context.Context, c *gin.Context, who caller) error {
	var (
		f            fields
		from, reason string
	)
	if err := readFields(c, true, &f, func(key, value []byte) bool {
		if string(key) == "from" {
			f.text("from", value, &from)
			return true
		}
		return f.reason(key, value, &reason)
	}); err != nil {
		return err
	}
	r, err := a.Engine.Reencrypt(ctx, from, who.By(reason))
	if err != nil {
		return err
	}
	o := jsonObject{[]byte("{")}
	o.str("key_id", r.KeyID)
	o.integer("done", int64(r.Done))
	o.integer("failed", int64(r.Failed))
	o.integer("left", int64(r.Left))
	o.orNull("next", r.Next)
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}

// hosts takes a list of hosts into what is nil where none is given. The engine judges them.
func (f *fields) hosts(name string, raw []byte, to **[]string) {
	if isNull(raw) {
		return
	}
	*to = new([]string)
	f.lines(name, raw, control.MaxHosts, *to)
}
