// Package storetest is what any store must pass: a conformance suite with a model-based run.
//
// The suite checks behaviour through the methods that the engine and the faces use; it knows no SQL.
package storetest

import (
	"path"
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

// groups are the tests, by group and name.
var groups = map[string]map[string]func(*fixture){
	"Accept": {
		"Row": testAcceptRow, "Bytes": testAcceptBytes, "Order": testAcceptAnswersInPlace,
		"BadRow": testAcceptBadRow, "Idempotency": testIdempotency, "Replays": testReplays,
		"Concurrent": testAcceptConcurrently, "ExpiredKey": testExpiredKey,
		"SharedPayload": testSharedPayload,
	},
	"Event": {"Plan": testEventPlan, "Crowd": testEventCrowd, "Ends": testEventEnds},
	"Stamp": {
		"Claims": testStamp, "Refuses": testStampRefuses, "Lead": testStampLead,
		"Crash": testStampAfterCrash, "Suspect": testStampSuspect, "Corrupt": testStampCorrupt,
	},
	"Commit": {
		"Reschedule": testCommitReschedule, "Stale": testCommitStale, "Replay": testCommitReplay,
		"HandBack": testCommitHandBack, "KeepCrashCount": testCommitKeepsCrashCount,
		"UncleanText": testCommitUncleanText,
	},
	"Change": {
		"Cancel": testCancel, "CancelWaited": testCancelWaited, "CancelRef": testCancelRef,
		"RetryScheduled": testRetryScheduled, "RetryOnce": testRetryOnce, "RetryRefused": testRetryRefused,
		"Reschedule": testReschedule, "MendCrashed": testMendCrashed, "Mend": testMend,
		"MendPart": testMendPart, "MendFollowing": testMendFollowing, "MendRefused": testMendRefused,
		"Audit": testAudit,
	},
	"Audit": {
		"Filters": testAuditFilters, "Objects": testAuditObjects, "Chain": testAuditChain,
		"ChainCrowd": testAuditChainCrowd, "Differences": testAuditDifferences,
	},
	"Walk": {
		"Pages": testWalks, "Until": testOpenUntil, "Marks": testMarks, "Expire": testExpire,
		"DropClaims": testDropClaims,
	},
	"Rest": {
		"Attempts": testAttempts, "Search": testSearch, "Secrets": testSecrets,
		"OwnedSecrets": testOwnedSecrets, "Reseal": testReseal, "Ping": testPing,
	},
	"Upkeep": {
		"Lease": testLease, "Meta": testMeta, "Cursor": testCursor, "Purge": testPurge,
		"IdempotencyExpires": testIdempotencyExpires, "PassedKeysEnd": testPassedKeysEnd,
		"AfterAClockAhead": testPurgeAfterAClockAhead,
	},
	"Lane": {
		"Settings": testLaneSettings, "Changed": testLanesChanged, "Of": testLaneOfEndpoint,
		"List": testLaneList, "Made": testLaneMadeInPause, "MadeMeanwhile": testLanesMadeWhilePaused,
		"Quota": testLaneQuota, "QuotaCrowd": testLaneQuotaCrowd,
	},
	"Project": {
		"Change": testProjectChange, "Pause": testProjectPause, "Presets": testPresets, "Keys": testKeys,
	},
	"Endpoint": {
		"Create": testEndpointCreate, "Patch": testEndpointPatch, "Upsert": testEndpointUpsert,
		"UpsertTogether": testEndpointUpsertTogether, "Find": testEndpointFind,
		"Changed": testEndpointsChanged, "ChangedInOrder": testChangesInOrder,
		"Disable": testEndpointDisable, "Delete": testEndpointDelete, "DeleteLate": testEndpointDeleteLate,
		"Health": testEndpointHealth, "Follows": testFollows,
	},
	"Redrive": {
		"Once": testRedriveOnce, "Actions": testRedriveActions, "Superseded": testRedriveSuperseded,
		"Turns": testRedriveTurns, "Crowd": testRedriveCrowd,
	},
	"Outcomes": {
		"Readers": testFeedReaders, "Feed": testOutcomes, "Clock": testOutcomesClock,
		"Crowd": testOutcomesCrowd,
	},
	"Poll": {
		"Ends": testPollEnds, "Tells": testPollTells, "TellsNews": testPollTellsNews,
		"ResolveDead": testResolveDead, "ResultStays": testPollResultStays,
		"StaleAnswer": testPollStaleAnswer, "Stays": testPollStays, "Resolve": testResolvePoll,
		"Live": testPollLive, "LiveCrowd": testPollLiveCrowd, "Reopened": testPollReopened,
		"Idempotency": testPollIdempotency, "Result": testPollResult,
	},
	"Schedule": {
		"Change": testScheduleChange, "List": testScheduleList, "Names": testScheduleNames, "Fire": testFire,
		"FireCrowd": testFireCrowd, "Runs": testScheduleRuns,
	},
	"Supersede": {
		"Older": testSupersede, "Crash": testSupersedeCrash, "Late": testSupersedeLate,
		"Crowd": testSupersedeCrowd,
	},
	"Strict": {"Stamp": testStrictStamp, "Next": testStrictNext, "Crowd": testStrictCrowd},
	"Books":  {"Groups": testBooks, "Days": testBooksDays, "Compare": testCompare},
	"Read": {
		"Projects": testProjects, "OpenCallbacks": testOpenCallbacks, "Counts": testCounts,
		"DueHours": testDueHours, "DueNow": testDueNow, "DueNowMany": testDueNowMany,
		"DeadGroups": testDeadGroups, "DeadGroupsMany": testDeadGroupsMany,
	},
	"Activity":    {"Add": testActivityAdd, "Many": testActivityMany, "Purge": testActivityPurge},
	"Dispatchers": {"Report": testDispatchers, "LastWorker": testLastWorker, "Many": testDispatchersMany},
	"Explain":     {"LockHolder": testLockHolder, "Attempted": testAttempted},
	"Sessions":    {"Life": testSessions},
	"Model":       {"": testModel},
}

// Run runs the suite, each test in parallel. Each call of open returns an empty store, migrated, that is
// closed when its test ends.
func Run(t *testing.T, o Options, open func(t *testing.T) Store) {
	t.Helper()
	for group, tests := range groups {
		for name, test := range tests {
			if name = path.Join(group, name); !o.has(name) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, open(t))
				defer f.reportPanic()
				f.histories = o.Histories
				test(f)
				f.checkCounters()
			})
		}
	}
}
