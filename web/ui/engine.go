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

// Engine is the part of dispatch.Engine that the pages call. Ids have no prefix. The error for an object that
// the project does not have is store.ErrNotFound.
type Engine interface {
	query.Engine

	Health(ctx context.Context) dispatch.Health
	// ExplainAll says why callbacks, which were just read, are not sent yet, in their order.
	ExplainAll(
		ctx context.Context, project string, callbacks []store.Callback,
	) ([]control.Explanation, error)
	// AuthenticateHash returns the valid key whose text has this SHA-256 hash.
	AuthenticateHash(ctx context.Context, hash [sha256.Size]byte) (store.Key, error)

	// OpenViewLink returns the link of a merchant's token, also if it has ended. LinkedEndpoint returns its
	// endpoint. Their error is store.ErrNotFound for a text that is no token, and for a link that has ended.
	OpenViewLink(ctx context.Context, token string) (control.ViewLink, error)
	LinkedEndpoint(ctx context.Context, link *control.ViewLink) (store.Endpoint, error)

	// CountRedrive counts the callbacks that the redrive would change, up to q.Most. more is true if there
	// are more.
	CountRedrive(
		ctx context.Context, project string, q control.RedriveRequest,
	) (matched int64, more bool, err error)
	// HeldLanes returns the keys of lanes with open callbacks that are paused, have a paused or disabled
	// endpoint, or have an open breaker.
	HeldLanes(ctx context.Context, project string) ([]string, error)
	IndexStatus(ctx context.Context) (index.Status, error)
	// Dispatchers returns the processes that have sent a heartbeat recently.
	Dispatchers(ctx context.Context) ([]store.Dispatcher, error)
}

// Store is the part of the store that the pages use: reads and sessions. Ids have no prefix. The error for an
// object that the project does not have is store.ErrNotFound.
type Store interface {
	query.Store

	// Session returns store.ErrNotFound for a session that has expired at now (Unix milliseconds).
	Session(ctx context.Context, token string, now int64) (store.Session, error)
	CreateSession(ctx context.Context, s store.Session) error
	// UpdateSession returns store.ErrNotFound for a session that was deleted.
	UpdateSession(ctx context.Context, s store.Session) error
	DeleteSession(ctx context.Context, token string) error

	// Activity returns the activity of a lane (0: of all lanes) in spans that begin at or after from and
	// before to (Unix milliseconds).
	Activity(
		ctx context.Context, project string, lane int64, span store.Span, from, to int64,
	) ([]store.Activity, error)
	// LaneActivity returns the hourly activity of lanes in the hours that begin at or after from.
	LaneActivity(ctx context.Context, project string, lanes []int64, from int64) ([]store.Activity, error)
	DueNow(ctx context.Context, project string, now int64) (store.DueNow, error)
	// DueHours returns the hours in which callbacks are due.
	DueHours(ctx context.Context, project string, from, to int64) ([]store.DueHour, error)

	// OfRef returns up to limit callbacks of a reference and counts all of them: open ones first, then dead
	// ones, then the others, each newest first.
	OfRef(ctx context.Context, project, ref string, now int64, limit int) (store.RefPage, error)
	// DiedSince counts the callbacks that died at or after a time.
	DiedSince(ctx context.Context, project string, from int64) (store.Died, error)
	// DeadGroups returns the dead callbacks grouped by cause, the largest group first.
	DeadGroups(ctx context.Context, project string) ([]store.DeadGroup, error)
	Attempt(ctx context.Context, project, id string, number int) (store.Attempt, error)
	// AttemptsOf returns the last attempts of each callback, by callback and newest first.
	AttemptsOf(ctx context.Context, project string, ids []string, last int) ([]store.Attempt, error)
	// AuditOf returns the newest entries of several objects since a time, newest first.
	AuditOf(
		ctx context.Context, project string, objects []string, from int64, limit int,
	) ([]store.AuditEntry, error)
	// PollReports returns the reported outcomes of polls.
	PollReports(ctx context.Context, project string, ids []string) ([]store.PollReport, error)
	// AnyEndpoint also returns a deleted endpoint.
	AnyEndpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	// FindEndpoints returns the endpoints that exist, by their ids with the prefix.
	FindEndpoints(ctx context.Context, project string, names []string) (map[string]store.Endpoint, error)
	// Migrations returns the schema migrations of the database.
	Migrations(ctx context.Context) ([]Migration, error)
}
