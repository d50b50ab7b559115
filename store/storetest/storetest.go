// Package storetest is the conformance suite that every store must pass. It includes a model-based test.
//
// The suite checks behaviour through the methods that the engine, the API and the admin UI use. It contains
// no SQL.
package storetest

import (
	"slices"
	"strings"
	"testing"
)

// Options select the tests that Run runs.
type Options struct {
	// Groups are names of tests, such as "Read/Pages", or of groups, such as "Read". Empty: all tests.
	Groups []string
	// Crowds runs only the tests that call the store from several goroutines. Their names end in Crowd.
	Crowds bool
	// Histories is the largest number of histories of the model. The flag -rapid.checks (default 100) is
	// another limit.
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

// tests are the tests without a transcript: those with many rows, and those with several goroutines.
var tests = map[string]func(*fixture){
	"Accept/Order":           testAcceptOrder,
	"Accept/Crowd":           testAcceptCrowd,
	"Accept/ExpiredKeyCrowd": testExpiredKeyCrowd,
	"Accept/TraceContext":    testTraceContext,
	"Accept/Creator":         testCreator,
	"Event/Crowd":            testEventCrowd,
	"Audit/Chain":            testAuditChain,
	"Audit/ChainCrowd":       testAuditChainCrowd,
	"Lane/PauseCrowd":        testLanePauseCrowd,
	"Endpoint/UpsertCrowd":   testEndpointUpsertCrowd,
	"Endpoint/OrderCrowd":    testEndpointOrderCrowd,
	"Outcomes/Many":          testOutcomesMany,
	"Outcomes/Crowd":         testOutcomesCrowd,
	"Poll/LiveCrowd":         testPollLiveCrowd,
	"Poll/ReopenCrowd":       testPollReopenCrowd,
	"Schedule/NameCrowd":     testScheduleNameCrowd,
	"Schedule/RunCrowd":      testRunCrowd,
	"Schedule/Kept":          testRunsKept,
	"Alert/Steps":            testAlertSteps,
	"Alert/StepCrowd":        testAlertStepCrowd,
	"Alert/Kept":             testFiringsKept,
	"Relay/Report":           testRelayReport,
	"Relay/Crowd":            testRelayCrowd,
	"Relay/ManyCrowd":        testRelayMany,
	"Relay/NamesCrowd":       testRelayNamesCrowd,
	"Supersede/Crowd":        testSupersedeCrowd,
	"Strict/Crowd":           testStrictCrowd,
	"Reconcile/CompareMany":  testCompareMany,
	"Read/Counts":            testCounts,
	"Read/DeadGroupsMany":    testDeadGroupsMany,
	"Activity/Crowd":         testActivityCrowd,
	"Model":                  testModel,
}

// Run runs the suite, all tests in parallel. Each call of open must return an empty and migrated store, and
// close it when the test ends.
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
