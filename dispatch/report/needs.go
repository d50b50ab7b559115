package report

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is what this package needs of SQL. sqlstore.DB satisfies it.
type Store interface {
	// AddActivity adds what the rows count to what is there. After an error nobody knows of how many; of
	// activityPage it was all or none.
	AddActivity(ctx context.Context, rows []store.Activity) error
	// FeedReaders returns, by id, the first limit projects above after that have an endpoint which subscribes
	// to one of the operational topics, or a cursor of the name prefix and the project's id.
	FeedReaders(
		ctx context.Context, prefix string, topics []string, after string, limit int,
	) ([]store.FeedReader, error)
	// SetFeedCursor keeps how far a reader of the feed has come; nil forgets it.
	SetFeedCursor(ctx context.Context, name string, c *store.OutcomeCursor) error
	// TakeAlerts gives an event to endpoints that have failed since before failingBefore and had none after
	// alertedBefore, and returns them.
	TakeAlerts(ctx context.Context, failingBefore, alertedBefore, now int64, limit int) ([]store.Endpoint,
		error)
	// EndpointEvents returns what happened to endpoints and has yet to become an operational event, with ids
	// above after.
	EndpointEvents(ctx context.Context, after string, limit int) ([]store.EndpointEvent, error)
	// RemoveEndpointEvents removes what has become one.
	RemoveEndpointEvents(ctx context.Context, ids []string) error
	// DisableEndpoint stops sending to one, and says whether that is new.
	DisableEndpoint(ctx context.Context, project, id, reason string, now int64, by store.Actor) (bool, error)
	// ReportHealth keeps what attempts said of endpoints.
	ReportHealth(ctx context.Context, reports []store.EndpointHealth, now int64) error
	// Outcomes returns up to limit outcomes of the project after the cursor, in order, and where to go on.
	Outcomes(ctx context.Context, project string, after store.OutcomeCursor,
		limit int) ([]store.TerminalEvent, store.OutcomeCursor, error)
	// ReportDispatcher writes down how a process is now, in place of what it said before.
	ReportDispatcher(ctx context.Context, d store.Dispatcher) error
	// WithdrawDispatcher takes a process that ends off the list at now; one that is not known is as good.
	WithdrawDispatcher(ctx context.Context, name string, now int64) error
	// Dispatchers returns the processes that have reported themselves at that time or later.
	Dispatchers(ctx context.Context, seenSince int64) ([]store.Dispatcher, error)
}
