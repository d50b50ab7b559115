package accept

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is what this package needs of SQL. sqlstore.DB satisfies it.
type Store interface {
	// Project returns store.ErrNotFound for one that does not exist.
	Project(ctx context.Context, id string) (store.Project, error)
	AllPresets(ctx context.Context, project string) ([]store.Preset, error)
	// FindEndpoints returns, by the name that was asked for, the endpoints that have it as their id (with its
	// prefix) or as their external id.
	FindEndpoints(ctx context.Context, project string, names []string) (map[string]store.Endpoint, error)
	// EndpointsByID returns those that exist, deleted ones included, of whatever project.
	EndpointsByID(ctx context.Context, ids []string) ([]store.Endpoint, error)
	// EndpointsChanged and ProjectsChanged return what has a version above since, at most limit, by version.
	EndpointsChanged(ctx context.Context, since int64, limit int) ([]store.Endpoint, error)
	ProjectsChanged(ctx context.Context, since int64, limit int) ([]store.Project, error)
	// Subscribers returns the project's endpoints that have topics and ids above after, by id, at most limit.
	Subscribers(ctx context.Context, project, after string, limit int) ([]store.Endpoint, error)
	// Accept commits the drafts in one transaction and answers each in its place. Its error is ErrUnavailable
	// or the context's: then none was accepted. The drafts must not be changed afterwards.
	Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error)
	// PlanEvent writes down what an event with an idempotency key becomes, and returns what stands then, and
	// whether it did before: ErrIdempotencyMismatch.
	PlanEvent(ctx context.Context, p store.EventPlan) (plan store.EventPlan, known bool, err error)
	// Spawned carries callbacks that the store has made by itself, the results of polls. One may be left out:
	// the sweep finds it.
	Spawned() <-chan store.OpenRow
	// OpenCallbacks returns how many open callbacks each of the projects has.
	OpenCallbacks(ctx context.Context, projects []string) (map[string]int64, error)
	// Replays answers the drafts that repeat what was accepted before as Accept would; the others have
	// store.ErrNotFound.
	Replays(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error)
	// EventPlanned says whether the project has a plan of an event with that route and key.
	EventPlanned(ctx context.Context, project, route, key string) (bool, error)
}
