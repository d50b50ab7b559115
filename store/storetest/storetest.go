// Package storetest is what any store must pass: a conformance suite with a model-based run.
//
// The suite checks behaviour through the methods that the engine and the faces use; it knows no SQL.
package storetest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Store is what the suite checks: what the engine needs, and what pages and the API read beside it.
type Store interface {
	dispatch.Store

	Secrets(ctx context.Context, project string, now int64) ([]store.Secret, error)
	Presets(ctx context.Context, project string, kind store.PresetKind) ([]store.Preset, error)
	UpsertEndpoint(ctx context.Context, project string, want store.EndpointUpsert, now int64, by store.Actor) (store.Endpoint, bool, error)
	Endpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	EndpointByExternalID(ctx context.Context, project, externalID string) (store.Endpoint, error)
	Endpoints(ctx context.Context, project string, f store.EndpointFilter) ([]store.Endpoint, error)
	Books(ctx context.Context, project string, q store.BooksQuery) ([]store.Books, error)
	Compare(ctx context.Context, project string, from, to int64, refs []string, most int) (store.Comparison, error)
	Counts(ctx context.Context, project string) (store.Counts, error)
	AuditEntries(ctx context.Context, project, after string, limit int) ([]store.AuditEntry, error)
	Audit(ctx context.Context, project string, f store.AuditFilter) (store.AuditPage, error)
	DueHours(ctx context.Context, project string, from, to int64) ([]store.DueHour, error)
	DueNow(ctx context.Context, project string, now int64) (store.DueNow, error)
	DeadGroups(ctx context.Context, project string) ([]store.DeadGroup, error)
	Activity(ctx context.Context, project string, lane int64, span store.Span, from, to int64) ([]store.Activity, error)
	LaneActivity(ctx context.Context, project string, lanes []int64, from int64) ([]store.Activity, error)
	Session(ctx context.Context, token string, now int64) (store.Session, error)
	PutSession(ctx context.Context, s store.Session) error
	DeleteSession(ctx context.Context, token string) error
	Redrives(ctx context.Context, project, after string, limit int) ([]store.Redrive, error)
	Schedules(ctx context.Context, project string, f store.ScheduleFilter) ([]store.Schedule, error)
	ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error)

	// Damage makes the policy of a callback undecodable, as a broken disk or a careless hand would.
	Damage(ctx context.Context, id string) error
}

// Options say what Run runs.
type Options struct {
	// Groups are the names of tests, "Read/Pages", or what they begin with, "Read"; none: all.
	Groups []string
	// Histories is how many histories the model runs at most. The flag -rapid.checks, 100, bounds it, too.
	Histories int
}

// Concurrent are the tests that call the store from several goroutines.
var Concurrent = []string{
	"Accept/Concurrent", "Activity/Many", "Endpoint/ChangedInOrder", "Endpoint/Disable", "Endpoint/UpsertTogether", "Event/Crowd",
	"Lane/MadeMeanwhile", "Outcomes/Crowd", "Poll/LiveCrowd", "Poll/Reopened", "Rest/Secrets", "Schedule/FireCrowd",
	"Schedule/Names", "Strict/Crowd", "Supersede/Crowd", "Upkeep/Lease",
}

func (o Options) has(name string) bool {
	return len(o.Groups) == 0 || slices.ContainsFunc(o.Groups, func(group string) bool {
		return name == group || strings.HasPrefix(name, group+"/")
	})
}

// Run runs the suite, each test in parallel. Each call of open returns an empty store, migrated, that is closed when its
// test ends.
func Run(t *testing.T, o Options, open func(t *testing.T) Store) {
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
		"Stamp/Crash":               testStampAfterCrash,
		"Stamp/Suspect":             testStampSuspect,
		"Stamp/Corrupt":             testStampCorrupt,
		"Commit/Reschedule":         testCommitReschedule,
		"Commit/Stale":              testCommitStale,
		"Commit/Replay":             testCommitReplay,
		"Commit/HandBack":           testCommitHandBack,
		"Commit/KeepCrashCount":     testCommitKeepsCrashCount,
		"Commit/UncleanText":        testCommitUncleanText,
		"Change/Cancel":             testCancel,
		"Change/CancelWaited":       testCancelWaited,
		"Change/CancelRef":          testCancelRef,
		"Change/RetryScheduled":     testRetryScheduled,
		"Change/RetryOnce":          testRetryOnce,
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
		if !o.has(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open(t))
			defer f.endOnPanic()
			f.histories = o.Histories
			test(f)
			f.checkCounters()
		})
	}
}
