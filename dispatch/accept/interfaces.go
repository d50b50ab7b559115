package accept

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is the part of SQL that this package uses. sqlstore.DB implements it.
type Store interface {
	// Project returns store.ErrNotFound for an unknown project.
	Project(ctx context.Context, id string) (store.Project, error)
	AllPresets(ctx context.Context, project string) ([]store.Preset, error)
	// FindEndpoints returns the endpoints whose id (with its prefix) or external id is in names, by that
	// name.
	FindEndpoints(ctx context.Context, project string, names []string) (map[string]store.Endpoint, error)
	// EndpointsByID returns the endpoints that exist, deleted ones included, of any project.
	EndpointsByID(ctx context.Context, ids []string) ([]store.Endpoint, error)
	// EndpointsChanged and ProjectsChanged return at most limit rows with versions above since, ordered by
	// version.
	EndpointsChanged(ctx context.Context, since int64, limit int) ([]store.Endpoint, error)
	ProjectsChanged(ctx context.Context, since int64, limit int) ([]store.Project, error)
	// Subscribers returns at most limit endpoints of the project that have topics and ids above after,
	// ordered by id.
	Subscribers(ctx context.Context, project, after string, limit int) ([]store.Endpoint, error)
	// Accept commits the drafts in one transaction and returns a result for each, in their order. Its error
	// is ErrUnavailable or the context's. Then no draft is known to be accepted, but all may be: the context
	// may have ended, or the connection broken, during the commit. The drafts must not be changed afterwards.
	Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error)
	// PlanEvent stores the plan of an event with an idempotency key. If a plan exists it returns that one and
	// known. Its error is ErrIdempotencyMismatch if the fingerprints differ.
	PlanEvent(ctx context.Context, p store.EventPlan) (plan store.EventPlan, known bool, err error)
	// Spawned delivers callbacks that the store created: the results of polls. It may drop some; the sweep
	// finds them.
	Spawned() <-chan store.OpenRow
	// OpenCallbacks counts the open callbacks of each project.
	OpenCallbacks(ctx context.Context, projects []string) (map[string]int64, error)
	// Replays returns the result of Accept for each draft that repeats an accepted one, and store.ErrNotFound
	// for the others.
	Replays(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error)
	// EventPlanned reports whether the project has a plan of an event with that route and key.
	EventPlanned(ctx context.Context, project, route, key string) (bool, error)
}
