package control

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is the part of SQL that this package uses. sqlstore.DB implements it. Methods with an Actor record
// the change in the audit, in the same transaction.
type Store interface {
	// PurgeActivity removes up to limit expired rows of the activity, and returns how many.
	PurgeActivity(ctx context.Context, now int64, limit int) (int, error)
	// ChainAudit appends waiting entries to the hash chain. It returns the last link and the number of
	// entries. It calls key only if there are entries.
	ChainAudit(ctx context.Context, key func(context.Context) ([]byte, error)) (store.AuditLink, int, error)
	AuditHead(ctx context.Context) (store.AuditHead, error)
	// ChainedAudit returns at most limit entries with numbers above after and up to until, in the order of
	// the chain.
	ChainedAudit(ctx context.Context, after, until int64, limit int) ([]store.AuditEntry, error)
	// Endpoint returns store.ErrNotFound for an endpoint that was deleted.
	Endpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	// EndpointsByID returns the endpoints that exist, deleted ones included, of any project.
	EndpointsByID(ctx context.Context, ids []string) ([]store.Endpoint, error)
	CreateEndpoint(ctx context.Context, ep store.Endpoint, by store.Actor) (store.Endpoint, error)
	// UpsertEndpoints creates endpoints or changes those with the same external id. Results are in the order
	// of wants.
	UpsertEndpoints(ctx context.Context, project string, wants []store.EndpointUpsert, now int64,
		by store.Actor) ([]store.UpsertedEndpoint, error)
	// PatchEndpoint changes an endpoint under its row lock. If change returns an error, nothing changes and
	// that error is returned. change may be called more than once.
	PatchEndpoint(ctx context.Context, project, id string, change func(*store.Endpoint) error, now int64,
		by store.Actor) (store.Endpoint, error)
	DeleteEndpoint(ctx context.Context, project, id string, now int64, by store.Actor) (store.Endpoint, error)
	Keys(ctx context.Context, project string) ([]store.Key, error)
	AddKey(ctx context.Context, k store.Key, by store.Actor) error
	// RevokeKey returns store.ErrNotFound for an unknown key. Revoking a key again changes nothing.
	RevokeKey(ctx context.Context, project, id string, now int64, by store.Actor) error
	// KeyByHash finds a key of any project, or returns store.ErrNotFound.
	KeyByHash(ctx context.Context, hash []byte) (store.Key, error)
	// TouchKeys writes when keys were last used.
	TouchKeys(ctx context.Context, used map[string]int64) error
	// SetLane sets the limits of a lane: nil leaves a limit as it is, zero removes it.
	SetLane(
		ctx context.Context, project, key string, limit *int, rate *store.Rate, now int64, by store.Actor,
	) (store.Lane, error)
	// PauseLane pauses a lane until a time; 0 resumes it.
	PauseLane(
		ctx context.Context, project, key string, until int64, reason string, now int64, by store.Actor,
	) (store.Lane, error)
	// LaneList returns lanes with their backlog, sorted by key.
	LaneList(ctx context.Context, project string, f store.LaneFilter) ([]store.LaneBacklog, error)
	// HeldLanes returns the keys of up to limit lanes with open callbacks that are paused, have a paused or
	// disabled endpoint, or are among others.
	HeldLanes(ctx context.Context, project string, others []int64, now int64, limit int) ([]string, error)
	// Cancel cancels a callback, or returns ErrNotFound.
	Cancel(ctx context.Context, project, id string, now int64, by store.Actor) (store.CanceledCallback, error)
	// CancelRef cancels at most limit open callbacks of a reference. A topic that is not empty restricts them
	// to it.
	CancelRef(ctx context.Context, project, ref, topic string, limit int, now int64,
		by store.Actor) ([]store.CanceledCallback, error)
	// Retry makes a callback due now. Errors: ErrNotFound, ErrAttempting, ErrPayloadPurged,
	// ErrEndpointDeleted, ErrNewerVersion.
	Retry(ctx context.Context, project, id string, r store.Retry, by store.Actor) (store.Callback, error)
	// Reschedule moves a scheduled callback to due, or revives a dead one with one more attempt at due (as
	// Retry with Once). Errors: ErrNotFound, ErrAttempting, ErrTerminal (succeeded or canceled),
	// ErrPayloadPurged, ErrEndpointDeleted.
	Reschedule(
		ctx context.Context, project, id string, due, now int64, by store.Actor,
	) (store.Callback, error)
	// Edit changes a scheduled or dead callback under its row lock. If change returns an error, nothing
	// changes and that error is returned. Errors: ErrNotFound, ErrAttempting, ErrTerminal (succeeded or
	// canceled), ErrPayloadPurged, ErrEndpointDeleted.
	Edit(ctx context.Context, project, id string, change func(*store.Callback) error, now int64,
		by store.Actor) (store.Callback, error)
	// AppendAudit records an action that changes no row.
	AppendAudit(ctx context.Context, e store.AuditEntry) error
	// Get returns a callback of the project, or store.ErrNotFound.
	Get(ctx context.Context, project, id string) (store.Callback, error)
	// Attempts returns at most limit attempts of a callback with numbers below before, newest first. Zero:
	// from the last one.
	Attempts(ctx context.Context, project, id string, before, limit int) ([]store.Attempt, error)
	// Payload returns a callback's body. Errors: store.ErrNotFound, store.ErrPayloadPurged.
	Payload(ctx context.Context, project, id string) (store.Payload, error)
	// NextStrict returns the first open callback in strict order with the lock key, or nil.
	NextStrict(ctx context.Context, project, lockKey string) (*store.OpenRow, error)
	// LockHolder returns the callback with the lock key that is being attempted at now; zero: none is found.
	LockHolder(ctx context.Context, project, lockKey string, now int64) (store.LockHolder, error)
	// AttemptTimes returns the times of the attempts of callbacks, by id.
	AttemptTimes(ctx context.Context, project string, ids []string) ([]store.AttemptTimes, error)
	// ByID returns the open callbacks among ids.
	ByID(ctx context.Context, ids []string) ([]store.OpenRow, error)
	// Purge removes payloads of terminal callbacks, and whole callbacks with all their rows, whose retention
	// has ended. It uses transactions of bounded size.
	Purge(ctx context.Context, r store.Retention, limit int) (store.Purged, error)
	// PurgeKeys removes expired idempotency keys. PurgeVersions removes the version of each reference for
	// which no callback was accepted since before. Each examines up to limit rows and reports whether there
	// may be more.
	PurgeKeys(ctx context.Context, now int64, limit int) (removed int, more bool, err error)
	PurgeVersions(ctx context.Context, now, before int64, limit int) (removed int, more bool, err error)
	// Overstays returns, for each kind of the metric dispatcher_purged_total, since when its oldest row
	// should be gone, in Unix milliseconds. Kinds without an overdue row are left out.
	Overstays(ctx context.Context, r store.Retention) (map[string]int64, error)
	// LanesByKey returns the lanes with these keys that exist.
	LanesByKey(ctx context.Context, project string, keys []string) ([]store.Lane, error)
	// PurgeOutcomes removes up to limit outcomes that entered the feed before a time. It returns how many,
	// and whether there may be more.
	PurgeOutcomes(ctx context.Context, now, before int64, limit int) (removed int, more bool, err error)
	// PollDetail returns store.ErrNotFound for a callback that is no poll of the project.
	PollDetail(ctx context.Context, project, id string) (store.PollDetail, error)
	// ResolvePoll ends a poll by hand, also during an attempt; or it returns store.ErrNotFound.
	ResolvePoll(ctx context.Context, project, id string, data store.JSONText, now int64,
		by store.Actor) (store.ResolvedPoll, error)
	// OverdueLanes counts the callbacks of all projects that are due before a time and have no live claim at
	// now, by lane and by what they wait for. It scans a bounded number of rows after a position.
	OverdueLanes(ctx context.Context, after store.Cursor, before, now int64) (store.OverduePage, error)
	// OverdueLocked returns up to limit of the callbacks that OverdueLanes counted between two positions with
	// store.WaitsForLock in these lanes, the oldest first.
	OverdueLocked(ctx context.Context, after, end store.Cursor, now int64, lanes []int64, limit int,
	) ([]store.OpenRow, error)
	// OpenTiers counts the open callbacks of all projects by their position on the ladder.
	OpenTiers(ctx context.Context) (map[int]int64, error)
	// FailingEndpoints counts the endpoints of all projects whose last attempt failed, up to most.
	FailingEndpoints(ctx context.Context, most int) (int, error)
	// TryLease takes or renews the named lease for holder until now+ttl, and returns whether the holder has
	// it.
	TryLease(ctx context.Context, name, holder string, now int64, ttl time.Duration) (bool, error)
	// LastWorker returns when a process with workers was last seen, ended ones included; zero: never.
	LastWorker(ctx context.Context) (int64, error)
	// PurgeDispatchers removes up to limit processes whose last heartbeat is old, and returns how many.
	PurgeDispatchers(ctx context.Context, now int64, limit int) (int, error)
	CreateProject(ctx context.Context, p store.Project, by store.Actor) (store.Project, error)
	// PatchProject calls change with the project's row under its lock, and stores the name, the defaults and
	// the quotas. change may be called more than once.
	PatchProject(
		ctx context.Context, id string, change func(*store.Project) error, now int64, by store.Actor,
	) (store.Project, error)
	// Stop returns the stop of all sending. SetStop stops it until a time, and with zero ends the stop.
	Stop(ctx context.Context) (store.Stop, error)
	SetStop(ctx context.Context, until, now int64, by store.Actor) (store.Stop, error)
	SetProjectPause(ctx context.Context, project string, until int64, reason string, now int64,
		by store.Actor) (store.Project, error)
	// AddExpected adds items to the list of a day, which may have at most most items. A list that is too long
	// is a *store.InvalidError.
	AddExpected(ctx context.Context, project, day string, items []store.RefTopic, most,
		now int64, by store.Actor) (store.ExpectedDay, error)
	// RemoveExpected removes items from the list of a day, and ClearExpected deletes the list.
	RemoveExpected(ctx context.Context, project, day string, items []store.RefTopic, now int64,
		by store.Actor) (store.ExpectedDay, error)
	ClearExpected(ctx context.Context, project, day string, now int64,
		by store.Actor) (store.ExpectedDay, error)
	// DueReconciles returns at most limit projects whose daily reconciliation is due.
	DueReconciles(ctx context.Context, now int64, limit int) ([]store.Project, error)
	// RunReconcile stores the report of one day with at most most items of each kind.
	RunReconcile(ctx context.Context, run store.ReconcileRun, most int, now int64,
		by store.Actor) (store.ReconcileReport, error)
	// FailReconcile records why the run that is due at a time failed.
	FailReconcile(ctx context.Context, project string, due int64, why string) error
	PurgeReconciles(ctx context.Context, now, before int64, day string, limit int) (int, error)
	Project(ctx context.Context, id string) (store.Project, error)
	PutPreset(ctx context.Context, p store.Preset, by store.Actor) (store.Preset, error)
	DeletePreset(ctx context.Context, project string, kind store.PresetKind, name string, now int64,
		by store.Actor) error
	// PurgeSessions removes up to limit expired sessions, and returns how many.
	PurgeSessions(ctx context.Context, now int64, limit int) (int, error)
	// CreateRedrive returns store.ErrTooManyRedrives if the project has store.MaxOpenRedrives open ones.
	CreateRedrive(ctx context.Context, r store.Redrive, by store.Actor) (store.Redrive, error)
	// GatherRedrive records the ids of one more page of callbacks that the redrive's filter matches.
	GatherRedrive(ctx context.Context, project, id string, now int64) (store.Redrive, error)
	// StepRedrive applies the action to up to limit recorded callbacks, and removes their ids in the same
	// transaction.
	StepRedrive(ctx context.Context, id string, limit int, now int64) (store.RedriveStep, error)
	// ExpireRedrives cancels up to limit redrives whose approval did not come in time. It reports whether
	// others await theirs.
	ExpireRedrives(ctx context.Context, now int64, limit int) (awaiting bool, err error)
	// SetRedrive pauses, resumes, approves or cancels a redrive. Errors: store.ErrNotFound,
	// store.ErrTerminal, store.ErrAwaitingApproval, store.ErrNotAwaiting, store.ErrSecondPerson.
	SetRedrive(ctx context.Context, project, id string, to store.RedriveState, now int64,
		by store.Actor) (store.Redrive, error)
	// RedrivesToDo returns the redrives that are neither paused nor ended, ordered by project and id. It
	// covers the first limit projects above after that have any.
	RedrivesToDo(ctx context.Context, after string, limit int) ([]store.Redrive, error)
	// List returns a page of the callbacks that a filter matches: ended callbacks of a reference, and the
	// matches of a dry run.
	List(ctx context.Context, project string, f store.Filter) (store.Page, error)
	// CreateSchedule returns store.ErrExists for a name that is taken, and a *store.InvalidError if the
	// project has too many schedules.
	CreateSchedule(ctx context.Context, s store.Schedule, by store.Actor) (store.Schedule, error)
	// ChangeSchedule changes a schedule under its row lock. If change returns an error, nothing changes and
	// that error is returned. change may be called more than once.
	ChangeSchedule(ctx context.Context, project, id string, change func(*store.Schedule) error, now int64,
		by store.Actor) (store.Schedule, error)
	DeleteSchedule(ctx context.Context, project, id string, now int64, by store.Actor) error
	Schedule(ctx context.Context, project, id string) (store.Schedule, error)
	Schedules(ctx context.Context, project string, f store.ScheduleFilter) ([]store.Schedule, error)
	ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error)
	// NextSchedules returns the schedules of all projects that are due next, the earliest first. It reads
	// templates only of those that are due at now.
	NextSchedules(ctx context.Context, now int64, limit int) ([]store.Schedule, error)
	// RunSchedules commits each planned run that no other process has committed, with its callback, in one
	// transaction. Results are in the order of the runs.
	RunSchedules(ctx context.Context, runs []store.PlannedRun) ([]store.PlannedRunResult, error)
	// RunScheduleNow accepts a callback of a schedule that a person runs by hand.
	RunScheduleNow(ctx context.Context, project, id string, draft store.Draft, now int64,
		by store.Actor) (store.Accepted, error)
	// SealedKeys returns, for each table, one row for each master key that is in use at now. Zero includes
	// keys that only expired rows use.
	SealedKeys(ctx context.Context, now int64) ([]store.SealedRow, error)
	// CountSealed counts the rows of a table that a master key encrypted, up to most.
	CountSealed(ctx context.Context, table store.SealedTable, keyID string, most int) (int, error)
	// Reseal calls change to re-encrypt at most limit such rows with ids above after. A row for which change
	// fails stays as it was. change may be called more than once. The changes are audited in the same
	// transaction.
	Reseal(ctx context.Context, table store.SealedTable, keyID, after string, limit int,
		change func(*store.SealedRow) error, now int64, by store.Actor) (store.SealedPage, error)
	// HoldRelay takes or renews the lease of a relay source and stores its report. Errors:
	// store.ErrRelayHeld, store.ErrRelayOrigin, store.ErrTooManySources.
	HoldRelay(ctx context.Context, project, name string, h store.RelayHold, now int64) (store.RelaySource,
		error)
	RelaySources(ctx context.Context, project string) ([]store.RelaySource, error)
	RelaySource(ctx context.Context, project, name string) (store.RelaySource, error)
	// ActOnRelay returns store.ErrRelayActing while another act is not finished.
	ActOnRelay(ctx context.Context, project, name string, act store.RelayAct, now int64,
		by store.Actor) (store.RelaySource, error)
	// CancelRelayAct ends the open act of a source. Without one it changes nothing.
	CancelRelayAct(ctx context.Context, project, name string, now int64, by store.Actor) (store.RelaySource,
		error)
	// ForgetRelay returns store.ErrRelayHeld while a relay holds the source.
	ForgetRelay(ctx context.Context, project, name string, now int64, by store.Actor) (store.RelaySource,
		error)
}

// Schedule is the part of the index that this package uses. redisq.Index and memq.Index implement it.
type Schedule interface {
	// Ensure adds absent items to the delay set and changes no present one. It returns the place of each item
	// before the call, in the order of items (Absent: this call added it).
	Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error)
	Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error)
}
