package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestFiltersAreBounded: SQL is never asked more than it can be. A parameter may be given 20 times, and so
// many labels together.
func TestFiltersAreBounded(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	repeat := func(n int, parameter string) string { return strings.Repeat("&"+parameter, n)[1:] }
	labels := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("label.x%d=1", i)
		}
		return strings.Join(all, "&")
	}
	for query, field := range map[string]string{
		repeat(20, "state=dead"): "", repeat(21, "state=dead"): "state", repeat(1100, "state=dead"): "state",
		labels(20): "", labels(21): "label", labels(1100): "label",
		repeat(1100, "label.x=1"): "label.x", repeat(1100, "cursor=x"): "cursor",
		repeat(1100, "unheard=x"): "unheard",
	} {
		for _, path := range []string{"/v1/callbacks?", "/v1/callbacks?format=csv&"} {
			rec := f.do("GET", path+query, "")
			if field == "" {
				if rec.Code != 200 {
					t.Errorf("%s%.40s…: %d %s", path, query, rec.Code, rec.Body)
				}
				continue
			}
			if fields := wantProblem(t, rec, 422, "invalid"); !slices.Equal(fields, []string{field}) {
				t.Errorf("%s%.40s…: refused for %.200q, want %q", path, query, fields, field)
			}
		}
	}
	// A redrive's filter has the same bounds where each label is a member of its own.
	for n, field := range map[int]string{20: "", 21: "filter.label", 900: "filter.label"} {
		filter := strings.NewReplacer("&", `,"`, "=1", `":"1"`).Replace(labels(n))
		body := `{"action":"retry","dry_run":true,"filter":{"` + filter + `}}`
		if field == "" {
			f.ask(t, 200, "POST", "/v1/redrives", body)
		} else if fields := f.refused(t, "POST", "/v1/redrives", body); !slices.Equal(fields, []string{field}) {
			t.Errorf("%d labels: refused for %.200q, want %q", n, fields, field)
		}
	}
}
