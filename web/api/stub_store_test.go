package api_test

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// rows stands for the store: its method Redrive reads what the engine's makes.
type rows struct{ *engine }

func (r rows) Get(_ context.Context, project, id string) (store.Callback, error) {
	return found(r.engine, r.has.Callback, bareID, "Get", project, id)
}

func (r rows) List(_ context.Context, project string, f store.Filter) (store.Page, error) {
	return r.has.Page, r.note("List", project, f)
}

func (r rows) Attempts(_ context.Context, project, id string, before, limit int) ([]store.Attempt, error) {
	return r.has.Attempts, r.note("Attempts", project, id, before, limit)
}

func (r rows) Payload(_ context.Context, project, id string) (store.Payload, error) {
	return r.has.Payload, r.note("Payload", project, id)
}

func (r rows) Counts(_ context.Context, project string) (store.Counts, error) {
	return r.has.Counts, r.note("Counts", project)
}

func (r rows) AuditEntries(_ context.Context, project, after string, limit int) ([]store.AuditEntry, error) {
	return behind(r.has.Audit, after, limit, func(a store.AuditEntry) string { return a.ID }),
		r.note("AuditEntries", project, after, limit)
}

func (r rows) Redrive(_ context.Context, project, id string) (store.Redrive, error) {
	return found(r.engine, r.has.Redrive, bareRedrive, "Redrive", project, id)
}

func (r rows) Redrives(_ context.Context, project, after string, limit int) ([]store.Redrive, error) {
	redrives := three(r.has.Redrive, func(one *store.Redrive) *string { return &one.ID })
	return behind(redrives, after, limit, func(one store.Redrive) string { return one.ID }),
		r.note("Redrives", project, after, limit)
}

// Project knows the projects default and b.
func (r rows) Project(_ context.Context, id string) (store.Project, error) {
	err := r.note("Project", "-", id)
	if err == nil && id != store.DefaultProject && id != "b" {
		err = store.ErrNotFound
	}
	return store.Project{ID: id, CreatedAt: nowMS, UpdatedAt: nowMS}, err
}

func (r rows) Projects(_ context.Context, after string, limit int) ([]store.Project, error) {
	all := []store.Project{
		{ID: "b", CreatedAt: nowMS, UpdatedAt: nowMS}, {ID: store.DefaultProject, CreatedAt: nowMS, UpdatedAt: nowMS},
	}
	return behind(all, after, limit, func(p store.Project) string { return p.ID }),
		r.note("Projects", "-", after, limit)
}

func (r rows) Endpoint(_ context.Context, project, id string) (store.Endpoint, error) {
	return found(r.engine, r.has.Endpoint, bareEndpoint, "Endpoint", project, id)
}

func (r rows) EndpointByExternalID(_ context.Context, project, external string) (store.Endpoint, error) {
	return found(r.engine, r.has.Endpoint, r.has.Endpoint.ExternalID, "EndpointByExternalID", project, external)
}

func (r rows) Endpoints(_ context.Context, project string, f store.EndpointFilter) ([]store.Endpoint, error) {
	other := r.has.Endpoint
	other.ID = bareID
	return behind([]store.Endpoint{r.has.Endpoint, other}, f.After, f.Limit, func(ep store.Endpoint) string { return ep.ID }),
		r.note("Endpoints", project, f)
}

// Books has two groups, or one of everything.
func (r rows) Books(_ context.Context, project string, q store.BooksQuery) ([]store.Books, error) {
	books := []store.Books{r.has.Books}
	if q.GroupBy != "" {
		books = append(books, books[0])
		books[1].Group, books[1].Open = bareEndpoint, 3 // it does not balance
	}
	return books, r.note("Books", project, q)
}

func (r rows) Compare(
	_ context.Context, project string, from, to int64, refs []string, most int,
) (store.Comparison, error) {
	return store.Comparison{Matched: 2, Missing: []string{"o-3"}, Extra: []string{"o-8", "o-9"}, More: true},
		r.note("Compare", project, from, to, refs, most)
}
