package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// projectParam returns the project id in the path. Any key except the admin key only finds its own project.
func projectParam(c *gin.Context, who caller) (string, error) {
	id, err := byName("id")(c)
	if err != nil || !who.Root() && id != who.Project {
		return "", store.ErrNotFound
	}
	return id, nil
}

// listProjects handles GET /v1/projects.
func (a *API) listProjects(ctx context.Context, c *gin.Context, who caller) error {
	parse := noParameters(func(
		ctx context.Context, who caller, after store.Cursor, limit int,
	) ([]store.Project, error) {
		return a.visibleProjects(ctx, who, after.ID, limit)
	})
	at := func(p *store.Project) store.Cursor { return store.Cursor{ID: p.ID} }
	return listOf(a, query.ListProjects, parse, at, a.projectOf)(ctx, c, who)
}

// visibleProjects returns the projects that the caller may see: all for the admin key, its own for any other
// key.
func (a *API) visibleProjects(
	ctx context.Context, who caller, after string, limit int,
) ([]store.Project, error) {
	if who.Root() {
		return a.Store.Projects(ctx, after, limit)
	}
	p, err := a.Store.Project(ctx, who.Project)
	if err != nil || p.ID <= after {
		return nil, err
	}
	return []store.Project{p}, nil
}

// projectOf converts a project. A null default means the built-in one.
func (a *API) projectOf(p *store.Project) client.Project {
	return client.Project{
		ID: p.ID, Name: p.Name, Policy: policyChoiceOf(&p.Defaults.Policy),
		Success: successOf(&p.Defaults.Success),
		Signer:  signerOf(p.Defaults.Signer), Headers: headersOf(query.MaskHeaders(p.Defaults.Headers)),
		HeaderHosts: p.Defaults.HeaderHosts,
		Reconcile:   reconcilingOf(&p.Reconcile), Quotas: client.Quotas(p.Quotas),
		Pause:     a.pauseOf(p.PausedUntil, p.PauseReason),
		CreatedAt: moment(p.CreatedAt), UpdatedAt: moment(p.UpdatedAt),
	}
}

// reconcilingOf converts a daily reconciliation. Nil: there is none.
func reconcilingOf(r *store.Reconciling) *client.ReconcileSettings {
	if r.At == "" {
		return nil
	}
	return &client.ReconcileSettings{At: r.At, Timezone: r.Timezone, ExpectList: r.ExpectList}
}

// getProject handles GET /v1/projects/{id}.
func (a *API) getProject(ctx context.Context, c *gin.Context, who caller) error {
	id, err := projectParam(c, who)
	if err != nil {
		return err
	}
	return reply(a, c, http.StatusOK, a.projectOf)(a.Store.Project(ctx, id))
}

// createProject handles POST /v1/projects: 201 with the project.
func (a *API) createProject(ctx context.Context, c *gin.Context, who caller) error {
	r, d, err := read[client.ProjectRequest](c, false)
	if err != nil {
		return err
	}
	ch := projectChange(&d, &r.ProjectFields, false)
	ch.ID = r.ID
	return reply(a, c, http.StatusCreated, a.projectOf)(a.Engine.CreateProject(ctx, ch, who.By(ch.Reason)))
}

// patchProject handles PATCH /v1/projects/{id}. Null restores a built-in default. Quotas require the admin
// key.
func (a *API) patchProject(ctx context.Context, c *gin.Context, who caller) error {
	id, err := projectParam(c, who)
	if err != nil {
		return err
	}
	var (
		d decoder
		r client.ProjectFields
	)
	quotas, member := false, d.into(&r)
	if err := readObject(c, false, &d.fields, func(key, raw []byte) bool {
		quotas = quotas || string(key) == "quotas"
		return member(key, raw)
	}); err != nil {
		return err
	}
	if quotas && !who.Root() {
		return fmt.Errorf("quotas: %w", adminKeyRequired())
	}
	ch := projectChange(&d, &r, true)
	return reply(a, c, http.StatusOK, a.projectOf)(a.Engine.PatchProject(ctx, id, ch, who.By(ch.Reason)))
}

// projectChange converts the fields of a request. In a PATCH, null removes a default; elsewhere null means
// not given.
func projectChange(d *decoder, r *client.ProjectFields, patch bool) control.ProjectChange {
	ch := control.ProjectChange{
		Name: orDefault(r.Name, patch, ""), Headers: d.headersOrNil(r.Headers, patch),
		HeaderHosts: orDefault(r.HeaderHosts, patch, []string{}), Choice: d.withProfile(r.Profile),
		Reason: r.Reason, Invalid: d.invalid,
		Clear: nullFields(patch,
			clearable{"policy", r.Policy}, clearable{"success", r.Success}, clearable{"signer", r.Signer}),
	}
	if s, given := r.Reconcile.Get(); given {
		if s.At == "" {
			ch.Invalid = append(ch.Invalid, store.FieldError{Field: "reconcile.at", Message: "is required"})
		}
		ch.Reconcile = &store.Reconciling{At: s.At, Timezone: s.Timezone, ExpectList: s.ExpectList}
	} else if patch && r.Reconcile.IsNull() {
		ch.Reconcile = new(store.Reconciling)
	}
	if patch && r.Quotas.IsNull() {
		ch.Quotas = store.QuotaChange{OpenCallbacks: new(int64), Lanes: new(int64)}
	} else if q, given := r.Quotas.Get(); given {
		ch.Quotas = store.QuotaChange{OpenCallbacks: orDefault(q.OpenCallbacks, true, 0),
			Lanes: orDefault(q.Lanes, true, 0)}
	}
	return ch
}

// listKeys handles GET /v1/keys. There are few keys, so it reads the whole list and cuts a page.
func (a *API) listKeys() handler {
	at := func(k *store.Key) store.Cursor { return store.Cursor{ID: k.ID} }
	newestFirst := func(a, b store.Cursor) int { return strings.Compare(b.ID, a.ID) }
	read := func(ctx context.Context, who caller, after store.Cursor, _ int) ([]store.Key, error) {
		keys, err := a.Engine.Keys(ctx, who.Project)
		return rowsAfter(keys, after, at, newestFirst), err
	}
	return listOf(a, query.ListKeys, noParameters(read), at, keyOf)
}

// keyOf converts a key. Only the end of its text is known.
func keyOf(k *store.Key) client.Key {
	return client.Key{
		ID: store.KeyPrefix + k.ID, Project: k.Project, Name: k.Name,
		Scopes:     each(k.Scopes, func(s *store.Scope) client.Scope { return client.Scope(*s) }),
		EndpointID: prefixed(store.EndpointPrefix, k.EndpointID), Hint: k.Hint,
		CreatedAt: moment(k.CreatedAt), ExpiresAt: moment(k.ExpiresAt), RevokedAt: moment(k.RevokedAt),
		LastUsedAt: moment(k.LastUsedAt),
	}
}

// createKey handles POST /v1/keys: 201 with the key and its text. No later call returns the text.
func (a *API) createKey(ctx context.Context, c *gin.Context, who caller) error {
	r, d, err := read[client.KeyRequest](c, false)
	if err != nil {
		return err
	}
	asked := control.KeyRequest{Name: r.Name, ExpiresIn: length(r.ExpiresIn), Invalid: d.invalid}
	for _, scope := range r.Scopes {
		asked.Scopes = append(asked.Scopes, string(scope))
	}
	if r.Endpoint != "" {
		ep, err := a.endpointNamed(ctx, who.Project, r.Endpoint)
		if errors.Is(err, store.ErrNotFound) {
			return invalid("endpoint", "is not an endpoint of this project")
		} else if err != nil {
			return err
		}
		asked.EndpointID = ep.ID
	}
	k, text, err := a.Engine.CreateKey(ctx, who.Project, asked, who.By(r.Reason))
	if err != nil {
		return err
	}
	return a.respond(c, http.StatusCreated, client.NewKey{Key: keyOf(&k), Text: text})
}

// revokeKey revokes a key and returns it. The key stays in the list as revoked.
func (a *API) revokeKey(ctx context.Context, project, id string, by store.Actor) (store.Key, error) {
	if err := a.Engine.RevokeKey(ctx, project, id, by); err != nil {
		return store.Key{}, err
	}
	return query.FindKey(ctx, a.Engine, project, id)
}

// secret handles GET /v1/secret?lane=&signer=|endpoint=|use=.
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
		q.Add("lane", "one of lane, endpoint and use is required")
		return q.Err()
	}
	if signer != "" && (lane == "" || strings.HasPrefix(lane, store.EndpointPrefix)) {
		q.Add("signer", "is only for a lane; an endpoint has its own signer")
		return q.Err()
	}
	meant := control.SecretQuery{Lane: lane, Use: use, Signer: signer}
	if name == "" && strings.HasPrefix(lane, store.EndpointPrefix) {
		name, meant.Lane = lane, "" // an endpoint's lane uses the secret of the endpoint
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

// reveal responds with a secret. The engine records the read in the audit log.
func (a *API) reveal(ctx context.Context, c *gin.Context, who caller, meant control.SecretQuery) error {
	return reply(a, c, http.StatusOK, func(s *secret.RevealedSecret) client.Secret {
		if meant.Endpoint != "" {
			meant.Lane = store.EndpointPrefix + meant.Endpoint
		}
		return client.Secret{
			Lane: meant.Lane, EndpointID: prefixed(store.EndpointPrefix, meant.Endpoint),
			RevealedSecret: *revealedOf(s),
		}
	})(a.Engine.RevealSecret(ctx, who.Project, meant, who.By("")))
}

func revealedOf(s *secret.RevealedSecret) *client.RevealedSecret {
	return &client.RevealedSecret{Use: s.Use, ID: s.ID, Label: s.Label, Secret: s.Secret, Public: s.Public,
		Hosts: s.Hosts}
}

// rotateSecret handles POST /v1/secret/rotate: it rotates the project's root secret, or its secret for a use.
func (a *API) rotateSecret(ctx context.Context, c *gin.Context, who caller) error {
	return a.rotate(ctx, c, who, control.SecretQuery{})
}

// rotate rotates the secret of an endpoint, or the project's secret for the use in the request.
func (a *API) rotate(ctx context.Context, c *gin.Context, who caller, meant control.SecretQuery) error {
	var (
		r   client.ProjectRotation
		err error
	)
	if meant.Endpoint != "" { // the signer of the endpoint determines the use
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
		out.RevealedSecret = revealedOf(&s)
	}
	return a.respond(c, http.StatusOK, out)
}

// reencrypt handles POST /v1/secret/reencrypt: one step of a change of the master key, over all projects.
func (a *API) reencrypt(ctx context.Context, c *gin.Context, who caller) error {
	r, err := readAll[client.ReencryptRequest](c, true)
	if err != nil {
		return err
	}
	return reply(a, c, http.StatusOK, func(r *control.Reencryption) client.Reencryption {
		return client.Reencryption(*r)
	})(a.Engine.Reencrypt(ctx, r.From, who.By(r.Reason)))
}

// audit handles GET /v1/audit: every change except accepts, newest first.
func (a *API) audit() handler {
	parse := noParameters(func(
		ctx context.Context, who caller, after store.Cursor, limit int,
	) ([]store.AuditEntry, error) {
		page, err := a.Store.Audit(ctx, who.Project, store.AuditFilter{After: after.ID, Limit: limit})
		return page.Entries, err
	})
	at := func(e *store.AuditEntry) store.Cursor { return store.Cursor{ID: e.ID} }
	return listOf(a, query.ListAudit, parse, at, func(e *store.AuditEntry) client.AuditEntry {
		return client.AuditEntry{
			ID: e.ID, At: moment(e.At), Actor: e.Actor, Action: e.Action, Address: e.Address,
			Object: e.Object, Reason: e.Reason,
			Before: storedJSON(e.Before), After: storedJSON(e.After), Detail: storedJSON(e.Detail),
			Sequence: e.Link.Seq, Hash: e.Link.Hash,
		}
	})
}

// verifyAudit handles GET /v1/audit/verify: it checks a part of the hash chain, which covers all projects.
func (a *API) verifyAudit(ctx context.Context, c *gin.Context, _ caller) error {
	q, err := parseQuery(c)
	if err != nil {
		return err
	}
	from, expect := auditLink(q, "from"), auditLink(q, "expect")
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	return reply(a, c, http.StatusOK, func(check *control.AuditCheck) client.AuditCheck {
		out := client.AuditCheck{
			Sound: check.Broken == nil, Checked: check.Checked, Head: check.Head.Link.String(),
			Unchained: check.Head.Unchained,
		}
		if b := check.Broken; b != nil {
			out.Broken = &client.AuditFault{Fault: string(b.Fault), Sequence: b.Seq, ID: b.ID}
		}
		if check.Next != nil {
			out.Next = check.Next.String()
		}
		return out
	})(a.Engine.VerifyAudit(ctx, from, expect))
}

// auditLink reads a link of the hash chain from a parameter. Without the parameter it returns the zero link.
func auditLink(q *query.Values, name string) store.AuditLink {
	text := q.One(name)
	if text == "" {
		return store.AuditLink{}
	}
	link, err := store.ParseAuditLink(text)
	if err != nil {
		q.Add(name, err.Error())
	}
	return link
}
