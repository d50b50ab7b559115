package ui

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Engine is what the pages ask of the engine. Ids are bare. An object that the project does not have is
// store.ErrNotFound.
type Engine interface {
	// Now is the clock that decides what is due, in Unix milliseconds.
	Now() int64
	Health(ctx context.Context) dispatch.Health
	// AuthenticateHash returns the valid key whose text has the SHA-256.
	AuthenticateHash(ctx context.Context, hash [sha256.Size]byte) (store.Key, error)

	// Explain says why a callback has not been sent yet, Evidence what the records say of it.
	Explain(ctx context.Context, project, id string) (control.Explanation, error)
	Evidence(ctx context.Context, project, id string) (string, error)
	Cancel(ctx context.Context, project, id string, by store.Actor) (store.CanceledCallback, error)
	Retry(ctx context.Context, project, id string, r control.RetryRequest, by store.Actor) (store.Callback, error)
	Reschedule(
		ctx context.Context, project, id string, due *int64, delay *time.Duration, by store.Actor,
	) (store.Callback, error)
	Mend(ctx context.Context, project, id string, r control.MendRequest, by store.Actor) (store.Callback, error)
	Poll(ctx context.Context, project, id string) (control.PollView, error)
	ResolvePoll(
		ctx context.Context, project, id string, r control.ResolveRequest, by store.Actor,
	) (store.ResolvedPoll, error)

	CreateEndpoint(
		ctx context.Context, project string, ch control.EndpointChange, by store.Actor,
	) (control.EndpointReceipt, error)
	PatchEndpoint(
		ctx context.Context, project, id string, ch control.EndpointChange, by store.Actor,
	) (store.Endpoint, error)
	DeleteEndpoint(ctx context.Context, project, id string, by store.Actor) error
	// PauseEndpoint, PauseLane and PauseProject pause until a moment in Unix milliseconds; 0 resumes.
	PauseEndpoint(ctx context.Context, project, id string, until int64, by store.Actor) (store.Endpoint, error)
	TestEndpoint(ctx context.Context, project, id string, by store.Actor) (store.Callback, error)
	RotateSecret(
		ctx context.Context, project string, q control.SecretQuery, r control.Rotation, by store.Actor,
	) (secret.ShownSecret, int64, error)
	RevealSecret(
		ctx context.Context, project string, q control.SecretQuery, by store.Actor,
	) (secret.ShownSecret, error)

	// Lanes returns lanes in the order of their keys, each with what waits in it and how it stands in the index.
	Lanes(ctx context.Context, project string, f store.LaneFilter) ([]control.LaneView, error)
	// SetLane bounds a lane: nil leaves a bound as it is, zero takes it away.
	SetLane(
		ctx context.Context, project, key string, limit *int, rate *store.Rate, by store.Actor,
	) (store.Lane, error)
	PauseLane(ctx context.Context, project, key string, until int64, by store.Actor) (store.Lane, error)
	PauseProject(ctx context.Context, project string, until int64, by store.Actor) (store.Project, error)

	Schedule(ctx context.Context, project, id string) (store.Schedule, error)
	Schedules(ctx context.Context, project string, f store.ScheduleFilter) ([]store.Schedule, error)
	// ScheduleRuns returns those that are kept of one schedule, newest first.
	ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error)
	CreateSchedule(
		ctx context.Context, project string, ch control.ScheduleChange, by store.Actor,
	) (store.Schedule, error)
	PatchSchedule(
		ctx context.Context, project, id string, ch control.ScheduleChange, by store.Actor,
	) (store.Schedule, error)
	DeleteSchedule(ctx context.Context, project, id string, by store.Actor) error
	RunSchedule(ctx context.Context, project, id string, by store.Actor) (store.Callback, error)

	Redrive(
		ctx context.Context, project string, q control.RedriveRequest, by store.Actor,
	) (store.Redrive, error)
	// CountRedrive counts what one would change, no further than q.Most.
	CountRedrive(
		ctx context.Context, project string, q control.RedriveRequest,
	) (matched int64, more bool, err error)
	// SetRedrive pauses, resumes or cancels one; store.ErrTerminal for one that has ended.
	SetRedrive(
		ctx context.Context, project, id string, to store.RedriveState, by store.Actor,
	) (store.Redrive, error)

	// Keys returns the project's, newest first, those that have ended too.
	Keys(ctx context.Context, project string) ([]store.Key, error)
	// CreateKey returns the key's text too, which nothing can show again.
	CreateKey(
		ctx context.Context, project string, r control.KeyRequest, by store.Actor,
	) (store.Key, string, error)
	RevokeKey(ctx context.Context, project, id string, by store.Actor) error

	// Stats are the sizes of all shards together.
	Stats(ctx context.Context) (schedule.Stats, error)
	IndexStatus(ctx context.Context) (index.Status, error)
	// Verify names at most 100 ids of each difference.
	Verify(ctx context.Context) (index.Drift, error)
	Rebuild(ctx context.Context, dryRun bool, by store.Actor) (index.RebuildReport, error)
	// Dispatchers are the processes that have reported themselves lately.
	Dispatchers(ctx context.Context) ([]store.Dispatcher, error)
}

// Store is what the pages read from the database, and where sessions are kept. Ids are bare. An object that the
// project does not have is store.ErrNotFound.
type Store interface {
	// Session does not find one that has ended at now.
	Session(ctx context.Context, token string, now int64) (store.Session, error)
	PutSession(ctx context.Context, s store.Session) error
	DeleteSession(ctx context.Context, token string) error

	Project(ctx context.Context, id string) (store.Project, error)
	// Projects returns those with ids above after, in the order of their ids.
	Projects(ctx context.Context, after string, limit int) ([]store.Project, error)

	// Activity returns what happened in a lane, or with 0 in all, in spans that begin from then on and before to.
	Activity(
		ctx context.Context, project string, lane int64, span store.Span, from, to int64,
	) ([]store.Activity, error)
	// LaneActivity returns what happened in lanes, by the hour, since then.
	LaneActivity(ctx context.Context, project string, lanes []int64, from int64) ([]store.Activity, error)
	DueNow(ctx context.Context, project string, now int64) (store.DueNow, error)
	// DueHours are the hours in which something is due.
	DueHours(ctx context.Context, project string, from, to int64) ([]store.DueHour, error)

	Get(ctx context.Context, project, id string) (store.Callback, error)
	List(ctx context.Context, project string, f store.Filter) (store.Page, error)
	Counts(ctx context.Context, project string) (store.Counts, error)
	// DeadGroups returns the causes by which callbacks are dead, the largest first.
	DeadGroups(ctx context.Context, project string) ([]store.DeadGroup, error)
	// Attempts returns a callback's attempts, newest first: those with numbers below before, or all for zero.
	Attempts(ctx context.Context, project, id string, before, limit int) ([]store.Attempt, error)
	Attempt(ctx context.Context, project, id string, number int) (store.Attempt, error)
	// Payload is store.ErrPayloadPurged where retention has ended.
	Payload(ctx context.Context, project, id string) (store.Payload, error)

	// Only AnyEndpoint finds one that was deleted.
	Endpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	AnyEndpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	EndpointByExternalID(ctx context.Context, project, externalID string) (store.Endpoint, error)
	Endpoints(ctx context.Context, project string, f store.EndpointFilter) ([]store.Endpoint, error)
	// FindEndpoints returns those that there are, by the ids with their prefix.
	FindEndpoints(ctx context.Context, project string, names []string) (map[string]store.Endpoint, error)

	Redrive(ctx context.Context, project, id string) (store.Redrive, error)
	// Redrives returns redrives newest first, those before the one named after; "" is the beginning.
	Redrives(ctx context.Context, project, after string, limit int) ([]store.Redrive, error)
	// Books are in the order of their groups. An unknown grouping is a *store.InvalidError.
	Books(ctx context.Context, project string, q store.BooksQuery) ([]store.Books, error)
	// Compare names at most that many references that are not in the list.
	Compare(
		ctx context.Context, project string, from, to int64, refs []string, most int,
	) (store.Comparison, error)
	Audit(ctx context.Context, project string, f store.AuditFilter) (store.AuditPage, error)
	// Migrations are the steps of the database's schema.
	Migrations(ctx context.Context) ([]Migration, error)
}
