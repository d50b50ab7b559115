package storetest

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Store is the store under test. The interface has the methods that the code of the suite calls.
// Transcripts call further methods by name. The interface is defined here because this package must not
// import packages that use it.
type Store interface {
	// Accept, stamp and commit.
	Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error)
	Stamp(ctx context.Context, s store.Stamp) ([]*store.Stamped, []store.Refusal, error)
	Commit(ctx context.Context, results []store.Result, now int64) ([]store.Committed, error)

	// Changes by callers.
	Cancel(ctx context.Context, project, id string, now int64, by store.Actor) (store.CanceledCallback, error)
	Retry(ctx context.Context, project, id string, r store.Retry, by store.Actor) (store.Callback, error)
	Reschedule(ctx context.Context, project, id string, due, now int64, by store.Actor) (store.Callback,
		error)
	AppendAudit(ctx context.Context, e store.AuditEntry) error
	ChainAudit(ctx context.Context, key func(context.Context) ([]byte, error)) (store.AuditLink, int, error)
	AuditHead(ctx context.Context) (store.AuditHead, error)
	ChainedAudit(ctx context.Context, after, until int64, limit int) ([]store.AuditEntry, error)

	// Maintenance.
	Purge(ctx context.Context, r store.Retention, limit int) (store.Purged, error)
	Fold(ctx context.Context, now int64) error

	// Lanes.
	Lanes(ctx context.Context, since int64, limit int) ([]store.Lane, error)
	PauseLane(ctx context.Context, project, key string, until int64, reason string, now int64,
		by store.Actor) (store.Lane, error)

	// Quotas.
	Replays(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error)

	// Projects.
	SetProjectPause(ctx context.Context, project string, until int64, reason string, now int64,
		by store.Actor) (store.Project, error)

	// Endpoints.
	CreateEndpoint(ctx context.Context, e store.Endpoint, by store.Actor) (store.Endpoint, error)
	UpsertEndpoints(ctx context.Context, project string, wants []store.EndpointUpsert, now int64,
		by store.Actor) ([]store.UpsertedEndpoint, error)
	PatchEndpoint(ctx context.Context, project, id string, change func(*store.Endpoint) error, now int64,
		by store.Actor) (store.Endpoint, error)
	DeleteEndpoint(ctx context.Context, project, id string, now int64, by store.Actor) (store.Endpoint, error)
	Endpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	AnyEndpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	Endpoints(ctx context.Context, project string, f store.EndpointFilter) ([]store.Endpoint, error)
	EndpointsChanged(ctx context.Context, since int64, limit int) ([]store.Endpoint, error)
	ReportHealth(ctx context.Context, reports []store.EndpointHealth, now int64) error

	// The feed and the reconciliation.
	Outcomes(ctx context.Context, project string, after store.OutcomeCursor,
		limit int) ([]store.TerminalEvent, store.OutcomeCursor, error)
	PurgeOutcomes(ctx context.Context, now, before int64, limit int) (removed int, more bool, err error)
	Compare(ctx context.Context, project string, from, to int64, refs []string, most int) (store.Comparison,
		error)

	// Reads of the API and the admin UI.
	Get(ctx context.Context, project, id string) (store.Callback, error)
	List(ctx context.Context, project string, f store.Filter) (store.Page, error)
	Attempts(ctx context.Context, project, id string, before, limit int) ([]store.Attempt, error)
	Payload(ctx context.Context, project, id string) (store.Payload, error)
	Counts(ctx context.Context, project string) (store.Counts, error)
	Audit(ctx context.Context, project string, f store.AuditFilter) (store.AuditPage, error)
	DueHours(ctx context.Context, project string, from, to int64) ([]store.DueHour, error)
	DeadGroups(ctx context.Context, project string) ([]store.DeadGroup, error)

	// Activity.
	AddActivity(ctx context.Context, rows []store.Activity) error
	LaneActivity(ctx context.Context, project string, lanes []int64, from int64) ([]store.Activity, error)

	// Events.
	PlanEvent(ctx context.Context, p store.EventPlan) (plan store.EventPlan, known bool, err error)

	// Polls.
	ResolvePoll(ctx context.Context, project, id string, data store.JSONText, now int64,
		by store.Actor) (store.ResolvedPoll, error)
	PollDetail(ctx context.Context, project, id string) (store.PollDetail, error)
	Spawned() <-chan store.OpenRow
	OverdueLanes(ctx context.Context, after store.Cursor, before, now int64) (store.OverduePage, error)
	OverdueLocked(
		ctx context.Context, after, end store.Cursor, now int64, lanes []int64, limit int,
	) ([]store.OpenRow, error)

	// Schedules.
	CreateSchedule(ctx context.Context, s store.Schedule, by store.Actor) (store.Schedule, error)
	ChangeSchedule(ctx context.Context, project, id string, change func(*store.Schedule) error, now int64,
		by store.Actor) (store.Schedule, error)
	Schedule(ctx context.Context, project, id string) (store.Schedule, error)
	ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error)

	RunSchedules(ctx context.Context, runs []store.PlannedRun) ([]store.PlannedRunResult, error)

	// Alerts.
	CreateAlert(ctx context.Context, a store.Alert, by store.Actor) (store.Alert, error)
	Alert(ctx context.Context, project, id string) (store.Alert, error)
	ChangeAlert(ctx context.Context, project, id string, change func(*store.Alert) error, now int64,
		by store.Actor) (a store.Alert, before store.Alert, err error)
	StepAlert(ctx context.Context, s store.AlertStep) (store.AlertStepResult, error)
	LiveFirings(ctx context.Context, project string, limit int) ([]store.AlertFiring, error)
	AlertFirings(ctx context.Context, project, id string, limit int) ([]store.AlertFiring, error)
	FiringsSince(ctx context.Context, project string, since int64, limit int) ([]store.AlertFiring, error)

	// Relay sources.
	HoldRelay(ctx context.Context, project, name string, h store.RelayHold, now int64) (store.RelaySource,
		error)
	RelaySource(ctx context.Context, project, name string) (store.RelaySource, error)
	RelaySources(ctx context.Context, project string) ([]store.RelaySource, error)
	ActOnRelay(ctx context.Context, project, name string, act store.RelayAct, now int64,
		by store.Actor) (store.RelaySource, error)
	ForgetRelay(ctx context.Context, project, name string, now int64, by store.Actor) (store.RelaySource,
		error)

	// Damage makes the policy of a callback undecodable, as a disk error would.
	Damage(ctx context.Context, id string) error
}
