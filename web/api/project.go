package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

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

// query.ListProjects is GET /v1/projects.
func (a *API) listProjects(ctx context.Context, c *gin.Context, who caller) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	limit, after := q.Page(query.ListProjects)
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	if after == nil {
		after = &store.Cursor{}
	}
	projects, err := a.seenProjects(ctx, who, after.ID, limit+1)
	if err != nil {
		return err
	}
	next := ""
	if len(projects) > limit {
		projects = projects[:limit]
		next = q.Cursors.Encode(query.ListProjects, store.Cursor{ID: projects[limit-1].ID})
	}
	now := a.Engine.Now()
	o := jsonObject{[]byte(`{"data":[`)}
	for i := range projects {
		o.element(i)
		o.project(&projects[i], now)
		o.close()
	}
	a.answer(c, http.StatusOK, appendNext(o.b, next))
	return nil
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

// getProject is GET /v1/projects/{id}.
func (a *API) getProject(ctx context.Context, c *gin.Context, who caller) error {
	id, err := projectParam(c, who)
	if err != nil {
		return err
	}
	return a.project(c, http.StatusOK)(a.Store.Project(ctx, id))
}

// createProject is POST /v1/projects: 201 with the project.
func (a *API) createProject(ctx context.Context, c *gin.Context, who caller) error {
	var d projectDecoder
	if err := readObject(c, false, &d.fields, func(key, raw []byte) bool {
		if string(key) == "id" {
			d.text("id", raw, &d.change.ID)
			return true
		}
		return d.member(key, raw)
	}); err != nil {
		return err
	}
	ch := d.done()
	return a.project(c, http.StatusCreated)(a.Engine.CreateProject(ctx, ch, who.By(ch.Reason)))
}

// patchProject is PATCH /v1/projects/{id}: null has a default be the program's again.
func (a *API) patchProject(ctx context.Context, c *gin.Context, who caller) error {
	id, err := projectParam(c, who)
	if err != nil {
		return err
	}
	d := projectDecoder{patch: true}
	if err := readObject(c, false, &d.fields, d.member); err != nil {
		return err
	}
	if d.quotas && !who.Root() {
		return fmt.Errorf("quotas: %w", rootOnly())
	}
	ch := d.done()
	return a.project(c, http.StatusOK)(a.Engine.PatchProject(ctx, id, ch, who.By(ch.Reason)))
}

// A projectDecoder decodes a project as a caller asks for it.
type projectDecoder struct {
	fields
	change control.ProjectChange
	// patch: null takes a default away. Otherwise it is not given.
	patch bool
	// quotas were given.
	quotas bool
}

// done returns what was decoded.
func (d *projectDecoder) done() control.ProjectChange {
	d.change.Invalid = d.invalid
	return d.change
}

// member decodes one field, and says whether there is such a field.
func (d *projectDecoder) member(key, raw []byte) bool {
	ch, name := &d.change, string(key)
	if isNull(raw) && d.patch {
		switch name {
		case "policy", "success", "signer":
			ch.Clear = append(ch.Clear, name)
			return true
		case "name":
			ch.Name = new(string)
			return true
		case "headers":
			ch.Headers = &[]store.Header{}
			return true
		case "header_hosts":
			ch.HeaderHosts = &[]string{}
			return true
		case "quotas":
			d.quotas, ch.Quotas = true, store.QuotaChange{OpenCallbacks: new(int64), Lanes: new(int64)}
			return true
		}
	}
	if d.choice(key, raw, &ch.Choice) {
		return true
	}
	switch name {
	case "name":
		d.line(name, raw, &ch.Name)
	case "headers":
		d.sentHeaders(raw, &ch.Headers)
	case "header_hosts":
		d.hosts(name, raw, &ch.HeaderHosts)
	case "quotas":
		d.quotas = true
		d.within(name, raw, d.quota)
	default:
		return d.reason(key, raw, &ch.Reason)
	}
	return true
}

// quota decodes one quota: null is none.
func (d *projectDecoder) quota(key, raw []byte) bool {
	var to **int64
	switch string(key) {
	case "open_callbacks":
		to = &d.change.Quotas.OpenCallbacks
	case "lanes":
		to = &d.change.Quotas.Lanes
	default:
		return false
	}
	if isNull(raw) {
		*to = new(int64)
	}
	d.integer(string(key), raw, to)
	return true
}

// project answers with a project.
func (a *API) project(c *gin.Context, status int) func(store.Project, error) error {
	return func(p store.Project, err error) error {
		if err != nil {
			return err
		}
		o := jsonObject{[]byte("{")}
		o.project(&p, a.Engine.Now())
		o.close()
		a.answer(c, status, o.b)
		return nil
	}
}

// project writes the members of a project. Defaults that are null are the program's.
func (o *jsonObject) project(p *store.Project, now int64) {
	o.str("id", p.ID)
	o.orNull("name", p.Name)
	o.policyChoice(&p.Defaults.Policy)
	o.success(&p.Defaults.Success)
	o.signer(p.Defaults.Signer)
	o.maskedHeaders(p.Defaults.Headers)
	o.texts("header_hosts", p.Defaults.HeaderHosts)
	o.open("quotas") // null: there is none
	o.intOrNull("open_callbacks", int(p.Quotas.OpenCallbacks))
	o.intOrNull("lanes", int(p.Quotas.Lanes))
	o.close()
	o.pause(p.PausedUntil, p.PauseReason, now)
	o.instant("created_at", p.CreatedAt)
	o.instant("updated_at", p.UpdatedAt)
}
