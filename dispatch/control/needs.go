package control

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is what this package needs of SQL. sqlstore.DB satisfies it.
type Store interface {
	// PurgeActivity removes up to limit rows of spans that are not kept any more, and returns how many.
	PurgeActivity(ctx context.Context, now int64, limit int) (int, error)
	// ChainAudit gives entries that wait for it their places, and returns the last one and how many it has
	// given. key is asked for only if there are any.
	ChainAudit(ctx context.Context, key func(context.Context) ([]byte, error)) (store.AuditLink, int, error)
	AuditHead(ctx context.Context) (store.AuditHead, error)
	// ChainedAudit returns entries in the order of the chain: those above after, up to until, at most limit.
	ChainedAudit(ctx context.Context, after, until int64, limit int) ([]store.AuditEntry, error)
	// EndpointsByID returns those that exist, deleted ones included, of whatever project.
	EndpointsByID(ctx context.Context, ids []string) ([]store.Endpoint, error)
	CreateEndpoint(ctx context.Context, ep store.Endpoint, by store.Actor) (store.Endpoint, error)
	// UpsertEndpoints makes endpoints, or changes those of the same external id, and answers each in its
	// place.
	UpsertEndpoints(ctx context.Context, project string, wants []store.EndpointUpsert, now int64,
		by store.Actor) ([]store.UpsertedEndpoint, error)
	// PatchEndpoint changes one under its lock; an error of change is returned, and nothing is changed.
	// Change may be called more than once.
	PatchEndpoint(ctx context.Context, project, id string, change func(*store.Endpoint) error, now int64,
		by store.Actor) (store.Endpoint, error)
	DeleteEndpoint(ctx context.Context, project, id string, now int64, by store.Actor) (store.Endpoint, error)
	Keys(ctx context.Context, project string) ([]store.Key, error)
	AddKey(ctx context.Context, k store.Key, by store.Actor) error
	// RevokeKey is store.ErrNotFound for one that does not exist; one that is revoked stays so.
	RevokeKey(ctx context.Context, project, id string, now int64, by store.Actor) error
	// KeyByHash finds a key of whatever project; store.ErrNotFound.
	KeyByHash(ctx context.Context, hash []byte) (store.Key, error)
	// TouchKeys notes when keys were used.
	TouchKeys(ctx context.Context, used map[string]int64) error
	// SetLane bounds a lane: nil leaves a bound as it is, zero takes it away.
	SetLane(
		ctx context.Context, project, key string, limit *int, rate *store.Rate, now int64, by store.Actor,
	) (store.Lane, error)
	// PauseLane holds a lane until then; with 0 it is resumed.
	PauseLane(
		ctx context.Context, project, key string, until int64, reason string, now int64, by store.Actor,
	) (store.Lane, error)
	// LaneList returns lanes with what waits in them, by key.
	LaneList(ctx context.Context, project string, f store.LaneFilter) ([]store.LaneBacklog, error)
	// Cancel cancels by id; an unknown id is ErrNotFound.
	Cancel(ctx context.Context, project, id string, now int64, by store.Actor) (store.CanceledCallback, error)
	// CancelRef cancels the open ones of a reference, at most limit, optionally of one topic.
	CancelRef(ctx context.Context, project, ref, topic string, limit int, now int64,
		by store.Actor) ([]store.CanceledCallback, error)
	// Retry makes a callback due now: ErrNotFound, ErrAttempting, ErrPayloadPurged.
	Retry(ctx context.Context, project, id string, r store.Retry, by store.Actor) (store.Callback, error)
	// Reschedule moves one that is scheduled, or revives one that is dead with one more attempt at due (as
	// Retry, Once): ErrNotFound, ErrAttempting, ErrTerminal (succeeded or canceled), ErrPayloadPurged.
	Reschedule(ctx context.Context, project, id string, due, now int64, by store.Actor) (store.Callback,
		error)
	// Edit changes one that is scheduled or dead, under its lock; an error of change is returned, and nothing
	// is changed. ErrNotFound, ErrAttempting, ErrTerminal (succeeded or canceled), ErrPayloadPurged.
	Edit(ctx context.Context, project, id string, change func(*store.Callback) error, now int64,
		by store.Actor) (store.Callback, error)
	// AppendAudit records a mutation that has no row of its own.
	AppendAudit(ctx context.Context, e store.AuditEntry) error
	// Get returns a callback of the project; store.ErrNotFound.
	Get(ctx context.Context, project, id string) (store.Callback, error)
	// Attempts returns at most limit of a callback's attempts, those with the highest numbers below before,
	// newest first; before zero: from the last one on.
	Attempts(ctx context.Context, project, id string, before, limit int) ([]store.Attempt, error)
	// Payload returns a callback's body; store.ErrNotFound, store.ErrPayloadPurged.
	Payload(ctx context.Context, project, id string) (store.Payload, error)
	// NextStrict returns the first open callback in strict order of a lock key; nil: there is none.
	NextStrict(ctx context.Context, project, lockKey string) (*store.OpenRow, error)
	// LockHolder returns the callback of a lock key that is being attempted at now, and when it was claimed;
	// empty where no holder is known.
	LockHolder(ctx context.Context, project, lockKey string, now int64) (id string, since int64, err error)
	// Attempted is when the callback was last claimed, and when its last attempt ended; zero: never.
	Attempted(ctx context.Context, project, id string) (claimedAt, endedAt int64, err error)
	// ByID returns those of the ids that are open.
	ByID(ctx context.Context, ids []string) ([]store.OpenRow, error)
	// Purge removes, in transactions of bounded size, payloads of terminal callbacks, and whole callbacks
	// with all that is theirs, as the retention says.
	Purge(ctx context.Context, r store.Retention, limit int) (store.Purged, error)
	// PurgeKeys removes idempotency keys that have ended. PurgeVersions forgets the versions of references
	// that nothing was accepted for since before. Each looks at up to limit rows and says whether there may
	// be more.
	PurgeKeys(ctx context.Context, now int64, limit int) (removed int, more bool, err error)
	PurgeVersions(ctx context.Context, now, before int64, limit int) (removed int, more bool, err error)
	// Overstays returns since when the oldest row of each kind should be gone, in Unix milliseconds, by the
	// kinds of the metric dispatcher_purged_total. Kinds of which none should be are left out.
	Overstays(ctx context.Context, r store.Retention) (map[string]int64, error)
	// LaneByKey is store.ErrNotFound for a lane that nothing was ever accepted for.
	LaneByKey(ctx context.Context, project, key string) (store.Lane, error)
	// PurgeOutcomes removes up to limit rows of what came into the feed before that time. It returns how
	// many, and whether there may be more.
	PurgeOutcomes(ctx context.Context, now, before int64, limit int) (removed int, more bool, err error)
	// PollDetail is store.ErrNotFound for what is no poll of the project.
	PollDetail(ctx context.Context, project, id string) (store.PollDetail, error)
	// ResolvePoll ends an open poll from outside, whether it is being asked or not: store.ErrNotFound.
	ResolvePoll(ctx context.Context, project, id string, data store.JSONText, now int64,
		by store.Actor) (store.ResolvedPoll, error)
	// LastWorker is when a process with workers was last seen, also one that has ended; zero: there never was
	// one.
	LastWorker(ctx context.Context) (int64, error)
	// PurgeDispatchers removes up to limit processes that have not reported themselves for long, and returns
	// how many.
	PurgeDispatchers(ctx context.Context, now int64, limit int) (int, error)
	CreateProject(ctx context.Context, p store.Project, by store.Actor) (store.Project, error)
	// PatchProject has change set the name, the defaults and the quotas of the project as it is; change may
	// be called more than once.
	PatchProject(
		ctx context.Context, id string, change func(*store.Project) error, now int64, by store.Actor,
	) (store.Project, error)
	SetProjectPause(ctx context.Context, project string, until int64, reason string, now int64,
		by store.Actor) (store.Project, error)
	PutPreset(ctx context.Context, p store.Preset, by store.Actor) (store.Preset, error)
	DeletePreset(ctx context.Context, project string, kind store.PresetKind, name string, now int64,
		by store.Actor) error
	// PurgeSessions removes up to limit sessions that have ended, and returns how many.
	PurgeSessions(ctx context.Context, now int64, limit int) (int, error)
	// CreateRedrive returns store.ErrTooManyRedrives if the project has store.MaxOpenRedrives already.
	CreateRedrive(ctx context.Context, r store.Redrive, by store.Actor) (store.Redrive, error)
	// GatherRedrive writes down one more page of what its filter picks.
	GatherRedrive(ctx context.Context, project, id string, now int64) (store.Redrive, error)
	// StepRedrive does it to up to limit callbacks, in one transaction that forgets them.
	StepRedrive(ctx context.Context, id string, limit int, now int64) (store.RedriveStep, error)
	// SetRedrive pauses, resumes or cancels one: store.ErrNotFound, store.ErrTerminal.
	SetRedrive(ctx context.Context, project, id string, to store.RedriveState, now int64,
		by store.Actor) (store.Redrive, error)
	// RedrivesToDo returns, by project and id, the redrives that are neither paused nor ended, of the first
	// limit projects above after that have any.
	RedrivesToDo(ctx context.Context, after string, limit int) ([]store.Redrive, error)
	// List is for a redrive that is only tried.
	List(ctx context.Context, project string, f store.Filter) (store.Page, error)
	// CreateSchedule is store.ErrExists for a name that is taken, a *store.InvalidError for one schedule too
	// many.
	CreateSchedule(ctx context.Context, s store.Schedule, by store.Actor) (store.Schedule, error)
	// ChangeSchedule changes it under its lock; an error of change is returned, and nothing is changed.
	// change may be called again.
	ChangeSchedule(ctx context.Context, project, id string, change func(*store.Schedule) error, now int64,
		by store.Actor) (store.Schedule, error)
	DeleteSchedule(ctx context.Context, project, id string, now int64, by store.Actor) error
	Schedule(ctx context.Context, project, id string) (store.Schedule, error)
	Schedules(ctx context.Context, project string, f store.ScheduleFilter) ([]store.Schedule, error)
	ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error)
	// NextSchedules returns those of all projects that are due next, the earliest first: with their templates
	// only if they are due at now.
	NextSchedules(ctx context.Context, now int64, limit int) ([]store.Schedule, error)
	// RunSchedules makes each firing that nobody has made yet, with its callback, and answers each in its place.
	RunSchedules(ctx context.Context, firings []store.PlannedRun) ([]store.PlannedRunResult, error)
	// RanSchedule accepts a schedule's callback by hand.
	RanSchedule(ctx context.Context, project, id string, draft store.Draft, now int64,
		by store.Actor) (store.Accepted, error)
	// SealedKeys returns, of every table, one row for each master key that is used in it at now; with zero
	// also of what is not used any more.
	SealedKeys(ctx context.Context, now int64) ([]store.SealedRow, error)
	// CountSealed counts the rows of a table that a master key has sealed, up to most.
	CountSealed(ctx context.Context, table store.SealedTable, keyID string, most int) (int, error)
	// Reseal has change re-encrypt such rows, with ids above after, at most limit. A row that change refuses
	// stays as it was. change may be called more than once. What was changed is audited in the same
	// transaction.
	Reseal(ctx context.Context, table store.SealedTable, keyID, after string, limit int,
		change func(*store.SealedRow) error, now int64, by store.Actor) (store.SealedPage, error)
}

// Schedule is what this package needs of the index. redisq.Index and memq.Index satisfy it.
type Schedule interface {
	// Ensure adds what is absent to the delay set, and changes nothing that is present. It answers each item
	// in its place with where it was before the call (Absent: it was added now).
	Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error)
	Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error)
}
