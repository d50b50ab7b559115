package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// projectParam returns a project's id from the path. A key's own project is the only one that there is for it.
func projectParam(c *gin.Context, who caller) (string, error) {
	id, err := pathName(c, "id")
	if err != nil || !who.Root() && id != who.Project {
		return "", store.ErrNotFound
	}
	return id, nil
}

// listProjects is GET /v1/projects.
func (a *API) listProjects(ctx context.Context, c *gin.Context, who caller) error {
	ask := plain(func(ctx context.Context, who caller, after store.Cursor, limit int) ([]store.Project, error) {
		return a.seenProjects(ctx, who, after.ID, limit)
	})
	at := func(p *store.Project) store.Cursor { return store.Cursor{ID: p.ID} }
	return listOf(a, query.ListProjects, ask, at, a.projectOf)(ctx, c, who)
}

// seenProjects returns the projects that the caller may know of.
func (a *API) seenProjects(ctx context.Context, who caller, after string, limit int) ([]store.Project, error) {
	if who.Root() {
		return a.Store.Projects(ctx, after, limit)
	}
	p, err := a.Store.Project(ctx, who.Project)
	if err != nil || p.ID <= after {
		return nil, err
	}
	return []store.Project{p}, nil
}

// projectOf is a project as it is now. Defaults that are null are the program's.
func (a *API) projectOf(p *store.Project) client.Project {
	return client.Project{
		ID: p.ID, Name: p.Name, Policy: policyChoiceOf(&p.Defaults.Policy), Success: successOf(&p.Defaults.Success),
		Signer: signerOf(p.Defaults.Signer), Headers: headersOf(query.MaskHeaders(p.Defaults.Headers)),
		HeaderHosts: p.Defaults.HeaderHosts,
		Quotas:      client.Quotas{OpenCallbacks: p.Quotas.OpenCallbacks, Lanes: p.Quotas.Lanes},
		Pause:       a.pauseOf(p.PausedUntil, p.PauseReason),
		CreatedAt:   moment(p.CreatedAt), UpdatedAt: moment(p.UpdatedAt),
	}
}

// getProject is GET /v1/projects/{id}.
func (a *API) getProject(ctx context.Context, c *gin.Context, who caller) error {
	id, err := projectParam(c, who)
	if err != nil {
		return err
	}
	return reply(a, c, http.StatusOK, a.projectOf)(a.Store.Project(ctx, id))
}

// createProject is POST /v1/projects: 201 with the project.
func (a *API) createProject(ctx context.Context, c *gin.Context, who caller) error {
	r, d, err := read[client.ProjectRequest](c, false)
	if err != nil {
		return err
	}
	ch := projectChange(&d, &r.ProjectFields, false)
	ch.ID = r.ID
	return reply(a, c, http.StatusCreated, a.projectOf)(a.Engine.CreateProject(ctx, ch, who.By(ch.Reason)))
}

// patchProject is PATCH /v1/projects/{id}: null has a default be the program's again.
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
		return fmt.Errorf("quotas: %w", rootOnly())
	}
	ch := projectChange(&d, &r, true)
	return reply(a, c, http.StatusOK, a.projectOf)(a.Engine.PatchProject(ctx, id, ch, who.By(ch.Reason)))
}

// projectChange is what a request has asked for. In a PATCH null takes a default away; elsewhere it is not given.
func projectChange(d *decoder, r *client.ProjectFields, patch bool) control.ProjectChange {
	ch := control.ProjectChange{
		Name: orEmpty(r.Name, patch, ""), Headers: d.headersIn(r.Headers, patch),
		HeaderHosts: orEmpty(r.HeaderHosts, patch, []string{}), Choice: d.chosen(r.Profile), Reason: r.Reason,
		Invalid: d.invalid,
		Clear: cleared(patch,
			clearable{"policy", r.Policy}, clearable{"success", r.Success}, clearable{"signer", r.Signer}),
	}
	if patch && r.Quotas.IsNull() {
		ch.Quotas = store.QuotaChange{OpenCallbacks: new(int64), Lanes: new(int64)}
	} else if q, given := r.Quotas.Get(); given {
		ch.Quotas = store.QuotaChange{OpenCallbacks: orEmpty(q.OpenCallbacks, true, 0), Lanes: orEmpty(q.Lanes, true, 0)}
	}
	return ch
}

// listKeys is GET /v1/keys. There are few: the list is read whole.
func (a *API) listKeys() handler {
	at := func(k *store.Key) store.Cursor { return store.Cursor{ID: k.ID} }
	newestFirst := func(a, b store.Cursor) int { return strings.Compare(b.ID, a.ID) }
	ask := plain(func(ctx context.Context, who caller, after store.Cursor, _ int) ([]store.Key, error) {
		keys, err := a.Engine.Keys(ctx, who.Project)
		return behind(keys, after, at, newestFirst), err
	})
	return listOf(a, query.ListKeys, ask, at, keyOf)
}

// keyOf is a key, of whose text only the end is known.
func keyOf(k *store.Key) client.Key {
	return client.Key{
		ID: store.KeyPrefix + k.ID, Project: k.Project, Name: k.Name,
		Scopes: each(k.Scopes, func(s *store.Scope) client.Scope { return client.Scope(*s) }), Hint: k.Hint,
		CreatedAt: moment(k.CreatedAt), ExpiresAt: moment(k.ExpiresAt), RevokedAt: moment(k.RevokedAt),
		LastUsedAt: moment(k.LastUsedAt),
	}
}

// createKey is POST /v1/keys: 201 with the key and, this once, its text.
func (a *API) createKey(ctx context.Context, c *gin.Context, who caller) error {
	r, d, err := read[client.KeyRequest](c, false)
	if err != nil {
		return err
	}
	asked := control.KeyRequest{Name: r.Name, ExpiresIn: length(r.ExpiresIn), Invalid: d.invalid}
	for _, scope := range r.Scopes {
		asked.Scopes = append(asked.Scopes, string(scope))
	}
	k, text, err := a.Engine.CreateKey(ctx, who.Project, asked, who.By(r.Reason))
	if err != nil {
		return err
	}
	return a.show(c, http.StatusCreated, client.NewKey{Key: keyOf(&k), Text: text})
}

// revokeKey ends a key and returns it: it stays in the list as one that has ended.
func (a *API) revokeKey(ctx context.Context, project, id string, by store.Actor) (store.Key, error) {
	if err := a.Engine.RevokeKey(ctx, project, id, by); err != nil {
		return store.Key{}, err
	}
	keys, err := a.Engine.Keys(ctx, project)
	if err != nil {
		return store.Key{}, err
	}
	i := slices.IndexFunc(keys, func(k store.Key) bool { return k.ID == id })
	if i < 0 {
		return store.Key{}, store.ErrNotFound
	}
	return keys[i], nil
}
