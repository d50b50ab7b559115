package api_test

import (
	"slices"
	"strings"
	"testing"
)

// TestPagesOfAttempts: every attempt is on one page, the newest first, also while there are more of them.
func TestPagesOfAttempts(t *testing.T) {
	t.Parallel()
	to := &receiver{}
	to.shut.Store(true)
	f := newEngineFace(t, to)
	dead := func(tiers int) string {
		made := f.ask(t, 202, "POST", "/v1/callbacks", `{"url":"https://shop.example/","payload":1,
			"policy":{"tiers":[`+strings.TrimSuffix(strings.Repeat(`"0s",`, tiers), ",")+`]}}`)
		f.settled(t, made["id"].(string), "dead")
		return made["id"].(string)
	}
	id, path := dead(6), ""
	path = "/v1/callbacks/" + id + "/attempts"
	read := func(query string) (numbers []int, next string) {
		t.Helper()
		page := f.ask(t, 200, "GET", path+query, "")
		for _, a := range page["data"].([]any) {
			numbers = append(numbers, int(a.(map[string]any)["number"].(float64)))
		}
		if _, given := page["next_cursor"]; !given {
			t.Errorf("%s: no next_cursor in %v", query, page)
		}
		next, _ = page["next_cursor"].(string)
		return numbers, next
	}
	if all, next := read(""); !slices.Equal(all, []int{7, 6, 5, 4, 3, 2, 1}) || next != "" {
		t.Errorf("attempts %v, next %q", all, next)
	}
	first, next := read("?limit=3")
	f.ask(t, 200, "POST", "/v1/callbacks/"+id+"/retry", `{}`)
	f.settled(t, id, "dead")
	second, last := read("?limit=3&cursor=" + next)
	third, end := read("?limit=3&cursor=" + last)
	if got := slices.Concat(first, second, third); !slices.Equal(got, []int{7, 6, 5, 4, 3, 2, 1}) ||
		end != "" {
		t.Errorf("pages %v, %v and %v, then %q", first, second, third, end)
	}
	path = "/v1/callbacks/" + dead(0) + "/attempts"
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=501": "limit", "cursor=x": "cursor", "cursor=" + next: "cursor",
		"before=3": "before",
	} {
		fields := wantProblem(t, f.do("GET", path+"?"+query, ""), 422, "invalid")
		if !slices.Equal(fields, []string{field}) {
			t.Errorf("%s: refused for %q", query, fields)
		}
	}
	other := f.newProject(t, "other")
	wantProblem(t, f.do("GET", path, "", other...), 404, "not_found")
}
