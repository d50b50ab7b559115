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
	"Endpoint/DisableCrowd", "Endpoint/UpsertTogether", "Event/Crowd",
	"Lane/MadeMeanwhile", "Lane/QuotaCrowd", "Outcomes/Crowd", "Poll/LiveCrowd", "Poll/ReopenCrowd",
	"Redrive/Crowd", "Rest/SecretsCrowd", "Schedule/FireCrowd", "Schedule/Names", "Strict/Crowd", "Supersede/Crowd",
	"Upkeep/LeaseCrowd",
}

func (o Options) has(name string) bool {
	return len(o.Groups) == 0 || slices.ContainsFunc(o.Groups, func(group string) bool {
		return name == group || strings.HasPrefix(name, group+"/")
	})
}

// tests are those that are no transcripts: of many rows, and of several goroutines.
var tests = map[string]func(*fixture){
	"Accept/Order":            testAcceptAnswersInPlace,
	"Accept/Concurrent":       testAcceptConcurrently,
	"Accept/ExpiredKey":       testExpiredKey,
	"Event/Crowd":             testEventCrowd,
	"Audit/Chain":             testAuditChain,
	"Audit/ChainCrowd":        testAuditChainCrowd,
	"Rest/SecretsCrowd":       testSecretsCrowd,
	"Upkeep/LeaseCrowd":       testLeaseCrowd,
	"Lane/MadeMeanwhile":      testLanesMadeWhilePaused,
	"Lane/QuotaCrowd":         testLaneQuotaCrowd,
	"Redrive/Crowd":           testRedriveCrowd,
	"Endpoint/UpsertTogether": testEndpointUpsertTogether,
	"Endpoint/ChangedInOrder": testChangesInOrder,
	"Endpoint/DisableCrowd":   testEndpointDisableCrowd,
	"Outcomes/Many":           testOutcomesMany,
	"Outcomes/Crowd":          testOutcomesCrowd,
	"Poll/LiveCrowd":          testPollLiveCrowd,
	"Poll/ReopenCrowd":        testPollReopenCrowd,
	"Schedule/Names":          testScheduleNames,
	"Schedule/FireCrowd":      testFireCrowd,
	"Schedule/Kept":           testRunsKept,
	"Supersede/Crowd":         testSupersedeCrowd,
	"Strict/Crowd":            testStrictCrowd,
	"Books/CompareMany":       testCompareMany,
	"Read/Counts":             testCounts,
	"Read/DeadGroupsMany":     testDeadGroupsMany,
	"Activity/Many":           testActivityMany,
	"Dispatchers/Many":        testDispatchersMany,
	"Model":                   testModel,
}

// Run runs the suite, each test in parallel. Each call of open returns an empty store, migrated, that is
// closed when its test ends.
func Run(t *testing.T, o Options, open func(t *testing.T) Store) {
	t.Helper()
	transcripts(t, o, open)
	for name, test := range tests {
		if !o.has(name) {
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
