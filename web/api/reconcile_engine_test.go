package api_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBooksThroughTheEngine: what was accepted is in the books of its project, and a list of references finds what is missing.
func TestBooksThroughTheEngine(t *testing.T) {
	t.Parallel()
	to := &receiver{}
	to.shut.Store(true)
	f := newEngineFace(t, to)
	f.bury(t, 3) // with the references o-0 to o-2
	to.shut.Store(false)
	ep := f.ask(t, 201, "POST", "/v1/endpoints", `{"url":"https://shop.example/"}`)["id"].(string)
	f.settled(t, f.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"`+ep+`","payload":1,"ref":"won"}`)["id"].(string), "succeeded")
	f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1,"delay":"1h","ref":"later"}`)

	books := func(accepted, succeeded, dead, open float64) map[string]any {
		return map[string]any{"accepted": accepted, "succeeded": succeeded, "dead": dead, "canceled": 0.0, "open": open, "balanced": true}
	}
	of := func(group any, books map[string]any) any {
		books["group"] = group
		return books
	}
	for by, want := range map[string][]any{
		"":           {},
		"endpoint":   {of(nil, books(4, 0, 3, 1)), of(ep, books(1, 1, 0, 0))},
		"label:even": {of(nil, books(2, 1, 0, 1)), of("false", books(1, 0, 1, 0)), of("true", books(2, 0, 2, 0))},
	} {
		query := ""
		if by != "" {
			query = "&group_by=" + by
		}
		got := f.ask(t, 200, "GET", "/v1/reconcile?from=2020-01-01&timezone=Asia/Shanghai"+query, "")
		if diff := cmp.Diff(books(5, 1, 3, 1), got["total"]); diff != "" || got["timezone"] != "Asia/Shanghai" {
			t.Errorf("by %q the total (-want +got):\n%s", by, diff)
		}
		if diff := cmp.Diff(want, got["data"]); diff != "" {
			t.Errorf("by %q (-want +got):\n%s", by, diff)
		}
	}
	if fields := f.refused(t, "GET", "/v1/reconcile?from=2020-01-01&group_by=color", ""); !slices.Equal(fields, []string{"group_by"}) {
		t.Errorf("a grouping that there is not: %q", fields)
	}

	const list = `{"from":"2020-01-01T00:00:00Z","refs":["o-2","lost","o-0","won","won"]}`
	got := f.ask(t, 200, "POST", "/v1/reconcile/compare", list)
	if diff := cmp.Diff([]any{3.0, []any{"lost"}, []any{"later", "o-1"}, false}, []any{got["matched"], got["missing"], got["extra"], got["more_extra"]}); diff != "" {
		t.Errorf("compared (-want +got):\n%s", diff)
	}
	f.ask(t, 201, "POST", "/v1/projects", `{"id":"b"}`)
	in := []string{"Dispatcher-Project", "b"}
	if got := f.askAs(t, 200, "GET", "/v1/reconcile?from=2020-01-01", "", in...); got["total"].(map[string]any)["accepted"] != 0.0 {
		t.Errorf("the books of another project: %v", got)
	}
	if got := f.askAs(t, 200, "POST", "/v1/reconcile/compare", list, in...); got["matched"] != 0.0 || len(got["extra"].([]any)) != 0 {
		t.Errorf("compared with another project: %v", got)
	}
}
