package sqlstore

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// listFilters are filters of lists by their names. Their From and To are places in what is listed.
func listFilters(t *testing.T) map[string]store.Filter {
	t.Helper()
	return testJSON[map[string]store.Filter](t, "lists")
}

// testJSON reads a file of test data.
func testJSON[V any](t *testing.T, name string) (v V) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// oddLabel is a label's value with signs that mean something in JSON.
const oddLabel = `"7", \ {x}`

// isPicked says what a filter means.
func isPicked(f *store.Filter, c *store.Callback) bool {
	state := c.StateAt(listNow)
	if f.ByDue && c.State != store.Scheduled || f.Overdue && (state != store.Scheduled || c.DueAt >= listNow) {
		return false
	}
	for key, value := range f.Labels {
		if got, ok := c.Labels[key]; !ok || got != value {
			return false
		}
	}
	is := func(want, got string) bool { return want == "" || want == got }
	return (len(f.States) == 0 || slices.Contains(f.States, state)) &&
		is(string(f.Kind), string(c.Kind)) && is(f.Topic, c.Topic) && is(f.Ref, c.Ref) && is(f.Lane, c.Lane) &&
		is(f.EndpointID, c.EndpointID) && is(f.LockKey, c.LockKey) && is(string(f.Reason), string(c.Reason)) &&
		is(string(f.Class), string(c.LastClass)) && (f.Status == 0 || f.Status == c.LastStatus) &&
		c.AttemptCount >= f.MinAttempts && c.CreatedAt >= f.From && (f.To == 0 || c.CreatedAt < f.To)
}

// indexOf is the index that a list is read by, newest first or by due time; empty: it may be any.
func indexOf(f store.Filter) string {
	dead := slices.Equal(f.States, []store.State{store.Dead})
	switch {
	case f.ByDue && f.Ref != "":
		return ""
	case f.ByDue:
		return "callbacks_due"
	case f.Ref != "":
		return "requests_ref"
	case f.LockKey != "":
		return "callbacks_lock"
	case f.EndpointID != "":
		return "requests_endpoint"
	case f.Kind == store.Poll:
		return "callbacks_polls"
	case dead && f.Lane != "":
		return "callbacks_dead_lane"
	case dead && f.Reason != "" && f.Class != "":
		return "callbacks_dead"
	case dead || slices.Equal(f.States, []store.State{store.Canceled}):
		return "callbacks_ended"
	}
	return "sqlite_autoindex_requests_1 (project=? AND "
}
