// Package storetest is what any store must pass: a conformance suite with a model-based run, and a real PostgreSQL
// server for tests that need one.
//
// The suite checks behaviour through the methods that the engine and the faces use; it knows no SQL. The shapes are
// declared here again, because the package may not import its users.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Rows is the hot path.
type Rows interface {
	Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error)
	Stamp(ctx context.Context, s store.Stamp) ([]*store.Stamped, []store.Refusal, error)
	Commit(ctx context.Context, results []store.Result, now int64) ([]store.Committed, error)
}

// Changes is what people change.
type Changes interface {
	Cancel(ctx context.Context, project, id string, now int64, by store.Actor) (store.CanceledCallback, error)
	CancelRef(ctx context.Context, project, ref, topic string, limit int, now int64, by store.Actor) ([]store.CanceledCallback, error)
	Retry(ctx context.Context, project, id string, r store.Retry, by store.Actor) (store.Callback, error)
	Reschedule(ctx context.Context, project, id string, due, now int64, by store.Actor) (store.Callback, error)
	Mend(ctx context.Context, project, id string, change func(c *store.Callback) error, now int64, by store.Actor) (store.Callback, error)
	AppendAudit(ctx context.Context, e store.AuditEntry) error
}

// Walks reads the open rows.
type Walks interface {
	Overdue(ctx context.Context, after store.Cursor, dueBefore, claimedBefore int64, limit int) ([]store.OpenRow, error)
	Open(ctx context.Context, after store.Cursor, limit int) ([]store.OpenRow, error)
	Claimed(ctx context.Context, after store.Cursor, now int64, limit int) ([]store.OpenRow, error)
	ByID(ctx context.Context, ids []string) ([]store.OpenRow, error)
	Known(ctx context.Context, ids []string) ([]string, error)
	Expire(ctx context.Context, now int64, limit int) ([]store.OpenRow, error)
	DropClaims(ctx context.Context, now int64) (int, error)
}

// Horizon reads what comes within an index's horizon.
type Horizon interface {
	OpenUntil(ctx context.Context, after store.Cursor, until int64, limit int) ([]store.OpenRow, error)
}

// Metas is the one row of what the index must be.
type Metas interface {
	IndexMeta(ctx context.Context, want store.IndexMeta) (store.IndexMeta, error)
	NextGeneration(ctx context.Context, from int64) (int64, error)
	MarkBuilt(ctx context.Context, generation, now int64) error
}

// Upkeep is what maintenance needs.
type Upkeep interface {
	TryLease(ctx context.Context, name, holder string, now int64, ttl time.Duration) (bool, error)
	SweepCursor(ctx context.Context) (store.Cursor, error)
	SetSweepCursor(ctx context.Context, c store.Cursor) error
	Purge(ctx context.Context, payloadBefore, metadataBefore int64, limit int) (payloads, callbacks int, err error)
	Fold(ctx context.Context, now int64) error
}

// Rest is secrets and the probe.
type Rest interface {
	Secrets(ctx context.Context, project string, now int64) ([]store.Secret, error)
	OwnedSecrets(ctx context.Context, project, owner string, now int64) ([]store.Secret, error)
	AddSecret(ctx context.Context, s store.Secret, retireAt int64, onlyIfNone bool, by store.Actor) error
	Ping(ctx context.Context) error
}

// Lanes is the settings of lanes.
type Lanes interface {
	Lanes(ctx context.Context, since int64, limit int) ([]store.Lane, error)
	LaneByKey(ctx context.Context, project, key string) (store.Lane, error)
	LaneList(ctx context.Context, project string, f store.LaneFilter) ([]store.LaneBacklog, error)
	SetLane(ctx context.Context, project, key string, limit *int, rate *store.Rate, now int64, by store.Actor) (store.Lane, error)
	PauseLane(ctx context.Context, project, key string, until int64, reason string, now int64, by store.Actor) (store.Lane, error)
}

// Projects is projects and their presets.
type Projects interface {
	Projects(ctx context.Context, after string, limit int) ([]store.Project, error)
	Project(ctx context.Context, id string) (store.Project, error)
	ProjectsChanged(ctx context.Context, since int64, limit int) ([]store.Project, error)
	CreateProject(ctx context.Context, p store.Project, by store.Actor) (store.Project, error)
	PatchProject(ctx context.Context, p store.Project, by store.Actor) (store.Project, error)
	SetProjectPause(ctx context.Context, project string, until int64, reason string, now int64, by store.Actor) (store.Project, error)
}

// Presets is what projects have given names.
type Presets interface {
	Presets(ctx context.Context, project string, kind store.PresetKind) ([]store.Preset, error)
	AllPresets(ctx context.Context, project string) ([]store.Preset, error)
	PutPreset(ctx context.Context, p store.Preset, by store.Actor) (store.Preset, error)
	DeletePreset(ctx context.Context, project string, kind store.PresetKind, name string, now int64, by store.Actor) error
}

// Keys is API keys.
type Keys interface {
	Keys(ctx context.Context, project string) ([]store.Key, error)
	KeyByHash(ctx context.Context, hash []byte) (store.Key, error)
	AddKey(ctx context.Context, k store.Key, by store.Actor) error
	RevokeKey(ctx context.Context, project, id string, now int64, by store.Actor) error
	TouchKeys(ctx context.Context, used map[string]int64) error
}

// Endpoints is how endpoints are changed.
type Endpoints interface {
	CreateEndpoint(ctx context.Context, e store.Endpoint, by store.Actor) (store.Endpoint, error)
	UpsertEndpoint(ctx context.Context, project string, want store.EndpointUpsert, now int64, by store.Actor) (store.Endpoint, bool, error)
	UpsertEndpoints(ctx context.Context, project string, wants []store.EndpointUpsert, now int64, by store.Actor) ([]store.UpsertedEndpoint, error)
	PatchEndpoint(ctx context.Context, project, id string, change func(*store.Endpoint) error, now int64, by store.Actor) (store.Endpoint, error)
	DeleteEndpoint(ctx context.Context, project, id string, now int64, by store.Actor) (store.Endpoint, error)
	DisableEndpoint(ctx context.Context, project, id, reason string, now int64, by store.Actor) (bool, error)
}

// EndpointReads is how endpoints are found.
type EndpointReads interface {
	Endpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	EndpointByExternalID(ctx context.Context, project, externalID string) (store.Endpoint, error)
	FindEndpoints(ctx context.Context, project string, names []string) (map[string]store.Endpoint, error)
	Endpoints(ctx context.Context, project string, f store.EndpointFilter) ([]store.Endpoint, error)
	Subscribers(ctx context.Context, project, after string, limit int) ([]store.Endpoint, error)
	EndpointsByID(ctx context.Context, ids []string) ([]store.Endpoint, error)
	EndpointsChanged(ctx context.Context, since int64, limit int) ([]store.Endpoint, error)
}

// EndpointUpkeep is what the engine does for endpoints.
type EndpointUpkeep interface {
	ReportHealth(ctx context.Context, reports []store.EndpointHealth, now int64) ([]store.EndpointTurn, error)
	TakeAlerts(ctx context.Context, failingBefore, alertedBefore, now int64, limit int) ([]store.Endpoint, error)
	CancelDeleted(ctx context.Context, now int64, limit int) ([]store.OpenRow, error)
}

// Outcomes is the feed of what has ended, and the books.
type Outcomes interface {
	Outcomes(ctx context.Context, project string, after store.OutcomeCursor, limit int) ([]store.TerminalEvent, store.OutcomeCursor, error)
	PurgeOutcomes(ctx context.Context, before int64, limit int) (int, error)
	Books(ctx context.Context, project string, q store.BooksQuery) ([]store.Books, error)
	Compare(ctx context.Context, project string, from, to int64, refs []string, most int) (store.Comparison, error)
}

// Order is what strict callbacks need.
type Order interface {
	NextStrict(ctx context.Context, project, lockKey string) (*store.OpenRow, error)
}

// Reads is what the faces show.
type Reads interface {
	Get(ctx context.Context, project, id string) (store.Callback, error)
	List(ctx context.Context, project string, f store.Filter) (store.Page, error)
	Attempts(ctx context.Context, project, id string) ([]store.Attempt, error)
	Payload(ctx context.Context, project, id string) (store.Payload, error)
	Counts(ctx context.Context, project string) (store.Counts, error)
	AuditEntries(ctx context.Context, project, after string, limit int) ([]store.AuditEntry, error)
}

// Audits is what was done by whom.
type Audits interface {
	Audit(ctx context.Context, project string, f store.AuditFilter) (store.AuditPage, error)
}

// Due is what pages show of what is due, and of what died.
type Due interface {
	DueHours(ctx context.Context, project string, from, to int64) ([]store.DueHour, error)
	DueNow(ctx context.Context, project string, now int64) (store.DueNow, error)
	DeadGroups(ctx context.Context, project string) ([]store.DeadGroup, error)
}

// Activities is what happened when.
type Activities interface {
	AddActivity(ctx context.Context, rows []store.Activity) error
	Activity(ctx context.Context, project string, lane int64, span store.Span, from, to int64) ([]store.Activity, error)
	LaneActivity(ctx context.Context, project string, lanes []int64, from int64) ([]store.Activity, error)
	PurgeActivity(ctx context.Context, now int64, limit int) (int, error)
}

// Dispatchers is the processes that run.
type Dispatchers interface {
	ReportDispatcher(ctx context.Context, d store.Dispatcher) error
	WithdrawDispatcher(ctx context.Context, name string) error
	Dispatchers(ctx context.Context, seenSince int64) ([]store.Dispatcher, error)
	PurgeDispatchers(ctx context.Context, now int64, limit int) (int, error)
}

// Sessions is the browsers that have signed in.
type Sessions interface {
	Session(ctx context.Context, token string, now int64) (store.Session, error)
	PutSession(ctx context.Context, s store.Session) error
	DeleteSession(ctx context.Context, token string) error
	PurgeSessions(ctx context.Context, now int64, limit int) (int, error)
}

// A Store is all that the suite checks.
type Store interface {
	Rows
	Changes
	Walks
	Horizon
	Metas
	Upkeep
	Rest
	Lanes
	Projects
	Presets
	Keys
	Endpoints
	EndpointReads
	EndpointUpkeep
	Order
	Outcomes
	Redrives
	Events
	Polls
	Schedules
	Firings
	Reads
	Audits
	Due
	Activities
	Dispatchers
	Sessions
	// Damage makes the policy of a callback undecodable, as a broken disk or a careless hand would.
	Damage(ctx context.Context, id string) error
}

// Run runs the suite. Each call of open returns an empty store, migrated, that is closed when its test ends.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	for name, test := range map[string]func(*fixture){
		"Accept/Row":                testAcceptRow,
		"Accept/Bytes":              testAcceptBytes,
		"Accept/Order":              testAcceptAnswersInPlace,
		"Accept/BadRow":             testAcceptBadRow,
		"Accept/Idempotency":        testIdempotency,
		"Accept/Concurrent":         testAcceptConcurrently,
		"Accept/SharedPayload":      testSharedPayload,
		"Event/Plan":                testEventPlan,
		"Event/Crowd":               testEventCrowd,
		"Event/Ends":                testEventEnds,
		"Stamp/Claims":              testStamp,
		"Stamp/Refuses":             testStampRefuses,
		"Stamp/Lead":                testStampLead,
		"Stamp/SameToken":           testStampSameToken,
		"Stamp/Crash":               testStampAfterCrash,
		"Stamp/Suspect":             testStampSuspect,
		"Stamp/Corrupt":             testStampCorrupt,
		"Commit/Reschedule":         testCommitReschedule,
		"Commit/Terminal":           testCommitTerminal,
		"Commit/Stale":              testCommitStale,
		"Commit/Replay":             testCommitReplay,
		"Commit/HandBack":           testCommitHandBack,
		"Commit/KeepCrashCount":     testCommitKeepsCrashCount,
		"Commit/UncleanText":        testCommitUncleanText,
		"Change/Cancel":             testCancel,
		"Change/CancelWaited":       testCancelWaited,
		"Change/CancelAttempting":   testCancelAttempting,
		"Change/CancelCrashed":      testCancelCrashed,
		"Change/CancelRef":          testCancelRef,
		"Change/RetryScheduled":     testRetryScheduled,
		"Change/RetryOnce":          testRetryOnce,
		"Change/RetryRestart":       testRetryRestart,
		"Change/RetryRefused":       testRetryRefused,
		"Change/Reschedule":         testReschedule,
		"Change/MendCrashed":        testMendCrashed,
		"Change/Mend":               testMend,
		"Change/MendFollowing":      testMendFollowing,
		"Change/MendRefused":        testMendRefused,
		"Change/Audit":              testAudit,
		"Audit/Filters":             testAuditFilters,
		"Audit/Objects":             testAuditObjects,
		"Walk/Pages":                testWalks,
		"Walk/Until":                testOpenUntil,
		"Walk/Moving":               testOpenUntilWhileRowsMove,
		"Walk/Claimed":              testClaimedWalk,
		"Walk/Expire":               testExpire,
		"Walk/DropClaims":           testDropClaims,
		"Upkeep/Lease":              testLease,
		"Upkeep/Meta":               testMeta,
		"Upkeep/Cursor":             testCursor,
		"Upkeep/Purge":              testPurge,
		"Upkeep/IdempotencyExpires": testIdempotencyExpires,
		"Rest/Secrets":              testSecrets,
		"Rest/OwnedSecrets":         testOwnedSecrets,
		"Lane/Settings":             testLaneSettings,
		"Lane/Changed":              testLanesChanged,
		"Lane/Of":                   testLaneOfEndpoint,
		"Lane/List":                 testLaneList,
		"Lane/Made":                 testLaneMadeInPause,
		"Lane/MadeMeanwhile":        testLanesMadeWhilePaused,
		"Project/Change":            testProjectChange,
		"Project/Pause":             testProjectPause,
		"Project/Presets":           testPresets,
		"Project/Keys":              testKeys,
		"Endpoint/Create":           testEndpointCreate,
		"Endpoint/Patch":            testEndpointPatch,
		"Endpoint/Upsert":           testEndpointUpsert,
		"Endpoint/UpsertTogether":   testEndpointUpsertTogether,
		"Endpoint/Find":             testEndpointFind,
		"Endpoint/Changed":          testEndpointsChanged,
		"Endpoint/ChangedInOrder":   testChangesInOrder,
		"Endpoint/Disable":          testEndpointDisable,
		"Endpoint/Delete":           testEndpointDelete,
		"Endpoint/DeleteLate":       testEndpointDeleteLate,
		"Endpoint/Health":           testEndpointHealth,
		"Endpoint/Follows":          testFollows,
		"Redrive/Once":              testRedriveOnce,
		"Redrive/Actions":           testRedriveActions,
		"Redrive/Superseded":        testRedriveSuperseded,
		"Poll/Ends":                 testPollEnds,
		"Poll/Tells":                testPollTells,
		"Poll/TellsNews":            testPollTellsNews,
		"Poll/ResolveDead":          testResolveDead,
		"Poll/ResultStays":          testPollResultStays,
		"Poll/StaleAnswer":          testPollStaleAnswer,
		"Poll/Stays":                testPollStays,
		"Poll/Resolve":              testResolvePoll,
		"Poll/Live":                 testPollLive,
		"Poll/LiveCrowd":            testPollLiveCrowd,
		"Poll/Reopened":             testPollReopened,
		"Poll/Idempotency":          testPollIdempotency,
		"Poll/Result":               testPollResult,
		"Poll/Purge":                testPollPurge,
		"Schedule/Change":           testScheduleChange,
		"Schedule/List":             testScheduleList,
		"Schedule/Names":            testScheduleNames,
		"Schedule/Fire":             testFire,
		"Schedule/FireCrowd":        testFireCrowd,
		"Schedule/Runs":             testScheduleRuns,
		"Supersede/Older":           testSupersede,
		"Supersede/Crash":           testSupersedeCrash,
		"Supersede/Late":            testSupersedeLate,
		"Supersede/Crowd":           testSupersedeCrowd,
		"Strict/Stamp":              testStrictStamp,
		"Strict/Next":               testStrictNext,
		"Strict/Crowd":              testStrictCrowd,
		"Rest/Ping":                 testPing,
		"Outcomes/Feed":             testOutcomes,
		"Outcomes/Clock":            testOutcomesClock,
		"Outcomes/Crowd":            testOutcomesCrowd,
		"Books/Groups":              testBooks,
		"Books/Days":                testBooksDays,
		"Books/Compare":             testCompare,
		"Read/Projects":             testProjects,
		"Read/Filters":              testFilters,
		"Read/Pages":                testPages,
		"Read/Counts":               testCounts,
		"Read/DueHours":             testDueHours,
		"Read/DueNow":               testDueNow,
		"Read/DueNowMany":           testDueNowMany,
		"Read/DeadGroups":           testDeadGroups,
		"Read/DeadGroupsMany":       testDeadGroupsMany,
		"Activity/Add":              testActivityAdd,
		"Activity/Many":             testActivityMany,
		"Activity/Purge":            testActivityPurge,
		"Dispatchers/Report":        testDispatchers,
		"Dispatchers/Many":          testDispatchersMany,
		"Sessions/Life":             testSessions,
		"Model":                     testModel,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open(t))
			test(f)
			f.checkCounters()
		})
	}
}
