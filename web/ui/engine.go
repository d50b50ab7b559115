package ui

import (
	"context"
	"crypto/sha256"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// Engine is what the pages ask of the engine. Ids are bare. An object that the project does not have is
// store.ErrNotFound.
type Engine interface {
	query.Engine

	Health(ctx context.Context) dispatch.Health
	// AuthenticateHash returns the valid key whose text has the SHA-256.
	AuthenticateHash(ctx context.Context, hash [sha256.Size]byte) (store.Key, error)

	// CountRedrive counts what one would change, no further than q.Most.
	CountRedrive(
		ctx context.Context, project string, q control.RedriveRequest,
	) (matched int64, more bool, err error)
	IndexStatus(ctx context.Context) (index.Status, error)
	// Dispatchers are the processes that have reported themselves lately.
	Dispatchers(ctx context.Context) ([]store.Dispatcher, error)
}

// Store is what the pages read from the database, and where sessions are kept. Ids are bare. An object that
// the project does not have is store.ErrNotFound.
type Store interface {
	query.Store

	// Session does not find one that has ended at now.
	Session(ctx context.Context, token string, now int64) (store.Session, error)
	PutSession(ctx context.Context, s store.Session) error
	DeleteSession(ctx context.Context, token string) error

	// Activity returns what happened in a lane, or with 0 in all, in spans that begin from then on and before
	// to.
	Activity(
		ctx context.Context, project string, lane int64, span store.Span, from, to int64,
	) ([]store.Activity, error)
	// LaneActivity returns what happened in lanes, by the hour, since then.
	LaneActivity(ctx context.Context, project string, lanes []int64, from int64) ([]store.Activity, error)
	DueNow(ctx context.Context, project string, now int64) (store.DueNow, error)
	// DueHours are the hours in which something is due.
	DueHours(ctx context.Context, project string, from, to int64) ([]store.DueHour, error)

	// DeadGroups returns the causes by which callbacks are dead, the largest first.
	DeadGroups(ctx context.Context, project string) ([]store.DeadGroup, error)
	Attempt(ctx context.Context, project, id string, number int) (store.Attempt, error)
	// AnyEndpoint also finds one that was deleted.
	AnyEndpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	// FindEndpoints returns those that there are, by the ids with their prefix.
	FindEndpoints(ctx context.Context, project string, names []string) (map[string]store.Endpoint, error)
	// Migrations are the steps of the database's schema.
	Migrations(ctx context.Context) ([]Migration, error)
}
