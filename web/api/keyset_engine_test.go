package api_test

import (
	"slices"
	"testing"
)

// A list changes between two of its pages: what was there all the time is on one page, and on one only.
func TestPagesOfAListThatChanges(t *testing.T) {
	t.Parallel()
	for kind, body := range map[string]string{
		"policies": `{"tiers":["1s"]}`, "success_rules": `{"status":[200]}`,
		"profiles": `{"policy":"payment"}`,
	} {
		for change, do := range map[string]func(f face){
			"one more before the page's end": func(f face) { f.ask(t, 200, "PUT", "/v1/"+kind+"/aa", body) },
			"one less before the page's end": func(f face) {
				if rec := f.do("DELETE", "/v1/"+kind+"/bb", ""); rec.Code != 204 {
					t.Errorf("DELETE: %d %s", rec.Code, rec.Body)
				}
			},
			"the page's last one is gone": func(f face) {
				if rec := f.do("DELETE", "/v1/"+kind+"/dd", ""); rec.Code != 204 {
					t.Errorf("DELETE: %d %s", rec.Code, rec.Body)
				}
			},
		} {
			f := newEngineFace(t)
			for _, name := range []string{"ff", "bb", "hh", "dd"} {
				f.ask(t, 200, "PUT", "/v1/"+kind+"/"+name, body)
			}
			whole := f.names(t, "/v1/"+kind+"?limit=500", "name", nil)
			got := f.names(t, "/v1/"+kind+"?limit=2", "name", func() { do(f) })
			if !slices.Equal(got, whole) {
				t.Errorf("%s, %s: the pages have %q, want %q", kind, change, got, whole)
			}
		}
	}
}

// names reads all pages of a list, and does something after the first.
func (f face) names(t *testing.T, path, member string, between func()) (names []string) {
	t.Helper()
	for cursor := ""; ; {
		page := f.ask(t, 200, "GET", path+cursor, "")
		for _, row := range page["data"].([]any) {
			names = append(names, row.(map[string]any)[member].(string))
		}
		if between != nil {
			between()
			between = nil
		}
		next, more := page["next_cursor"].(string)
		if !more || len(names) > 10_000 {
			return names
		}
		cursor = "&cursor=" + next
	}
}

func TestPagesOfKeysWhileOneIsMade(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t)
	for range 3 {
		f.ask(t, 201, "POST", "/v1/keys", `{"name":"k","scopes":["read"]}`)
	}
	whole := f.names(t, "/v1/keys?limit=500", "id", nil)
	got := f.names(t, "/v1/keys?limit=2", "id", func() {
		f.ask(t, 201, "POST", "/v1/keys", `{"name":"k","scopes":["read"]}`)
	})
	if !slices.Equal(got, whole) {
		t.Errorf("the pages have %q, want %q", got, whole)
	}
}
