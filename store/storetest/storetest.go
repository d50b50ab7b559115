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
	// Crowds leaves out all but the tests that call the store from several goroutines: their names end in
	// Crowd.
	Crowds bool
	// Histories is how many histories the model runs at most. The flag -rapid.checks, 100, bounds it, too.
	Histories int
}

func (o Options) has(name string) bool {
	if o.Crowds && !strings.HasSuffix(name, "Crowd") {
		return false
	}
	return len(o.Groups) == 0 || slices.ContainsFunc(o.Groups, func(group string) bool {
		return name == group || strings.HasPrefix(name, group+"/")
	})
}

// tests are those that are no transcripts: of many rows, and of several goroutines.
var tests = map[string]func(*fixture){
	"Accept/Order":           testAcceptAnswersInPlace,
	"Accept/Crowd":           testAcceptConcurrently,
	"Accept/ExpiredKeyCrowd": testExpiredKey,
	"Event/Crowd":            testEventCrowd,
	"Audit/Chain":            testAuditChain,
	"Audit/ChainCrowd":       testAuditChainCrowd,
	"Lane/PauseCrowd":        testLanesMadeWhilePaused,
	"Endpoint/UpsertCrowd":   testEndpointUpsertTogether,
	"Endpoint/OrderCrowd":    testChangesInOrder,
	"Outcomes/Many":          testOutcomesMany,
	"Outcomes/Crowd":         testOutcomesCrowd,
	"Poll/LiveCrowd":         testPollLiveCrowd,
	"Poll/ReopenCrowd":       testPollReopenCrowd,
	"Schedule/NameCrowd":     testScheduleNames,
	"Schedule/FireCrowd":     testFireCrowd,
	"Schedule/Kept":          testRunsKept,
	"Supersede/Crowd":        testSupersedeCrowd,
	"Strict/Crowd":           testStrictCrowd,
	"Reconcile/CompareMany":  testCompareMany,
	"Read/Counts":            testCounts,
	"Read/DeadGroupsMany":    testDeadGroupsMany,
	"Activity/Crowd":         testActivityMany,
	"Model":                  testModel,
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
