package api_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestOutcomesThroughTheEngine: a reader that starts anew from the cursor that it has kept sees each end once, in their order, also when
// one ends twice.
func TestOutcomesThroughTheEngine(t *testing.T) {
	t.Parallel()
	const n = 5
	to := &receiver{}
	to.shut.Store(true)
	f := newEngineFace(t, to)
	start := f.ask(t, 200, "GET", "/v1/outcomes", "")["next_cursor"].(string)
	ids := f.bury(t, n)
	cursor := start
	// read reads pages until want outcomes were seen; each page by a reader that knows no more than the cursor.
	read := func(want, limit int) (seen []map[string]any) {
		t.Helper()
		for deadline := time.Now().Add(60 * time.Second); len(seen) < want; {
			page := f.ask(t, 200, "GET", fmt.Sprintf("/v1/outcomes?wait=5s&limit=%d&cursor=%s", limit, cursor), "")
			cursor = page["next_cursor"].(string)
			for _, one := range page["data"].([]any) {
				seen = append(seen, one.(map[string]any))
			}
			if len(page["data"].([]any)) > limit {
				t.Errorf("a page of %d has %d", limit, len(page["data"].([]any)))
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d outcomes after 60 s, want %d", len(seen), want)
			}
		}
		return seen
	}
	idsOf := func(outcomes []map[string]any) (ids []string) {
		for _, o := range outcomes {
			ids = append(ids, o["id"].(string))
		}
		slices.Sort(ids)
		return ids
	}
	slices.Sort(ids)
	dead := read(n, 2)
	if got := idsOf(dead); !slices.Equal(got, ids) {
		t.Errorf("ended: %q, want %q", got, ids)
	}
	for _, o := range dead {
		if o["state"] != "dead" || o["reason"] != "exhausted" || o["topic"] != "payment" || o["attempt_count"] != 1.0 || o["last_class"] != "http_5xx" || o["last_status"] != 500.0 ||
			o["kind"] != "notify" || o["endpoint_id"] != nil || o["labels"].(map[string]any)["even"] == nil || o["at"] == nil {
			t.Errorf("an outcome: %v", o)
		}
	}
	before := cursor
	if page := f.ask(t, 200, "GET", "/v1/outcomes?cursor="+cursor, ""); len(page["data"].([]any)) != 0 || page["next_cursor"] != cursor {
		t.Errorf("nothing new: %v", page)
	}

	// A reader that waits is told of what ends meanwhile.
	to.shut.Store(false)
	f.ask(t, 202, "POST", "/v1/redrives", `{"action":"retry","filter":{"state":"dead"}}`)
	again := read(n, 3)
	if got := idsOf(again); !slices.Equal(got, ids) || again[0]["state"] != "succeeded" || again[0]["reason"] != nil || again[0]["attempt_count"] != 2.0 {
		t.Errorf("ended again: %q, the first %v", got, again[0])
	}
	last := cursor
	for from, want := range map[string]int{start: 2 * n, before: n, last: 0} {
		cursor = from
		if got := read(want, 4); len(got) != want || cursor != last && want > 0 {
			t.Errorf("%d outcomes from an earlier cursor, want %d", len(got), want)
		}
	}
	f.ask(t, 201, "POST", "/v1/projects", `{"id":"b"}`)
	if page := f.askAs(t, 200, "GET", "/v1/outcomes", "", "Dispatcher-Project", "b"); len(page["data"].([]any)) != 0 {
		t.Errorf("outcomes of another project: %v", page)
	}
}
