package query

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Engine is what both faces ask of the engine. Ids are bare. An object that the project does not have is
// store.ErrNotFound, and a name or id that is taken is store.ErrExists.
type Engine interface {
	// Now is the clock that decides what is due, in Unix milliseconds.
	Now() int64

	Cancel(ctx context.Context, project, id string, by store.Actor) (store.CanceledCallback, error)
	Retry(ctx context.Context, project, id string, r control.RetryRequest, by store.Actor) (store.Callback,
		error)
	Reschedule(
		ctx context.Context, project, id string, due *int64, delay *time.Duration, by store.Actor,
	) (store.Callback, error)
	Edit(ctx context.Context, project, id string, r control.EditRequest, by store.Actor) (store.Callback,
		error)
	// Explain says why a callback has not been sent yet, Evidence what the records say of it.
	Explain(ctx context.Context, project, id string) (control.Explanation, error)
	Evidence(ctx context.Context, project, id string) (string, error)

	// Poll and ResolvePoll do not find a callback of another kind.
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
	PauseEndpoint(ctx context.Context, project, id string, until int64, by store.Actor) (store.Endpoint,
		error)
	TestEndpoint(ctx context.Context, project, id string, by store.Actor) (store.Callback, error)

	// Lanes returns lanes in the order of their keys, each with what waits in it and how it stands in the
	// index.
	Lanes(ctx context.Context, project string, f store.LaneFilter) ([]control.LaneView, error)
	// SetLane bounds a lane: nil leaves a bound as it is, zero takes it away.
	SetLane(
		ctx context.Context, project, key string, limit *int, rate *store.Rate, by store.Actor,
	) (store.Lane, error)
	PauseLane(ctx context.Context, project, key string, until int64, by store.Actor) (store.Lane, error)
	PauseProject(ctx context.Context, project string, until int64, by store.Actor) (store.Project, error)

	// CreateKey returns the key's text too, which nothing can show again.
	CreateKey(
		ctx context.Context, project string, r control.KeyRequest, by store.Actor,
	) (store.Key, string, error)
	// Keys returns the project's, newest first, those that have ended too.
	Keys(ctx context.Context, project string) ([]store.Key, error)
	RevokeKey(ctx context.Context, project, id string, by store.Actor) error

	// RevealSecret returns a secret as its receiver is given it, and audits that.
	RevealSecret(
		ctx context.Context, project string, q control.SecretQuery, by store.Actor,
	) (secret.RevealedSecret, error)
	// RotateSecret makes or takes a new secret, and says until when the old one signs beside it. Of the
	// project's root secret it shows nothing.
	RotateSecret(
		ctx context.Context, project string, q control.SecretQuery, r control.Rotation, by store.Actor,
	) (secret.RevealedSecret, int64, error)

	// Redrive begins one, or with DryRun counts what it would change.
	Redrive(
		ctx context.Context, project string, q control.RedriveRequest, by store.Actor,
	) (store.Redrive, error)
	// SetRedrive pauses, resumes or cancels one; store.ErrTerminal for one that has ended.
	SetRedrive(
		ctx context.Context, project, id string, to store.RedriveState, by store.Actor,
	) (store.Redrive, error)

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

	// Verify names at most 100 ids of each difference.
	Verify(ctx context.Context) (index.Drift, error)
	Rebuild(ctx context.Context, dryRun bool, by store.Actor) (index.RebuildReport, error)
	// Stats are the sizes of all shards together.
	Stats(ctx context.Context) (schedule.Stats, error)
}

// Store is what both faces read from the database. Ids are bare. An object that the project does not have is
// store.ErrNotFound. Lists continue after the object that is named; "" is the beginning.
type Store interface {
	Get(ctx context.Context, project, id string) (store.Callback, error)
	List(ctx context.Context, project string, f store.Filter) (store.Page, error)
	// Attempts returns a callback's attempts, newest first: those with numbers below before, or all for zero.
	Attempts(ctx context.Context, project, id string, before, limit int) ([]store.Attempt, error)
	// Payload is store.ErrPayloadPurged where retention has ended.
	Payload(ctx context.Context, project, id string) (store.Payload, error)
	Counts(ctx context.Context, project string) (store.Counts, error)
	// Audit and Redrives are newest first, Projects in the order of their ids.
	Audit(ctx context.Context, project string, f store.AuditFilter) (store.AuditPage, error)
	Redrive(ctx context.Context, project, id string) (store.Redrive, error)
	Redrives(ctx context.Context, project, after string, limit int) ([]store.Redrive, error)
	Project(ctx context.Context, id string) (store.Project, error)
	Projects(ctx context.Context, after string, limit int) ([]store.Project, error)
	// Deleted endpoints are not found, and in no list.
	Endpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	EndpointByExternalID(ctx context.Context, project, externalID string) (store.Endpoint, error)
	Endpoints(ctx context.Context, project string, f store.EndpointFilter) ([]store.Endpoint, error)
	// Reconcile are in the order of their groups. An unknown grouping is a *store.InvalidError.
	Reconcile(ctx context.Context, project string, q store.ReconcileQuery) ([]store.Reconciliation, error)
	// Compare names at most that many references that are not in the list.
	Compare(
		ctx context.Context, project string, from, to int64, refs []string, most int,
	) (store.Comparison, error)
}

// FindKey returns the project's key of that id, also one that has ended.
func FindKey(ctx context.Context, e Engine, project, id string) (store.Key, error) {
	keys, err := e.Keys(ctx, project)
	if err != nil {
		return store.Key{}, err
	}
	i := slices.IndexFunc(keys, func(k store.Key) bool { return k.ID == id })
	if i < 0 {
		return store.Key{}, store.ErrNotFound
	}
	return keys[i], nil
}
