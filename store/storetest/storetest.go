// Package storetest is what any store must pass: a conformance suite with a model-based run.
//
// The suite checks behaviour through the methods that the engine and the faces use; it knows no SQL.
package storetest

import (
	"slices"
	"strings"
	"testing"
)

// Options say what Run runs.
type Options struct {
	// Groups are the names of tests, "Read/Pages", or what they begin with, "Read"; none: all.
	Groups []string
	// Histories is how many histories the model runs at most. The flag -rapid.checks, 100, bounds it, too.
	Histories int
}

// Concurrent are the tests that call the store from several goroutines.
var Concurrent = []string{
	"Accept/Concurrent", "Accept/ExpiredKey", "Activity/Many", "Audit/ChainCrowd", "Endpoint/ChangedInOrder",
	"Endpoint/Disable", "Endpoint/UpsertTogether", "Event/Crowd",
	"Lane/MadeMeanwhile", "Lane/QuotaCrowd", "Outcomes/Crowd", "Poll/LiveCrowd", "Poll/Reopened",
	"Redrive/Crowd", "Rest/Secrets", "Schedule/FireCrowd", "Schedule/Names", "Strict/Crowd", "Supersede/Crowd",
	"Upkeep/Lease",
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
		"Accept/Replays":            testReplays,
		"Accept/Concurrent":         testAcceptConcurrently,
		"Accept/ExpiredKey":         testExpiredKey,
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
		"Change/MendPart":           testMendPart,
		"Change/MendFollowing":      testMendFollowing,
		"Change/MendRefused":        testMendRefused,
		"Change/Audit":              testAudit,
		"Audit/Filters":             testAuditFilters,
		"Audit/Objects":             testAuditObjects,
		"Audit/Chain":               testAuditChain,
		"Audit/ChainCrowd":          testAuditChainCrowd,
		"Audit/Differences":         testAuditDifferences,
		"Walk/Pages":                testWalks,
		"Walk/Until":                testOpenUntil,
		"Walk/Marks":                testMarks,
		"Walk/Expire":               testExpire,
		"Walk/DropClaims":           testDropClaims,
		"Rest/Attempts":             testAttempts,
		"Rest/Search":               testSearch,
		"Upkeep/Lease":              testLease,
		"Upkeep/Meta":               testMeta,
		"Upkeep/Cursor":             testCursor,
		"Upkeep/Purge":              testPurge,
		"Upkeep/IdempotencyExpires": testIdempotencyExpires,
		"Upkeep/PassedKeysEnd":      testPassedKeysEnd,
		"Upkeep/AfterAClockAhead":   testPurgeAfterAClockAhead,
		"Rest/Secrets":              testSecrets,
		"Rest/OwnedSecrets":         testOwnedSecrets,
		"Rest/Reseal":               testReseal,
		"Lane/Settings":             testLaneSettings,
		"Lane/Changed":              testLanesChanged,
		"Lane/Of":                   testLaneOfEndpoint,
		"Lane/List":                 testLaneList,
		"Lane/Made":                 testLaneMadeInPause,
		"Lane/MadeMeanwhile":        testLanesMadeWhilePaused,
		"Lane/Quota":                testLaneQuota,
		"Lane/QuotaCrowd":           testLaneQuotaCrowd,
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
		"Outcomes/Readers":          testFeedReaders,
		"Redrive/Turns":             testRedriveTurns,
		"Redrive/Crowd":             testRedriveCrowd,
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
		"Read/OpenCallbacks":        testOpenCallbacks,
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
		"Dispatchers/LastWorker":    testLastWorker,
		"Explain/LockHolder":        testLockHolder,
		"Explain/Attempted":         testAttempted,
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
