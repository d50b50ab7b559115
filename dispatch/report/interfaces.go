package report

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is the part of SQL that this package uses. sqlstore.DB implements it.
type Store interface {
	// AddActivity adds the counts of rows to the stored ones. A call with at most activityPage rows is one
	// transaction.
	AddActivity(ctx context.Context, rows []store.Activity) error
	// SinkLanes returns up to limit lanes of endpoints that alerts send their messages to.
	SinkLanes(ctx context.Context, limit int) ([]int64, error)
	// FeedReaders returns, ordered by id, the first limit projects above after that have an endpoint which
	// subscribes to one of the topics, or a cursor whose name is prefix and the project's id.
	FeedReaders(
		ctx context.Context, prefix string, topics []string, after string, limit int,
	) ([]store.FeedReader, error)
	// SetFeedCursor stores the position of a reader of the feed; nil removes it.
	SetFeedCursor(ctx context.Context, name string, c *store.OutcomeCursor) error
	// TakeAlerts stores an event for endpoints that have failed since before failingBefore and had no event
	// after alertedBefore. It returns these endpoints.
	TakeAlerts(
		ctx context.Context, failingBefore, alertedBefore, now int64, limit int,
	) ([]store.Endpoint, error)
	// EndpointEvents returns the stored events of endpoints with ids above after.
	EndpointEvents(ctx context.Context, after string, limit int) ([]store.EndpointEvent, error)
	// RemoveEndpointEvents removes published events.
	RemoveEndpointEvents(ctx context.Context, ids []string) error
	// UnannouncedReports returns reconciliations that found something wrong and have no event yet.
	// MarkAnnounced records the event of a run.
	UnannouncedReports(ctx context.Context, limit int) ([]store.ReconcileReport, error)
	MarkAnnounced(ctx context.Context, runID string) error
	// DisableEndpoint disables an endpoint, and reports whether that changed it.
	DisableEndpoint(ctx context.Context, project, id, reason string, now int64, by store.Actor) (bool, error)
	// ReportHealth stores the health of endpoints.
	ReportHealth(ctx context.Context, reports []store.EndpointHealth, now int64) error
	// Outcomes returns at most limit outcomes of the project after the cursor, in order, and the next cursor.
	Outcomes(ctx context.Context, project string, after store.OutcomeCursor,
		limit int) ([]store.TerminalEvent, store.OutcomeCursor, error)
	// ReportDispatcher stores the heartbeat of a process, in place of its last one.
	ReportDispatcher(ctx context.Context, d store.Dispatcher) error
	// WithdrawDispatcher removes a process that ends. An unknown one is no error.
	WithdrawDispatcher(ctx context.Context, name string, now int64) error
	// Dispatchers returns the processes with a heartbeat at seenSince or later.
	Dispatchers(ctx context.Context, seenSince int64) ([]store.Dispatcher, error)
}
