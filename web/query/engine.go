package query

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Engine is the part of the engine that the API and the UI call. Ids have no prefix. An object that the
// project does not have is store.ErrNotFound. An id or name in use is store.ErrExists.
type Engine interface {
	// Now returns the time that decides what is due, in Unix milliseconds.
	Now() int64

	Cancel(ctx context.Context, project, id string, by store.Actor) (store.CanceledCallback, error)
	Retry(
		ctx context.Context, project, id string, r control.RetryRequest, by store.Actor,
	) (store.Callback, error)
	Reschedule(
		ctx context.Context, project, id string, due *int64, delay *time.Duration, by store.Actor,
	) (store.Callback, error)
	Edit(
		ctx context.Context, project, id string, r control.EditRequest, by store.Actor,
	) (store.Callback, error)
	// Explain says why a callback is not sent yet. Report returns its delivery report, with the latest most
	// attempts; at most control.MaxReport.
	Explain(ctx context.Context, project, id string) (control.Explanation, error)
	Report(ctx context.Context, project, id string, most int) (*control.Report, error)

	// Poll and ResolvePoll return store.ErrNotFound for a callback that is not a poll.
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
	// DeleteEndpoint returns the redrive that deletes an endpoint, or one without an ID if it is deleted.
	DeleteEndpoint(ctx context.Context, project, id string, by store.Actor) (store.Redrive, error)
	// PauseEndpoint, PauseLane and PauseProject pause sending until a time in Unix milliseconds; 0 resumes.
	PauseEndpoint(
		ctx context.Context, project, id string, until int64, by store.Actor,
	) (store.Endpoint, error)
	TestEndpoint(ctx context.Context, project, id string, by store.Actor) (store.Callback, error)

	// Lanes returns lanes sorted by key, each with its backlog and its state in the index.
	Lanes(ctx context.Context, project string, f store.LaneFilter) ([]control.LaneView, error)
	// SetLane sets the limits of a lane. Nil leaves a limit unchanged, zero removes it.
	SetLane(
		ctx context.Context, project, key string, limit *int, rate *store.Rate, by store.Actor,
	) (store.Lane, error)
	PauseLane(ctx context.Context, project, key string, until int64, by store.Actor) (store.Lane, error)
	PatchProject(
		ctx context.Context, id string, ch control.ProjectChange, by store.Actor,
	) (store.Project, error)
	PauseProject(ctx context.Context, project string, until int64, by store.Actor) (store.Project, error)
	// StopSending stops all sending of the installation until a time; 0 ends the stop. SendingStop returns
	// the stop; the zero value if there is none now.
	StopSending(ctx context.Context, until int64, by store.Actor) (store.Stop, error)
	SendingStop(ctx context.Context) (store.Stop, error)

	// RelaySources returns the project's outbox tables by name, without their refused rows. RelaySource
	// returns one with its newest refused rows.
	RelaySources(ctx context.Context, project string) ([]store.RelaySource, error)
	RelaySource(ctx context.Context, project, name string) (store.RelaySource, error)
	// ActOnRelay stores an act for the relay of a source, CancelRelayAct ends it. ForgetRelay deletes a
	// source that no relay holds.
	ActOnRelay(
		ctx context.Context, project, name string, act store.RelayAct, by store.Actor,
	) (store.RelaySource, error)
	CancelRelayAct(ctx context.Context, project, name string, by store.Actor) (store.RelaySource, error)
	ForgetRelay(ctx context.Context, project, name string, by store.Actor) (store.RelaySource, error)

	// CreateViewLink creates a link to the callbacks of an endpoint. RevokeViewLinks ends all links to them.
	CreateViewLink(
		ctx context.Context, project, endpoint string, r control.ViewLinkRequest, by store.Actor,
	) (control.NewViewLink, error)
	RevokeViewLinks(ctx context.Context, project, id string, by store.Actor) (store.Endpoint, error)

	// ReconcileDay repeats the reconciliation of a day. ExpectItems adds items to the list of a day.
	// RemoveExpected removes items from it, and ClearExpected deletes it.
	ReconcileDay(ctx context.Context, project, day string, by store.Actor) (store.ReconcileReport, error)
	ExpectItems(ctx context.Context, project, day string, items []store.RefTopic, by store.Actor,
	) (store.ExpectedDay, error)
	RemoveExpected(ctx context.Context, project, day string, items []store.RefTopic, by store.Actor,
	) (store.ExpectedDay, error)
	ClearExpected(ctx context.Context, project, day string, by store.Actor) (store.ExpectedDay, error)

	// CreateKey also returns the key's text. No other method returns it.
	CreateKey(
		ctx context.Context, project string, r control.KeyRequest, by store.Actor,
	) (store.Key, string, error)
	// Keys returns the keys of the project, newest first, including expired and revoked keys.
	Keys(ctx context.Context, project string) ([]store.Key, error)
	RevokeKey(ctx context.Context, project, id string, by store.Actor) error

	// RevealSecret returns a secret in the form that its receiver gets, and records the read in the audit
	// log.
	RevealSecret(
		ctx context.Context, project string, q control.SecretQuery, by store.Actor,
	) (secret.RevealedSecret, error)
	// RotateSecret generates or sets a new secret, and returns the time until which the old one also signs.
	// It does not return the project's root secret.
	RotateSecret(
		ctx context.Context, project string, q control.SecretQuery, r control.Rotation, by store.Actor,
	) (secret.RevealedSecret, int64, error)

	// Redrive starts a redrive. With DryRun it only counts the matching callbacks.
	Redrive(
		ctx context.Context, project string, q control.RedriveRequest, by store.Actor,
	) (store.Redrive, error)
	// SetRedrive pauses, resumes, approves (store.RedriveApproved) or cancels a redrive. A finished redrive
	// is store.ErrTerminal.
	SetRedrive(
		ctx context.Context, project, id string, to store.RedriveState, by store.Actor,
	) (store.Redrive, error)

	// Presets returns the policies, success rules and profiles of the project, and the built-in ones.
	Presets(ctx context.Context, project string) (control.Presets, error)

	Schedule(ctx context.Context, project, id string) (store.Schedule, error)
	Schedules(ctx context.Context, project string, f store.ScheduleFilter) ([]store.Schedule, error)
	// ScheduleRuns returns the stored runs of a schedule, newest first.
	ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error)
	CreateSchedule(
		ctx context.Context, project string, ch control.ScheduleChange, by store.Actor,
	) (store.Schedule, error)
	PatchSchedule(
		ctx context.Context, project, id string, ch control.ScheduleChange, by store.Actor,
	) (store.Schedule, error)
	DeleteSchedule(ctx context.Context, project, id string, by store.Actor) error
	RunSchedule(ctx context.Context, project, id string, by store.Actor) (store.Callback, error)

	Alert(ctx context.Context, project, id string) (alert.View, error)
	Alerts(ctx context.Context, project string, f store.AlertFilter) ([]alert.View, error)
	// AlertFirings returns the last firings of an alert, newest first.
	AlertFirings(ctx context.Context, project, id string) ([]store.AlertFiring, error)
	CreateAlert(ctx context.Context, project string, ch alert.Change, by store.Actor) (alert.View, error)
	PatchAlert(ctx context.Context, project, id string, ch alert.Change, by store.Actor) (alert.View, error)
	DeleteAlert(ctx context.Context, project, id string, by store.Actor) error
	// TestAlert sends a test message and returns its callback.
	TestAlert(ctx context.Context, project, id string, by store.Actor) (store.Callback, error)

	// Verify returns at most 100 ids of each difference.
	Verify(ctx context.Context) (index.Drift, error)
	Rebuild(ctx context.Context, dryRun bool, by store.Actor) (index.RebuildReport, error)
	// Stats returns the sizes of all shards together.
	Stats(ctx context.Context) (schedule.Stats, error)
}

// Store is the part of the database that the API and the UI read. Ids have no prefix. An object that the
// project does not have is store.ErrNotFound. A list continues after the object whose id is given; "" is the
// beginning.
type Store interface {
	Get(ctx context.Context, project, id string) (store.Callback, error)
	List(ctx context.Context, project string, f store.Filter) (store.Page, error)
	// Attempts returns a callback's attempts, newest first, with numbers below before. Zero: all.
	Attempts(ctx context.Context, project, id string, before, limit int) ([]store.Attempt, error)
	// Payload returns store.ErrPayloadPurged after retention has deleted the payload.
	Payload(ctx context.Context, project, id string) (store.Payload, error)
	Counts(ctx context.Context, project string) (store.Counts, error)
	// Audit and Redrives are sorted newest first, Projects by id.
	Audit(ctx context.Context, project string, f store.AuditFilter) (store.AuditPage, error)
	Redrive(ctx context.Context, project, id string) (store.Redrive, error)
	Redrives(ctx context.Context, project, after string, limit int) ([]store.Redrive, error)
	Project(ctx context.Context, id string) (store.Project, error)
	Projects(ctx context.Context, after string, limit int) ([]store.Project, error)
	// Deleted endpoints are not found, and are in no list.
	Endpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	EndpointByExternalID(ctx context.Context, project, externalID string) (store.Endpoint, error)
	Endpoints(ctx context.Context, project string, f store.EndpointFilter) ([]store.Endpoint, error)
	// Reconcile returns counts sorted by group. An unknown grouping is a *store.InvalidError.
	Reconcile(ctx context.Context, project string, q store.ReconcileQuery) ([]store.Reconciliation, error)
	// Compare returns at most most references that are not in the list.
	Compare(
		ctx context.Context, project string, from, to int64, refs []string, most int,
	) (store.Comparison, error)
	// CompareItems returns at most most items of each kind.
	CompareItems(
		ctx context.Context, project string, from, to int64, items []store.RefTopic, most int,
	) (store.ItemComparison, error)
	// ReconcileReports returns reports of days before one, the newest first; empty: of all days.
	ReconcileReports(
		ctx context.Context, project, before string, limit int,
	) ([]store.ReconcileReport, error)
	ReconcileReport(ctx context.Context, project, day string) (store.ReconcileReport, error)
	// ReconcileItems returns the items of a report with numbers above after; an empty kind: of all kinds.
	ReconcileItems(
		ctx context.Context, project, day string, kind store.ItemKind, after int64, limit int,
	) ([]store.ReconcileItem, error)
}

// FindKey returns the project's key with that id, even if it is expired or revoked.
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
